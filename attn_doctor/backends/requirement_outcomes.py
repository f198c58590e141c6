"""Evaluates the requirements of backends on facts, an attention call, and the rules' findings.

Findings reach a backend in two ways: a requirement may name a rule; and an error of a rule that
lists the backend or its family makes it not ready, without an entry in the catalogue. An unknown
value stays unknown (Kleene's logic), with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attn_doctor.backends.advisories import concerns, sentence
from attn_doctor.backends.attention_call import AttentionCall, Context
from attn_doctor.backends.catalogue_entries import Backend, Catalogue, Requirement
from attn_doctor.backends.readiness import Answer, Outcome, Readiness, RequirementResult
from attn_doctor.facts import Facts
from attn_doctor.findings import Because, Finding, Severity, Verdict
from attn_doctor.rulebook.conditions import conjunction
from attn_doctor.rulebook.evaluate import FactLookup, filled_commands
from attn_doctor.rulebook.texts import fill
from attn_doctor.shell.commands import in_text

#: The order of states: a certain failure outweighs an unknown, an unknown outweighs slowness.
_WORST_FIRST = (Readiness.NOT_READY, Readiness.UNKNOWN, Readiness.SLOW, Readiness.READY)
#: Rules on one framework, which do not concern users of another.
_FRAMEWORK_AREAS = ("diffusers", "finetrainers", "simpletuner", "transformers", "comfyui")
#: What no command changes: the GPU, and the call that is asked about.
_GIVEN = ("driver.best_sm", "call.")
#: The rule on packages whose wheels and builds, as the catalogue names them, are NVIDIA's alone.
_PACKAGE_MISSING = "diffusers/backend-package-missing"
_OTHER_DEVICES = ("rocm", "xpu", "mps")
_OTHER_VENDORS = "what runs on AMD and Intel GPUs is not in this catalogue"
#: Facts whose gaps explain why a value of the context is unknown.
_BEHIND = {
    "context.device": ("torch.build", "torch", "gpus", "driver"),
    "context.nvidia": ("torch.build", "torch", "gpus", "driver"),
    "context.unusable_gpu": ("driver.vendor", "gpus"),
    "context.hub": ("extensions",),
    "context.diffusers": ("diffusers.version",),
    "driver.best_sm": ("gpus",),
}
_UNDECIDED = (Outcome.UNSATISFIED, Outcome.UNKNOWN)
_VERDICTS = (Verdict.PROBLEM, Verdict.UNKNOWN, Verdict.OK, Verdict.NOT_APPLICABLE)


def by_rule(findings: Iterable[Finding]) -> dict[str, Finding]:
    """The finding of each rule that counts for the whole machine.

    A rule about each GPU is a problem only if all GPUs have it, since the best one would be used.
    For other elements, such as caches, one problem is enough.
    """
    grouped: dict[str, list[Finding]] = {}
    for finding in findings:
        grouped.setdefault(finding.rule, []).append(finding)
    chosen = {}
    for rule, group in grouped.items():
        if len(group) == 1:
            chosen[rule] = group[0]
            continue
        on_gpus = any(
            line.fact.startswith("gpu.") for one in group for line in (*one.because, *one.context)
        )
        pick = max if on_gpus else min
        chosen[rule] = pick(group, key=lambda one: _VERDICTS.index(one.verdict))
    return chosen


class CallLookup(FactLookup):
    """Looks up facts, values of the call (`call.…`) and of the context (`context.…`)."""

    def __init__(self, facts: Facts, call: AttentionCall, context: Context) -> None:
        super().__init__(facts)
        self._sources: dict[str, object] = {"call": call, "context": context}

    def __call__(self, name: str) -> Any:
        """The value of a name; None if it is unknown."""
        if name not in self._values:
            head, _, rest = name.partition(".")
            if head not in self._sources:
                return super().__call__(name)
            self._values[name] = getattr(self._sources[head], rest)
        return self._values[name]

    def gap(self, name: str) -> str:
        """Why a value is unknown."""
        if name == "context.nvidia" and self("context.device") in ("rocm", "xpu"):
            return _OTHER_VENDORS
        behind = _BEHIND.get(name, ())
        if name == "context.version":
            behind = (f"{self('context.framework')}.version",)
        return next(filter(None, map(super().gap, (name, *behind))), "")


def outcome_of(
    requirement: Requirement, lookup: FactLookup, found: Mapping[str, Finding]
) -> Outcome:
    """The outcome of one requirement. `found`: the finding of each rule."""
    applies = conjunction(map(lookup.truth, requirement.when))
    if applies is False or _needs_absent_gpu(requirement, lookup):
        return Outcome.NOT_APPLICABLE
    holds = _holds(requirement, lookup, found)
    if holds is True:
        return Outcome.SATISFIED
    return Outcome.UNSATISFIED if holds is False and applies else Outcome.UNKNOWN


def _needs_absent_gpu(requirement: Requirement, lookup: FactLookup) -> bool:
    """It needs a generation of GPUs, and there is no GPU: another requirement reports that."""
    if lookup("driver.best_sm") != 0:
        return False
    lines = (*requirement.needs.all, *requirement.needs.any)
    return any(line.fact == "driver.best_sm" for line in lines)


def _holds(
    requirement: Requirement, lookup: FactLookup, found: Mapping[str, Finding]
) -> bool | None:
    if requirement.never:
        return False
    if not requirement.problem:
        return lookup.truth(requirement.needs)
    finding = found.get(requirement.problem)
    if finding is None or finding.verdict in (Verdict.OK, Verdict.NOT_APPLICABLE):
        return True
    return False if finding.verdict is Verdict.PROBLEM else None


class _CallView:
    """One call: the outcome of each requirement, computed once for all backends.

    A requirement of the catalogue is known by its id. One that comes with a name is known by its id
    and text, which has the words of the name.
    """

    def __init__(self, lookup: FactLookup) -> None:
        self.lookup = lookup
        #: `settled` has the ids of those that are not a reason against a backend.
        self.outcomes: dict[str, Outcome] = {}
        self.settled: set[str] = set()
        self.results: dict[str, RequirementResult] = {}


def _decides(reason: RequirementResult, state: Readiness) -> bool:
    """It stands before an absent package: an error of torch, or a GPU that no kernel supports."""
    of_gpu = any((one.fact or "").startswith(("driver.best_sm", "gpu.")) for one in reason.because)
    deeper = reason.rule.startswith("torch/") or (of_gpu and not reason.curable)
    return reason.state is state and deeper and not reason.silent


class Evaluator:
    """Facts and findings on which all backends of one framework are evaluated."""

    def __init__(
        self,
        facts: Facts,
        catalogue: Catalogue,
        context: Context,
        found: Mapping[str, Finding],
        *,
        direct: bool = False,
    ) -> None:
        """`direct`: requirements of Diffusers' dispatcher do not count."""
        self.context = context
        self._direct = direct
        self._facts, self._found = facts, found
        self._requirements = {entry.id: entry for entry in catalogue.requirements}
        covered = {entry.problem for entry in catalogue.requirements} | {*catalogue.ignored}
        #: Errors of rules that no requirement names.
        self._uncovered = [
            finding
            for rule, finding in found.items()
            if rule not in covered and self._concerns(finding)
        ]
        #: Problems with an advisory.
        self._advised = [
            (finding, finding.advisory)
            for finding in found.values()
            if finding.advisory is not None and finding.verdict is Verdict.PROBLEM
        ]
        self._views: dict[AttentionCall, _CallView] = {}

    def answer(
        self, backend: Backend, call: AttentionCall, more: Sequence[Requirement] = ()
    ) -> Answer:
        """A backend's readiness for a call. `more`: requirements that come with the name."""
        reasons = [
            *self._results(backend, call, more, _UNDECIDED),
            *self._errors(backend),
            *self._advisories(backend, call),
        ]
        if not reasons:
            return Answer(state=Readiness.READY)
        reasons.sort(key=lambda reason: _WORST_FIRST.index(reason.state))
        state = reasons[0].state
        if state is not Readiness.READY:
            # Exceptions matter only to a backend that can be used.
            reasons = [reason for reason in reasons if reason.state is not Readiness.READY]
        if reasons[0].by == "package":
            # Installing a package cannot help where torch or the GPU is the reason.
            reasons.sort(key=lambda reason: not _decides(reason, state))
        return Answer(state=state, reasons=tuple(reasons))

    def answer_to(self, requirement: Requirement, call: AttentionCall) -> Answer:
        """The answer of a requirement that decides alone, as it is not satisfied."""
        lookup = CallLookup(self._facts, call, self.context)
        outcome = outcome_of(requirement, lookup, self._found)
        result = self._result(requirement, outcome, lookup)
        return Answer(state=result.state, reasons=(result,))

    def results(
        self, backend: Backend, call: AttentionCall, more: Sequence[Requirement] = ()
    ) -> tuple[RequirementResult, ...]:
        """Every requirement with its outcome and the values behind it."""
        every = self._results(backend, call, more, tuple(Outcome))
        return (*every, *self._errors(backend), *self._advisories(backend, call))

    def _results(
        self,
        backend: Backend,
        call: AttentionCall,
        more: Sequence[Requirement],
        wanted: tuple[Outcome, ...],
    ) -> Iterator[RequirementResult]:
        view = self._views.get(call)
        if view is None:
            view = self._views[call] = _CallView(CallLookup(self._facts, call, self.context))
        entries = {f"{one.id} {one.text}": one for one in more}
        ids = (*backend.requires, *(backend.compiled if call.compiled else ()))
        if self._direct:
            ids = tuple(id for id in ids if self._requirements[id].by != "framework")
        keys: Iterable[str] = (*entries, *ids)
        if wanted is _UNDECIDED:
            # Forty a name, and nearly all are settled by another name.
            keys = [key for key in keys if key not in view.settled]
        for key in keys:
            outcome = view.outcomes.get(key)
            if outcome is None:
                requirement = entries.get(key) or self._requirements[key]
                outcome = outcome_of(requirement, view.lookup, self._found)
                view.outcomes[key] = outcome
                if outcome not in _UNDECIDED:
                    view.settled.add(key)
            if outcome in wanted:
                if key not in view.results:
                    requirement = entries.get(key) or self._requirements[key]
                    view.results[key] = self._result(requirement, outcome, view.lookup)
                yield view.results[key]

    def _result(
        self, requirement: Requirement, outcome: Outcome, lookup: FactLookup
    ) -> RequirementResult:
        finding = self._found.get(requirement.problem)
        text = in_text(fill(requirement.text, lookup), lookup.facts)
        state = Readiness.READY
        if outcome is Outcome.UNSATISFIED:
            state = Readiness(requirement.otherwise)
            text = (finding.title if finding is not None else "") or text
        elif outcome is Outcome.UNKNOWN:
            state = Readiness.UNKNOWN
            label = fill(requirement.label, lookup)
            unsure = requirement.id.endswith("-import-unsure")  # written for what is unknown
            text = text if unsure else f"unknown whether {label}" if label else f"unknown: {text}"
        run = filled_commands(requirement.run, lookup) or _installed(requirement)
        remedy = in_text(fill(requirement.remedy, lookup), lookup.facts)
        if requirement.rule == _PACKAGE_MISSING and self.context.device in _OTHER_DEVICES:
            remedy, run = "", ()  # it would install a build for NVIDIA GPUs
        return RequirementResult(
            id=requirement.id,
            outcome=outcome,
            state=state,
            text=text,
            label=requirement.label,
            because=self._because(requirement, finding, lookup),
            by=requirement.by,
            silent=requirement.silent,
            rule=requirement.rule,
            remedy=remedy,
            run=run,
            unset=requirement.unset,
            code=requirement.code,
            curable=bool(requirement.remedy)
            or self._has_fix(requirement)
            or self._torch_cures(requirement)
            # An installation that fails to import can be repaired.
            or requirement.id.endswith(("-importable", "-import-unsure")),
            source=requirement.source,
        )

    def _has_fix(self, requirement: Requirement) -> bool:
        """Whether its rule is a problem here with a fix; none changes the GPU or the call."""
        names = {line.fact for line in (*requirement.needs.all, *requirement.needs.any)}
        if any(name.startswith(_GIVEN) for name in names):
            return False
        finding = self._found.get(requirement.rule)
        return finding is not None and bool(finding.fixes)

    def _torch_cures(self, requirement: Requirement) -> bool:
        """Whether it needs an NVIDIA GPU, which is there, and a torch for CUDA, which is not."""
        names = {line.fact for line in (*requirement.needs.all, *requirement.needs.any)}
        facts = self._facts
        return "context.nvidia" in names and bool(facts.gpus) and facts.torch.build != "cuda"

    def _because(
        self, requirement: Requirement, finding: Finding | None, lookup: FactLookup
    ) -> tuple[Because, ...]:
        """The values seen and wanted; of the conditions of `when`, the unknown ones."""
        lines = [lookup.because(line) for line in requirement.when if lookup.truth(line) is None]
        if finding is not None:
            # The rule's conditions are evidence; those that limit it count only if unknown.
            return (*lines, *finding.because, *_undecided(finding.context))
        needs = (*requirement.needs.all, *requirement.needs.any)
        return (*lines, *(lookup.because(line, fault=False) for line in needs))

    def _advisories(self, backend: Backend, call: AttentionCall) -> Iterator[RequirementResult]:
        """Known faults without an error message that this call has, or that others have."""
        for finding, advisory in self._advised:
            # Not its tags: a fault of one kernel is not that of its family.
            if backend.name not in finding.backends:
                continue
            certain = concerns(advisory, call)
            if certain is not False:
                yield RequirementResult(
                    id=finding.rule,
                    outcome=Outcome.UNSATISFIED,
                    state=Readiness.NOT_READY if certain else Readiness.READY,
                    text=sentence(advisory, certain=bool(certain)),
                    because=finding.because,
                    silent=True,
                    rule=finding.rule,
                    source=next(iter(finding.evidence), ""),
                )

    def _concerns(self, finding: Finding) -> bool:
        """An error, or the doubt about one, that concerns users of this framework."""
        if finding.advisory is not None:
            return False
        if finding.severity is not Severity.ERROR or not finding.backends:
            return False
        if finding.verdict is not Verdict.PROBLEM and (
            finding.verdict is not Verdict.UNKNOWN or finding.caused_by
        ):
            return False
        area = finding.rule.partition("/")[0]
        areas = (self.context.framework, *(("diffusers",) if self.context.diffusers else ()))
        return area not in _FRAMEWORK_AREAS or area in areas

    def _errors(self, backend: Backend) -> Iterator[RequirementResult]:
        """Errors of rules that name this backend or its family."""
        for finding in self._uncovered:
            if {backend.name, *backend.tags}.isdisjoint(finding.backends):
                continue
            wrong = finding.verdict is Verdict.PROBLEM
            lines = (*finding.context, *finding.because)
            yield RequirementResult(
                id=finding.rule,
                outcome=Outcome.UNSATISFIED if wrong else Outcome.UNKNOWN,
                state=Readiness.NOT_READY if wrong else Readiness.UNKNOWN,
                text=finding.title if wrong else f"could not be checked: {finding.title}",
                because=finding.because if wrong else tuple(_undecided(lines)),
                by="package",
                rule=finding.rule,
                curable=bool(finding.fixes),
                source=next(iter(finding.evidence), ""),
            )


def _installed(requirement: Requirement) -> tuple[tuple[str, ...], ...]:
    """The command that chooses another torch, where no release for this one can be filled in."""
    words = [word for argv in requirement.run for word in argv if word.startswith("xformers")]
    named = any(word.removeprefix("xformers")[:1] in ("", *"{=<>") for word in words)
    return (("attn-doctor", "install", "xformers"),) if named else ()


def _undecided(lines: Iterable[Because]) -> Iterator[Because]:
    """The lines whose truth is unknown."""
    return (line for line in lines if line.truth is None)
