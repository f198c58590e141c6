"""Entries of kernels whose verification ended in each possible way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attn_doctor.kernels.builder.manifest_writer import memory_ran_out, succeeded, verified_entry
from attn_doctor.kernels.builder.plan import PlannedBuild
from attn_doctor.pool.task import Ending, Outcome, Task
from attn_doctor.record.spec import KernelSpec

SPEC = KernelSpec(heads=2, head_dim=64, lengths=(128,))
ITEM = PlannedBuild(spec=SPEC, device="cuda:0", key=f"{SPEC.id}@cuda:0 NVIDIA H200", state="new")


def outcome(result: dict[str, Any] | None = None, **more: Any) -> Outcome:
    task = Task(id=1, job={}, log=Path("/nowhere.log"), limit=60.0)
    return Outcome(task=task, seconds=1.0, result=result, **more)


def failed(type: str, message: str = "so it is") -> Outcome:
    return outcome({"ok": False, "failure": {"type": type, "message": message}})


@pytest.mark.parametrize(
    ("verified", "state", "message"),
    [
        (outcome({"ok": True}), "built", ""),
        (outcome({"ok": True, "unverified": True}), "unverified", ""),
        (failed("NotReused"), "not-reused", "so it is"),
        (failed("Wrong"), "failed", "so it is"),
        (failed("Unfused"), "failed", "so it is"),
        # It tells nothing of reuse that memory ran out or that the driver crashed.
        (failed("OutOfMemoryError"), "failed", "so it is"),
        (outcome(code=-11, ending=Ending.DIED), "failed", "the verification was killed by SIGSEGV"),
        (outcome(ending=Ending.TIMED_OUT), "failed", "the verification gave no result within 60 s"),
    ],
)
def test_what_is_recorded(verified: Outcome, state: str, message: str) -> None:
    entry = verified_entry(ITEM, {"files": {"a/b.cubin": 3}}, verified)
    assert (entry.state, entry.message) == (state, message)
    assert entry.device_slot == "cuda:0 NVIDIA H200"
    assert entry.build is not None
    assert entry.build.verified == succeeded(verified)
    # What did not hold can be cleared by what it left.
    assert entry.build.files == {"a/b.cubin": 3}


@pytest.mark.parametrize(
    ("verified", "ran_out"),
    [
        (failed("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2 GiB"), True),
        (failed("RuntimeError", "out of resource: shared memory, Required: 151552"), False),
        (outcome(code=-9, ending=Ending.DIED), True),
        (outcome(code=-9, ending=Ending.TIMED_OUT), False),
        (outcome(code=-11, ending=Ending.DIED), False),
        (outcome({"ok": True}), False),
    ],
)
def test_when_memory_ran_out(verified: Outcome, ran_out: bool) -> None:
    assert memory_ran_out(verified) == ran_out
