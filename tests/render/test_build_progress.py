"""The time that a build says is left, on a clock that the test sets."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from attn_doctor.kernels.builder.plan import Plan, PlannedBuild
from attn_doctor.kernels.builder.progress import Step
from attn_doctor.render.build_kernels import idle_clock
from attn_doctor.render.build_kernels.progress import Lines
from attn_doctor.render.terminal import Terminal


def kernel(key: str) -> PlannedBuild:
    spec: Any = SimpleNamespace()
    return PlannedBuild(spec=spec, device="cpu", key=key, state="stale", seconds=10.0)


class Clock:
    """Kernels for the CPU that are each estimated at 10 s of building, one at a time.

    The first process of building needs 12 s more, that of verifying, of 4 s, half a second more.
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
            self.now += 4
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
    assert clock.plan.seconds == pytest.approx(3 * (10 + 4) + 12 + 0.5)
    assert clock.left(0) == pytest.approx(clock.plan.seconds)
    clock.step(0, "build")
    assert clock.left(0) == pytest.approx(clock.plan.seconds)
    assert clock.left(5) == pytest.approx(clock.plan.seconds - 5)


def test_torch_that_is_slow_to_import_shows_a_slow_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch, 1, imported=False)
    clock.step(0, "build")
    whole = 12 + 10 + 4 + 0.5
    assert clock.left(3) == pytest.approx(whole - 3)
    # It took 9 s so far and not 4, which counts as 6 s: 11 of 9 with the 5 s before.
    assert clock.left(6) == pytest.approx(whole * 11 / 9 - 9)
    clock.lines.imported(9.0)
    assert clock.left(0) == pytest.approx(whole * 11 / 9 - 9)


def test_a_clock_that_goes_back_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 1, imported=False)
    clock.step(0, "build")
    assert clock.left(-0.2) == pytest.approx(12 + 10 + 4 + 0.5 + 0.2)
    clock.lines.imported(4.0)
    assert clock.left(0) > 0


def test_what_ended_corrects_what_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 3)
    clock.step(0, "build")
    clock.left(44)
    clock.step(0, "verify")
    # It took 44 s and not 22: 53 of 31 with torch's import and the 5 s before.
    assert clock.left(0) == pytest.approx((2 * (10 + 4) + 4 + 0.5) * 53 / 31)
    clock.left(4.5)
    clock.step(0, "done")
    clock.step(1, "build")
    assert clock.left(0) == pytest.approx(2 * (10 + 4) * 57.5 / 35.5)


def test_processes_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 4, jobs=2)
    assert clock.left(0) == pytest.approx(2 * (10 + 4) + 12 + 0.5)


def test_a_late_process_does_not_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 1)
    clock.step(0, "build")
    # After 60 s for an estimate of 22, a part of that is added to its own time; 69 of 31 say that
    # the machine is slow.
    assert clock.left(60) == pytest.approx(0.1 * 60 + (4 + 0.5) * 69 / 31)


def test_a_failure_says_nothing_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 2)
    clock.step(0, "build")
    clock.left(0.1)
    failed: Any = SimpleNamespace(state="failed")
    super(Lines, clock.lines).step(Step(kernel=clock.kernels[0], phase="done", entry=failed))
    assert clock.left(0) == pytest.approx(10 + 4 + 0.5)


def test_a_busy_machine_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_clock, "_processors", lambda: 2)
    seconds = {"1": (0.0, 0.0)}
    monkeypatch.setattr(idle_clock, "_threads", lambda _: seconds.items())
    clock = Clock(monkeypatch, 2)
    clock.step(0, "build")
    clock.left(0)
    # In 24 s, the processes ran for 6, and waited for a processor otherwise.
    seconds["1"] = (6.0, 18.0)
    left = clock.left(24)
    idle = 12 + 2 * (10 + 4) + 0.5 - 6
    assert left == pytest.approx(idle * (24 + 1) / (6 + 1))


def test_processes_that_wait_for_each_other_have_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(idle_clock, "_processors", lambda: 2)
    seconds = {"1": (0.0, 0.0)}
    monkeypatch.setattr(idle_clock, "_threads", lambda _: seconds.items())
    clock = Clock(monkeypatch, 1)
    clock.step(0, "build")
    clock.left(0)
    # In 10 s, three threads ran on both processors.
    seconds["1"] = (20.0, 10.0)
    assert clock.left(10) == pytest.approx(12 + (10 + 4) + 0.5 - 10)
