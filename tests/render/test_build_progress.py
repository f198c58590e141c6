"""The time that a build says is left, on a clock that the test sets."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from attn_doctor.kernels.builder.plan import Plan, PlannedBuild
from attn_doctor.kernels.builder.progress import Step
from attn_doctor.render.build_kernels.progress import Lines
from attn_doctor.render.terminal import Terminal


def kernel(key: str) -> PlannedBuild:
    spec: Any = SimpleNamespace()
    return PlannedBuild(spec=spec, device="cpu", key=key, state="new", seconds=10.0)


class Clock:
    """Kernels for the CPU that are each estimated at 10 s of building, one at a time.

    The first process of building needs 8 s more, and that of verifying, of 11.5 s, 7 s more.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, kernels: int, *, jobs: int = 1, imported: bool = True
    ) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.kernels = [kernel(str(number)) for number in range(kernels)]
        self.lines = Lines(Terminal())
        self.plan = Plan(kernels=tuple(self.kernels), cleared=(), jobs=jobs, limit="")
        self.lines.begin(self.plan)
        if imported:
            self.lines.imported(4.0)

    def left(self, after: float) -> float:
        self.now += after
        return self.lines.left()

    def step(self, number: int, phase: Any) -> None:
        entry: Any = SimpleNamespace(state="built") if phase == "done" else None
        # Only the times count here, not the line that would be printed.
        super(Lines, self.lines).step(Step(kernel=self.kernels[number], phase=phase, entry=entry))


def test_the_first_processes_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 3)
    assert clock.plan.seconds == pytest.approx(3 * (10 + 11.5) + 8 + 7)
    assert clock.left(0) == pytest.approx(clock.plan.seconds)
    clock.step(0, "build")
    assert clock.left(0) == pytest.approx(clock.plan.seconds)
    assert clock.left(5) == pytest.approx(clock.plan.seconds - 5)


def test_torch_that_is_slow_to_import_shows_a_slow_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch, 1, imported=False)
    clock.step(0, "build")
    rest = 10 + 11.5 + 7
    assert clock.left(3) == pytest.approx(8 + rest - 3)
    # It took 9 s so far and not 4: 14 of 9 with the 5 s before.
    assert clock.left(6) == pytest.approx((8 + rest) * 14 / 9 - 9)
    clock.lines.imported(11.5)
    assert clock.left(0) == pytest.approx((8 + rest) * 16.5 / 9 - 9)


def test_what_ended_corrects_what_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 3)
    clock.step(0, "build")
    clock.left(36)
    # The first process does what is done once: that it took 36 s and not 18 says nothing.
    clock.step(0, "verify")
    assert clock.left(0) == pytest.approx(2 * (10 + 11.5) + 11.5 + 7)
    clock.left(31)
    clock.step(0, "done")
    clock.step(1, "build")
    assert clock.left(0) == pytest.approx(2 * (10 + 11.5))
    clock.left(20)
    clock.step(1, "verify")
    # The second took 20 s and not 10: 65.5 of 55.5 with what came before.
    assert clock.left(0) == pytest.approx((11.5 + 10 + 11.5) * 65.5 / 55.5)


def test_processes_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 4, jobs=2)
    assert clock.left(0) == pytest.approx(2 * (10 + 11.5) + 8 + 7)


def test_a_late_process_does_not_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 1)
    clock.step(0, "build")
    # After 60 s for an estimate of 18, a part of that is added to its own time.
    assert clock.left(60) == pytest.approx(0.3 * 60 + 11.5 + 7)


def test_a_failure_says_nothing_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 2)
    clock.step(0, "build")
    clock.left(0.1)
    failed: Any = SimpleNamespace(state="failed")
    super(Lines, clock.lines).step(Step(kernel=clock.kernels[0], phase="done", entry=failed))
    assert clock.left(0) == pytest.approx(10 + 11.5 + 7)
