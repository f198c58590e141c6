"""Whether a backend takes what a model gives it, on this machine: the catalogue's answer."""

from __future__ import annotations

from collections.abc import Sequence

from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.matrix import answer_of, matrix
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
#: The folder of rules about wrong results without an error message.
_ADVISORIES = "advisories/"
_ORDER = (Readiness.NOT_READY, Readiness.UNKNOWN, Readiness.SLOW)


def reason_of(answer: Answer) -> str:
    """The reason that decides a state; empty for a backend that is ready."""
    return answer.reasons[0].text if answer.state is not Readiness.READY else ""


def exceptions_of(answer: Answer) -> tuple[str, ...]:
    """Known faults of some calls of a backend that is ready, without an error message."""
    if answer.state is not Readiness.READY:
        return ()
    return tuple(
        f"{one.text.removeprefix('ready, ')} [{one.rule.partition('/')[2]}]"
        for one in answer.reasons
        if one.rule.startswith(_ADVISORIES)
    )


def wrong_results(answer: Answer) -> RequirementResult | None:
    """The advisory that this call certainly has; None if there is none."""
    found = (one for one in answer.reasons if one.rule.startswith(_ADVISORIES))
    return next((one for one in found if one.state is Readiness.NOT_READY), None)


class BackendSupport:
    """Answers of the catalogue for one framework.

    It is empty for a program that calls the libraries itself: the requirements that Diffusers adds
    do not count then.
    """

    def __init__(self, facts: Facts, findings: Sequence[Finding], framework: str) -> None:
        self._facts, self._findings = facts, findings
        self._framework = framework

    def answer(self, backend: str, call: AttentionCall) -> Answer:
        """A backend's readiness for a call; unknown if the framework has no name for it."""
        if not self._framework:
            return answer_of(self._facts, self._findings, call, backend)
        table = matrix(self._facts, self._findings, (call,), self._framework, only=(backend,))
        rows = [row for row in table.rows if row.known] or table.rows
        return rows[0].answers[0] if rows else Answer(state=Readiness.UNKNOWN)

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
