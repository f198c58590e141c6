"""The time that a build says is left, on a clock that the test sets."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from attn_doctor.kernels.builder.plan import Plan, PlannedBuild
from attn_doctor.kernels.builder.progress import Step
from attn_doctor.render.build_kernels.progress import Lines
from attn_doctor.render.terminal import Terminal


def kernel(key: str) -> PlannedBuild:
    spec: Any = SimpleNamespace()
    return PlannedBuild(spec=spec, device="cpu", key=key, state="new", seconds=10.0)


class Clock:
    """Kernels that are each estimated at 10 s of building and 3 s of verifying, one at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kernels: int) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.kernels = [kernel(str(number)) for number in range(kernels)]
        self.lines = Lines(Terminal())
        plan = SimpleNamespace(todo=self.kernels, jobs=1, targets=(), seconds=1.0)
        self.lines.begin(cast("Plan", plan))

    def left(self, after: float) -> float:
        self.now += after
        return self.lines.left()

    def step(self, number: int, phase: Any) -> None:
        entry: Any = SimpleNamespace(state="built") if phase == "done" else None
        # Only the times count here, not the line that would be printed.
        super(Lines, self.lines).step(Step(kernel=self.kernels[number], phase=phase, entry=entry))


def test_what_ended_corrects_what_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 3)
    clock.step(0, "build")
    assert clock.left(0) == pytest.approx(39)
    assert clock.left(5) == pytest.approx(34)
    clock.left(15)
    clock.step(0, "verify")  # building took twice the estimate
    assert clock.left(0) == pytest.approx(78 - 20)
    clock.left(12)
    clock.step(0, "done")  # verifying took four times the estimate
    clock.step(1, "build")
    assert clock.left(0) == pytest.approx(2 * (20 + 12))


def test_a_late_process_does_not_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 1)
    clock.step(0, "build")
    assert clock.left(5) == pytest.approx(5 + 3)
    # After 30 s for an estimate of 10, a part of that is added to both phases.
    assert clock.left(25) == pytest.approx(0.3 * 30 + 3 * 30 / 10)


def test_a_failure_says_nothing_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 2)
    clock.step(0, "build")
    clock.left(0.1)
    failed: Any = SimpleNamespace(state="failed")
    super(Lines, clock.lines).step(Step(kernel=clock.kernels[0], phase="done", entry=failed))
    assert clock.left(0) == pytest.approx(13)
