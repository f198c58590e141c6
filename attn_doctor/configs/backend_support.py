"""Whether a backend takes what a model gives it, on this machine: the catalogue's answer."""

from __future__ import annotations

from collections.abc import Sequence

from attn_doctor.backends import catalogue
from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.matrix import matrix
from attn_doctor.backends.readiness import Answer, Readiness, RequirementResult
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding, Verdict

#: Demands that hang on the configuration, not on the machine: what meets them is a change there.
CONFIGURED = (
    "half-precision", "flash-sdpa-precision", "flash-sdpa-mask", "flex-causal", "flex-unfused",
    "flex-unfused-memory", "flex-mask-reach", "kohaku-mask",
)  # fmt: skip
#: Rules on masks: the model passes them, so another backend is the remedy.
MASKS = (
    "diffusers/mask-rejected",
    "diffusers/mask-dropped",
    "diffusers/varlen-mask",
    "xformers/mask-layout",
)
_ORDER = (Readiness.NOT_READY, Readiness.UNKNOWN, Readiness.SLOW)


class BackendSupport:
    """Answers of the catalogue for one framework.

    A framework that calls the libraries itself, without Diffusers' dispatcher, is none of the
    catalogue's: the requirements that Diffusers adds do not count then.
    """

    def __init__(self, facts: Facts, findings: Sequence[Finding], framework: str) -> None:
        self._facts, self._findings = facts, findings
        listed = any(one.name == framework for one in catalogue.load().frameworks)
        self._framework = framework if listed else "diffusers"
        self._own = listed

    def answer(self, backend: str, call: AttentionCall) -> Answer:
        """A backend's readiness for a call; unknown if the framework has no name for it."""
        table = matrix(self._facts, self._findings, (call,), self._framework, only=(backend,))
        rows = [row for row in table.rows if row.known or not self._own] or table.rows
        answer = rows[0].answers[0] if rows else Answer(state=Readiness.UNKNOWN)
        if self._own or not rows:
            return answer
        # Versions and masks that Diffusers refuses are not this framework's.
        kept = tuple(one for one in answer.reasons if one.by != "framework")
        states = [one.state for one in kept]
        state = next((one for one in _ORDER if one in states), Readiness.READY)
        return Answer(state=state, reasons=kept)

    def answer_masks(self, backend: str, calls: Sequence[AttentionCall]) -> tuple[Answer, bool]:
        """The answer for calls of which one will be made, and whether they all have it.

        Where they differ, it is the worst one.
        """
        answers = [self.answer(backend, one) for one in calls]
        answers.sort(key=lambda one: _ORDER.index(one.state) if one.state in _ORDER else 9)
        return answers[0], len({one.state for one in answers}) == 1

    def faults(self, answer: Answer) -> list[RequirementResult]:
        """The reasons against a backend that have a rule and are not the machine's own problem."""
        return [
            one
            for one in answer.reasons
            if one.rule and one.state is not Readiness.UNKNOWN and not self.known(one.rule)
        ]

    def known(self, rule: str) -> bool:
        """The rules found this problem on the machine already, for every configuration."""
        return any(one.rule == rule and one.verdict is Verdict.PROBLEM for one in self._findings)
