"""Backends in `check`: the short table, and those that `--require` and the policy require."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from attn_doctor.backends import required
from attn_doctor.backends.matrix import matrix
from attn_doctor.findings import Diagnosis

if TYPE_CHECKING:
    from attn_doctor.backends.attention_call import AttentionCall
    from attn_doctor.backends.readiness import Matrix
    from attn_doctor.policy.policy import Policy

unready = required.is_unready


def judged(diagnosis: Diagnosis, calls: Sequence[AttentionCall], framework: str) -> Matrix:
    """Every backend for the calls."""
    return matrix(diagnosis.facts, diagnosis.findings, calls, framework)


def with_required(
    diagnosis: Diagnosis,
    names: Iterable[str],
    calls: Sequence[AttentionCall],
    framework: str,
    policy: Policy | None,
) -> Diagnosis:
    """The diagnosis with a finding for each backend that must be ready."""
    from attn_doctor.backends.attention_call import AttentionCall

    wanted = [one.strip() for name in names for one in name.split(",") if one.strip()]
    demands: list[tuple[Sequence[str], Sequence[AttentionCall], str]] = [(wanted, calls, framework)]
    if policy is not None:
        phases = ("inference", "training") if policy.training else ("inference",)
        every = tuple(AttentionCall(phase=phase) for phase in phases)
        demands.append((policy.require, every, policy.framework or "diffusers"))
    return required.with_required(diagnosis, demands)
