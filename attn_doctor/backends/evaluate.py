"""Judges backends by their demands, and by what the rules found.

Problems that rules found reach a backend in two ways: a demand may name the rule; and an error of
a rule that lists the backend, or its family, makes it not ready without the catalogue saying so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attn_doctor.backends.catalogue_entries import Backend, Catalogue, Requirement
from attn_doctor.backends.problems import Problem
from attn_doctor.backends.readiness import Answer, Demand, Outcome, Readiness, Reason
from attn_doctor.backends.requirements import (
    because,
    lookup_for,
    outcome_of,
    said,
    undecided,
)
from attn_doctor.backends.workload import Use, Wish
from attn_doctor.facts import Facts
from attn_doctor.findings import Severity, Verdict
from attn_doctor.rulebook.placeholders import fill

#: Which of two states stands: what fails for certain outweighs what cannot be told.
_WEIGHT = {
    Readiness.NOT_READY: 3,
    Readiness.UNKNOWN: 2,
    Readiness.SLOW: 1,
    Readiness.READY: 0,
}
#: Rules on one framework, which say nothing to users of another.
_FRAMEWORK_AREAS = ("diffusers", "finetrainers", "simpletuner", "transformers", "comfyui")


class _View:
    """One wish: what it makes of each demand, worked out once for all backends."""

    def __init__(self, facts: Facts, wish: Wish, use: Use) -> None:
        self.lookup = lookup_for(facts, wish, use)
        self.outcomes: dict[str, Outcome] = {}
        self.reasons: dict[str, Reason] = {}


class Bench:
    """Facts and findings on which all backends of one framework are judged."""

    def __init__(
        self, facts: Facts, catalogue: Catalogue, use: Use, problems: Mapping[str, Problem]
    ) -> None:
        self.facts = facts
        self.use = use
        self._demands = {one.id: one for one in catalogue.requirements}
        self._problems = problems
        named = {one.problem for one in catalogue.requirements} | {*catalogue.ignored}
        self._loose = [
            told
            for rule, told in problems.items()
            if rule not in named and self._speaks(rule, told)
        ]
        self._views: dict[Wish, _View] = {}

    def answer(self, backend: Backend, wish: Wish, more: Sequence[Requirement] = ()) -> Answer:
        """A backend's readiness for a wish. `more`: demands that come with the name."""
        view = self._view(wish)
        reasons = [
            self._reason(demand, outcome, view, kept=demand.id in self._demands)
            for demand, outcome in self._outcomes(backend, wish, more)
            if outcome in (Outcome.UNMET, Outcome.UNKNOWN)
        ]
        reasons += self._found(backend)
        if not reasons:
            return Answer(state=Readiness.READY)
        reasons.sort(key=lambda one: -_WEIGHT[one.state])
        return Answer(state=reasons[0].state, reasons=tuple(reasons))

    def demands(
        self, backend: Backend, wish: Wish, more: Sequence[Requirement] = ()
    ) -> tuple[Demand, ...]:
        """Every demand with its outcome and the values behind it."""
        lookup = self._view(wish).lookup
        told = [
            Demand(
                id=demand.id,
                outcome=outcome,
                text=fill(demand.text, lookup),
                because=because(demand, lookup, self.facts, self._problems),
                by=demand.by,
                otherwise=demand.otherwise,
                source=demand.source,
                rule=demand.rule,
            )
            for demand, outcome in self._outcomes(backend, wish, more)
        ]
        return (*told, *map(_as_demand, self._found(backend)))

    def _view(self, wish: Wish) -> _View:
        if wish not in self._views:
            self._views[wish] = _View(self.facts, wish, self.use)
        return self._views[wish]

    def _outcomes(
        self, backend: Backend, wish: Wish, more: Sequence[Requirement]
    ) -> Iterator[tuple[Requirement, Outcome]]:
        view = self._view(wish)
        for demand in more:
            yield demand, outcome_of(demand, view.lookup, self._problems)
        for id in (*backend.requires, *(backend.compiled if wish.compiled else ())):
            demand = self._demands[id]
            if id not in view.outcomes:
                view.outcomes[id] = outcome_of(demand, view.lookup, self._problems)
            yield demand, view.outcomes[id]

    def _reason(self, demand: Requirement, outcome: Outcome, view: _View, *, kept: bool) -> Reason:
        found = view.reasons.get(demand.id) if kept else None
        if found is None:
            found = said(demand, outcome, view.lookup, self.facts, self._problems)
            if kept:
                view.reasons[demand.id] = found
        return found

    def _speaks(self, rule: str, told: Problem) -> bool:
        """An error, or the doubt about one, that concerns this framework."""
        finding = told.finding
        if finding.severity is not Severity.ERROR or not finding.backends:
            return False
        if told.verdict is Verdict.UNKNOWN and finding.caused_by:
            return False
        if told.verdict not in (Verdict.PROBLEM, Verdict.UNKNOWN):
            return False
        area = rule.partition("/")[0]
        areas = (self.use.framework, *(("diffusers",) if self.use.diffusers else ()))
        return area not in _FRAMEWORK_AREAS or area in areas

    def _found(self, backend: Backend) -> Iterator[Reason]:
        """Errors of rules that name this backend or its family."""
        called = {backend.name, *backend.tags}
        for told in self._loose:
            finding = told.finding
            if called.isdisjoint(finding.backends):
                continue
            wrong = told.verdict is Verdict.PROBLEM
            doubt = () if wrong else tuple(undecided((*finding.context, *finding.because)))
            yield Reason(
                id=finding.rule,
                state=Readiness.NOT_READY if wrong else Readiness.UNKNOWN,
                text=finding.title if wrong else f"it cannot be told whether: {finding.title}",
                because=finding.because if wrong else doubt,
                by="package",
                rule=finding.rule,
                source=next(iter(finding.evidence), ""),
            )


def _as_demand(reason: Reason) -> Demand:
    """What a rule found, among the demands."""
    unmet = reason.state is Readiness.NOT_READY
    return Demand(
        id=reason.id,
        outcome=Outcome.UNMET if unmet else Outcome.UNKNOWN,
        text=reason.text,
        because=reason.because,
        by=reason.by,
        otherwise=Readiness.NOT_READY.value,
        source=reason.source,
        rule=reason.rule,
    )
