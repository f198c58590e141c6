"""What the manifest records of a build and its proof, by how their processes ended.

It goes by what they answered; why one that could not answer died, only its last words tell.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from attn_doctor.kernels.builder.items import PlannedBuild
from attn_doctor.pool.task import Outcome
from attn_doctor.record.manifest import Build, Entry

#: What a failure says when memory, of the GPU or the machine, ran out. Not `out of resource:
#: shared memory`, which no waiting cures.
_MEMORY = ("CUDA out of memory", "OutOfMemoryError: CUDA", "out of memory", "MemoryError")
_NOT_MEMORY = ("out of resource", "shared memory")
_KILLED = 9
#: Characters of a log's last line that are shown.
_SHOWN = 200


def entry_of(item: PlannedBuild, built: Mapping[str, Any], proof: Outcome) -> Entry:
    """The entry of a spec that was built, after its proof."""
    result = proof.result or {}
    failure = result.get("failure") or {}
    ok = succeeded(proof)
    # Without a GPU nothing is computed that could be held against float64.
    shown = "unverified" if result.get("unverified") else "built"
    state = shown if ok else "not-reused" if failure.get("type") == "NotReused" else "failed"
    message = "" if ok else str(failure.get("message") or f"the proof {_death(proof)}")
    limits = [*built.get("limits", ()), *result.get("limits", ())]
    return Entry(
        spec=item.spec,
        device_slot=item.key.partition("@")[2],
        state=state,
        mask_source=str(built.get("mask_source") or ""),
        message=message,
        build=Build(
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            seconds=float(built.get("seconds", 0.0)),
            reuse_seconds=result.get("seconds"),
            errors={**built.get("errors", {}), **(result.get("errors") or {})},
            keys=dict(built.get("keys", {})),
            files={**built.get("files", {}), **(result.get("files") or {})},
            verified=ok,
            hits=_hits(result),
            limits=list(dict.fromkeys(limits)),
        ),
    )


def _hits(result: Mapping[str, Any]) -> dict[str, int]:
    """Counters of a proof, and how many compilers ran in it."""
    counted = dict(result.get("counters") or {})
    ran = result.get("compilers")
    return {**counted, "compilers": int(ran)} if ran is not None else counted


def failure_of(item: PlannedBuild, outcome: Outcome) -> Entry:
    """The entry of a spec that could not be built."""
    result = outcome.result or {}
    failure = result.get("failure") or {}
    message = str(failure.get("message") or "")
    if not message:
        message = _death(outcome)
    return Entry(
        spec=item.spec, device_slot=item.key.partition("@")[2], state="failed", message=message
    )


def _death(outcome: Outcome) -> str:
    """Why there is no answer, with the last that was printed."""
    if outcome.timed_out:
        return outcome.reason
    if outcome.signal == _KILLED:
        return f"{outcome.reason}, as the system does when memory runs out"
    try:
        printed = outcome.task.log.read_text("utf-8", "replace").strip()
    except OSError:
        printed = ""
    last = printed.rpartition("\n")[2][:_SHOWN]
    return f"{outcome.reason}: {last}" if last and not outcome.signal else outcome.reason


def succeeded(outcome: Outcome) -> bool:
    """The process answered, and all went well."""
    return bool(outcome.result and outcome.result.get("ok"))


def memory_ran_out(outcome: Outcome) -> bool:
    """It failed for want of memory, of the GPU or of the machine."""
    if outcome.result is None:
        return outcome.signal == _KILLED and not outcome.timed_out
    text = str((outcome.result.get("failure") or {}).get("message", ""))
    if any(words in text for words in _NOT_MEMORY):
        return False
    return any(words in text for words in _MEMORY)
