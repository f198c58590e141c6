"""Judges one demand of the catalogue on facts, a wish and the rules' findings.

Pure. What is unknown going in stays unknown coming out (Kleene's logic), with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attn_doctor.backends.catalogue_entries import Requirement
from attn_doctor.backends.problems import Problem
from attn_doctor.backends.readiness import Outcome, Readiness, Reason
from attn_doctor.backends.workload import Use, Wish
from attn_doctor.facts import Facts
from attn_doctor.findings import Because, Verdict
from attn_doctor.rulebook.conditions import Condition, Lookup, conjunction, show
from attn_doctor.rulebook.evaluate import lookup_in
from attn_doctor.rulebook.placeholders import fill, unknown_in

_STATES = {
    "not ready": Readiness.NOT_READY,
    "slow": Readiness.SLOW,
    "unknown": Readiness.UNKNOWN,
}
_NOT_TABLED = "what runs on AMD and Intel GPUs is not in this catalogue"


def lookup_for(facts: Facts, wish: Wish, use: Use) -> Lookup:
    """Values of facts, of the wish (`wish.…`) and of where it would run (`use.…`)."""
    machine = lookup_in(facts)

    def lookup(name: str) -> Any:
        head, _, rest = name.partition(".")
        if head == "wish":
            return getattr(wish, rest)
        if head == "use":
            return getattr(use, rest)
        return machine(name)

    return lookup


def outcome_of(demand: Requirement, lookup: Lookup, problems: Mapping[str, Problem]) -> Outcome:
    """What becomes of one demand."""
    demanded = conjunction(line.truth(lookup) for line in demand.when)
    if demanded is False or _of_no_gpu(demand, lookup):
        return Outcome.NOT_DEMANDED
    holds = _holds(demand, lookup, problems)
    if holds is True:
        return Outcome.MET
    return Outcome.UNMET if holds is False and demanded else Outcome.UNKNOWN


def _of_no_gpu(demand: Requirement, lookup: Lookup) -> bool:
    """It asks for a generation of GPUs, and there is none: that one is wanted is said already."""
    asked = {line.fact for line in (*demand.needs.all, *demand.needs.any)}
    return "driver.best_sm" in asked and lookup("driver.best_sm") == 0


def _holds(demand: Requirement, lookup: Lookup, problems: Mapping[str, Problem]) -> bool | None:
    if demand.never:
        return False
    if demand.problem:
        told = problems.get(demand.problem)
        if told is None or told.verdict in (Verdict.OK, Verdict.NOT_APPLICABLE):
            return True
        return False if told.verdict is Verdict.PROBLEM else None
    return demand.needs.truth(lookup)


def said(
    demand: Requirement,
    outcome: Outcome,
    lookup: Lookup,
    facts: Facts,
    problems: Mapping[str, Problem],
) -> Reason:
    """A demand that is not met, or that cannot be told, as a reason."""
    state = _STATES[demand.otherwise] if outcome is Outcome.UNMET else Readiness.UNKNOWN
    told = problems.get(demand.problem)
    text = fill(demand.text, lookup)
    if told is not None and told.finding.title and outcome is Outcome.UNMET:
        text = told.finding.title
    return Reason(
        id=demand.id,
        state=state,
        text=text,
        because=because(demand, lookup, facts, problems),
        by=demand.by,
        silent=demand.silent,
        rule=demand.rule,
        remedy=fill(demand.remedy, lookup),
        # A command with a hole in it is none.
        code="" if unknown_in(demand.code, lookup) else fill(demand.code, lookup),
        source=demand.source,
    )


def because(
    demand: Requirement, lookup: Lookup, facts: Facts, problems: Mapping[str, Problem]
) -> tuple[Because, ...]:
    """The values seen and wanted; of where the demand holds only what is unknown."""
    doubtful = [line for line in demand.when if line.truth(lookup) is None]
    lines = [_line(line, lookup, facts, wanted=False) for line in doubtful]
    told = problems.get(demand.problem)
    if told is not None:
        # What made the rule speak is evidence; where it applies only if that is the doubt.
        return (*lines, *told.finding.because, *undecided(told.finding.context))
    group = demand.needs
    lines += [_line(line, lookup, facts, wanted=True) for line in (*group.all, *group.any)]
    return tuple(lines)


def undecided(lines: Iterable[Because]) -> Iterator[Because]:
    """The lines that could not be told."""
    return (line for line in lines if line.truth is None)


def _line(line: Condition, lookup: Lookup, facts: Facts, *, wanted: bool) -> Because:
    return Because(
        fact=line.fact,
        seen=show(lookup(line.fact)),
        wanted=line.wanted(lookup, held=False) if wanted else "",
        truth=line.truth(lookup),
        gap=_gap(line, lookup, facts),
    )


def _gap(line: Condition, lookup: Lookup, facts: Facts) -> str:
    """Why a line cannot be told, if it cannot."""
    for name in filter(None, (line.fact, line.other)):
        if lookup(name) is None:
            return _reason(name, lookup, facts)
    return ""


def _reason(name: str, lookup: Lookup, facts: Facts) -> str:
    if name == "use.nvidia" and lookup("use.device") in ("rocm", "xpu"):
        return _NOT_TABLED
    behind = {
        "use.device": ("torch.build", "torch", "gpus", "driver"),
        "use.nvidia": ("torch.build", "torch", "gpus", "driver"),
        "use.unusable_gpu": ("driver.vendor", "gpus"),
        "use.hub": ("extensions",),
        "use.version": (f"{lookup('use.framework')}.version",),
        "use.diffusers": ("diffusers.version",),
        "driver.best_sm": ("gpus",),
    }
    for fact in (name, *behind.get(name, ())):
        if facts.gap(fact):
            return facts.gap(fact)
    return ""
