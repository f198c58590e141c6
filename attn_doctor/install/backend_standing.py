"""How far a backend is from serving a call: the state, and what could change it."""

from __future__ import annotations

from enum import Enum

from attn_doctor.backends.readiness import Answer, Readiness, RequirementResult
from attn_doctor.backends.required import remedy
from attn_doctor.facts import Facts
from attn_doctor.install.offered import possible_here


class Standing(str, Enum):
    """How far a backend is from serving an attention call."""

    READY = "ready"
    SLOW = "slow"
    WRONG = "wrong"
    """It runs, and the result is wrong without a message."""
    COMMAND = "command"
    """All that is missing comes with one command, which can work on this machine."""
    NOT_READY = "not-ready"
    """It needs more than one command, or a change that no command makes."""
    UNSUPPORTED = "unsupported"
    """Nothing on this machine makes it serve this call."""
    NEVER = "never"
    """The GPU excludes it, whatever is installed."""
    UNKNOWN = "unknown"


def standing(answer: Answer, facts: Facts) -> Standing:
    """The standing of one answer of a matrix about a machine."""
    if answer.wrong:
        return Standing.WRONG
    if answer.state is not Readiness.NOT_READY:
        return {
            Readiness.READY: Standing.READY,
            Readiness.SLOW: Standing.SLOW,
        }.get(answer.state, Standing.UNKNOWN)
    reasons = [one for one in answer.reasons if one.state is Readiness.NOT_READY]
    incurable = [one for one in reasons if not one.curable]
    if facts.gpus and any(map(_about_gpu, incurable)):
        return Standing.NEVER
    if incurable:
        return Standing.UNSUPPORTED
    return Standing.COMMAND if _one_command(reasons, facts) else Standing.NOT_READY


def _one_command(reasons: list[RequirementResult], facts: Facts) -> bool:
    """Whether one command, as `fix` would run it here, removes all reasons."""
    fixes = [possible_here(fix, facts) if (fix := remedy(one)) else None for one in reasons]
    changes = {(fix.run, tuple(fix.exports.items())) for fix in fixes if fix is not None}
    return None not in fixes and [len(run) + len(exports) for run, exports in changes] == [1]


def _about_gpu(reason: RequirementResult) -> bool:
    """The compute capability of the GPU decides it; a driver that fails does not count."""
    return any(line.fact == "driver.best_sm" and line.truth is False for line in reason.because)
