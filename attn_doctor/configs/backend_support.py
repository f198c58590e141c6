"""Whether a backend takes what a model gives it, on this machine: the catalogue's answer."""

from __future__ import annotations

from collections.abc import Sequence

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


class BackendSupport:
    """Answers of the catalogue for one framework."""

    def __init__(self, facts: Facts, findings: Sequence[Finding], framework: str) -> None:
        self._facts, self._findings, self._framework = facts, findings, framework

    def answer(self, backend: str, call: AttentionCall) -> Answer:
        """A backend's readiness for a call; unknown if the framework has no name for it."""
        table = matrix(self._facts, self._findings, (call,), self._framework, only=(backend,))
        rows = [row for row in table.rows if row.known] or table.rows
        return rows[0].answers[0] if rows else Answer(state=Readiness.UNKNOWN)

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
