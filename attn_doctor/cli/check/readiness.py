"""Backends in `check`: the short table, and those that `--require` and the policy demand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from attn_doctor.backends.required import PREFIX
from attn_doctor.findings import Diagnosis, Finding, Verdict

if TYPE_CHECKING:
    from attn_doctor.backends.readiness import Matrix
    from attn_doctor.backends.workload import Wish
    from attn_doctor.policy.policy import Policy


def judged(diagnosis: Diagnosis, wishes: Sequence[Wish], framework: str) -> Matrix:
    """Every backend for the wishes."""
    from attn_doctor.backends.matrix import matrix

    return matrix(diagnosis.facts, diagnosis.findings, wishes, framework)


def with_required(
    diagnosis: Diagnosis,
    names: Iterable[str],
    wishes: Sequence[Wish],
    framework: str,
    policy: Policy | None,
) -> Diagnosis:
    """The diagnosis with a finding for each backend that must be ready.

    `names`, of `--require`, must be ready for `wishes`; those of the policy for what it says.
    Raises `AttnDoctorError` for a name that the framework does not have.
    """
    from msgspec.structs import replace

    found: list[Finding] = []
    wanted = [one.strip() for name in names for one in name.split(",") if one.strip()]
    if wanted:
        found += _required(diagnosis, wanted, wishes, framework)
    if policy is not None and policy.require:
        from attn_doctor.backends.workload import Wish

        phases = ("inference", "training") if policy.training else ("inference",)
        every = tuple(Wish(phase=phase) for phase in phases)
        found += _required(diagnosis, policy.require, every, policy.framework or "diffusers")
    if not found:
        return diagnosis
    unique = {one.rule: one for one in reversed(found)}.values()
    problems = [one for one in unique if one.verdict is Verdict.PROBLEM]
    sound = [one for one in unique if one.verdict is not Verdict.PROBLEM]
    # Problems come first in a diagnosis.
    return replace(diagnosis, findings=(*problems, *diagnosis.findings, *sound))


def unready(diagnosis: Diagnosis) -> bool:
    """A backend that must be ready is not, and no policy suppresses that."""
    return any(one.rule.startswith(PREFIX) for one in diagnosis.problems)


def _required(
    diagnosis: Diagnosis, names: Sequence[str], wishes: Sequence[Wish], framework: str
) -> tuple[Finding, ...]:
    from attn_doctor.backends.required import demanded

    table = judged(diagnosis, wishes, framework)
    return demanded(table, names, diagnosis.findings)
