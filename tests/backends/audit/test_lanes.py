"""How many lanes an audit has, and that they run at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast

import pytest

from attn_doctor.backends.audit.lanes import Lane, count, side_by_side
from attn_doctor.facts import Facts, Gpu, System


@pytest.mark.parametrize(
    ("device", "cpus", "memory", "gpu_memory", "mode", "expected"),
    [
        ("cuda:0", 16, 100_000, 80_000, "default", 12),
        ("cuda:0", 8, 100_000, 80_000, "default", 6),
        ("cuda:0", 16, 13_000, 80_000, "default", 2),
        ("cuda:0", 16, 100_000, 12_288, "default", 3),
        ("cuda:0", 1, 2_048, 80_000, "default", 1),
        ("cuda:0", 16, 100_000, 80_000, "exclusive process", 1),
        ("cpu", 16, 100_000, 80_000, "default", 1),
    ],
)
def test_how_many(
    device: str, cpus: int, memory: int, gpu_memory: int, mode: str, expected: int
) -> None:
    gpu = Gpu(index=0, compute_mode=mode, memory_total_mib=gpu_memory)
    facts = Facts(system=System(cpus=cpus), gpus=(gpu,))
    assert count(facts, device, memory) == expected


def ran(number: int, work: Callable[[Lane], None]) -> None:
    side_by_side(cast("list[Lane]", list(range(number))), work)


def test_lanes_run_at_once() -> None:
    meeting = threading.Barrier(3, timeout=20)
    ran(3, lambda _: cast("None", meeting.wait()))
    assert not meeting.broken


def test_an_error_of_a_lane_ends_the_audit() -> None:
    def work(lane: Lane) -> None:
        if lane:
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        ran(2, work)
