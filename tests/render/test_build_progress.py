"""The time that a build says is left, on a clock that the test sets."""

from __future__ import annotations

import math
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
    Importing torch is estimated at 4 s.
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
    rest = 3 * (10 + 4) + 12 + 0.5
    assert clock.plan.seconds == pytest.approx(4 + rest)
    assert clock.left(0) == pytest.approx(rest)
    clock.step(0, "build")
    assert clock.left(0) == pytest.approx(rest)
    assert clock.left(5) == pytest.approx(rest - 5)


def test_torch_that_is_slow_to_import_shows_a_slow_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch, 1, imported=False)
    clock.step(0, "build")
    rest = 12 + 10 + 4 + 0.5
    assert clock.left(3) == pytest.approx(1 + rest)
    clock.left(6)
    clock.lines.imported(9.0)
    # It took 9 s and not 4, which counts as 3 s of 2: 8 of 7 with the 5 s before.
    assert clock.left(0) == pytest.approx(rest * 8 / 7)
    assert clock.left(7) == pytest.approx(rest * 8 / 7 - 7)


def test_modules_show_how_far_the_import_of_torch_is(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 1, imported=False)
    clock.step(0, "build")
    rest = 12 + 10 + 4 + 0.5
    clock.lines.importing(1250)
    # Half of 2,500 modules in 16 s, and 150 in the 0.24 s that they usually take.
    half = 1250 * (16 + 0.24) / 1400
    # An import of 16 s and a half more counts as half of the root of it by 4 s.
    scale = (math.sqrt((16 + half) * 4) / 2 + 5) / 7
    assert clock.left(16) == pytest.approx(half + rest * scale)
    clock.lines.importing(2600)
    assert 0 < clock.left(0) - rest < half, "more modules than usual: soon done"


def test_a_clock_that_goes_back_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 1, imported=False)
    clock.step(0, "build")
    assert clock.left(-0.2) == pytest.approx(4 + 12 + 10 + 4 + 0.5)
    clock.lines.imported(4.0)
    assert clock.left(0) > 0


def test_what_ended_corrects_what_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 3)
    clock.step(0, "build")
    clock.left(44)
    clock.step(0, "verify")
    # It took 44 s and not 22: 51 of 29 with half of torch's import and the 5 s before.
    assert clock.left(0) == pytest.approx((2 * (10 + 4) + 4 + 0.5) * 51 / 29)
    clock.left(4.5)
    clock.step(0, "done")
    clock.step(1, "build")
    assert clock.left(0) == pytest.approx(2 * (10 + 4) * 55.5 / 33.5)


def test_processes_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 4, jobs=2)
    assert clock.left(0) == pytest.approx(2 * (10 + 4) + 12 + 0.5)


def test_a_late_process_does_not_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 1)
    clock.step(0, "build")
    # After 60 s for an estimate of 22, a part of that is added to its own time; 67 of 29 say that
    # the machine is slow.
    assert clock.left(60) == pytest.approx(0.1 * 60 + (4 + 0.5) * 67 / 29)


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
