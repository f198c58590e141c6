"""The progress of a build while it runs: a bar on a terminal, plain lines elsewhere.

All of it goes to standard error, so that standard output holds the result alone.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from attn_doctor.kernels.builder.plan import Plan, PlannedBuild
from attn_doctor.kernels.builder.progress import Step, Watcher
from attn_doctor.record.lock import Owner
from attn_doctor.render.build_kernels.off_gpu import names
from attn_doctor.render.build_kernels.text import said, span
from attn_doctor.render.edge import raw
from attn_doctor.render.grouping import plural
from attn_doctor.render.terminal import Terminal, clean

if TYPE_CHECKING:
    from rich.progress import Progress

#: A verification takes about this share of the time of building.
_VERIFICATION = 0.3
#: A process that takes longer than estimated needs about this share of its time again.
_LATE = 0.3
_GOOD = ("built", "unverified")
#: Seconds between two plain lines that say who holds the lock.
_REMIND = 30.0


class _Times(Watcher):
    """How much is done and how long the rest will take."""

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.done = 0
        self.running: dict[str, tuple[Step, float]] = {}
        self._left: dict[str, PlannedBuild] = {}
        #: Phase, seconds and estimated seconds of each process that ended.
        self._known: list[tuple[str, float, float]] = []
        self._said = 0.0

    def begin(self, plan: Plan) -> None:
        self.plan, self.done = plan, 0
        self._known = []
        self._left = {item.key: item for item in plan.todo}

    def step(self, step: Step) -> None:
        item, now = step.kernel, time.monotonic()
        before = self.running.pop(item.key, None)
        failed = step.entry is not None and step.entry.state not in _GOOD
        if before is not None and not failed:
            # What processes took corrects what is estimated of the others.
            self._known.append((before[0].phase, now - before[1], _estimate(before[0])))
        if step.phase == "done":
            self.done += 1
            self._left.pop(item.key, None)
        else:
            self.running[item.key] = (step, now)

    def left(self) -> float:
        """Seconds until all is done, roughly."""
        now, rest, longest = time.monotonic(), 0.0, 0.0
        build, verify = self._scale("build", now), self._scale("verify", now)
        for kernel in self._left.values():
            seconds = kernel.seconds * build
            after = kernel.seconds * _VERIFICATION * verify
            if kernel.key in self.running:
                step, begun = self.running[kernel.key]
                if step.phase == "verify":
                    seconds, after = after, 0.0
                seconds = max(seconds - (now - begun), _LATE * (now - begun))
            seconds += after
            rest += seconds
            longest = max(longest, seconds)
        jobs = self.plan.jobs if self.plan else 1
        return max(longest, rest / jobs)

    def total(self) -> int:
        return len(self.plan.todo) if self.plan else 0

    def _scale(self, phase: str, now: float) -> float:
        """How many times as long as estimated processes of a phase take; late ones count too.

        Until one of the phase has ended, those of the other phase count.
        """
        late = [
            (step.phase, now - begun, estimate)
            for step, begun in self.running.values()
            if now - begun > (estimate := _estimate(step))
        ]
        known = [*self._known, *late]
        found = [one for one in known if one[0] == phase] or known
        estimated = sum(estimate for _, _, estimate in found)
        return sum(took for _, took, _ in found) / estimated if estimated else 1.0


def _estimate(step: Step) -> float:
    """Seconds that the process of a step was estimated to take."""
    return step.kernel.seconds * (_VERIFICATION if step.phase == "verify" else 1.0)


class Lines(_Times):
    """A line for each spec that is finished."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal = terminal

    def waiting(self, owner: Owner | None) -> None:
        """Say so now and then."""
        if time.monotonic() - self._said > _REMIND:
            self._said = time.monotonic()
            self._say(f"waiting: {holder(owner)}")

    def begin(self, plan: Plan) -> None:
        """Say how much there is to do."""
        super().begin(plan)
        todo = plural(len(plan.todo), "kernel")
        todo += f" for {names(plan.targets)}" if plan.targets else ""
        self._say(f"building {todo}, {plan.jobs} at once, about {span(plan.seconds)}")

    def step(self, step: Step) -> None:
        """Say what is finished."""
        super().step(step)
        if step.phase == "done":
            state = step.entry.state if step.entry is not None else "failed"
            width = len(str(self.total()))
            line = said(step.kernel, step.entry, state)
            self._say(f"[{self.done:>{width}}/{self.total()}] {line}")

    def _say(self, line: str) -> None:
        sys.stderr.write(self._terminal.glyphs(clean(line)) + "\n")
        sys.stderr.flush()


class Bar(_Times):
    """A bar with the time left, and below it what is compiling now."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal = terminal
        self._bar: Progress | None = None
        self._task: Any = None
        self._rows: dict[str, Any] = {}

    def __enter__(self) -> Bar:  # noqa: PYI034 (Self is newer than Python 3.10)
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        console = Console(file=raw(sys.stderr), no_color=not self._terminal.colour, highlight=False)
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[shown]}", markup=False),
            console=console,
            transient=True,
        )
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def waiting(self, owner: Owner | None) -> None:
        """Show whom we wait for."""
        if self._bar is not None:
            if self._task is None:
                self._task = self._bar.add_task("waiting", total=None, shown="")
            self._bar.update(self._task, shown=clean(holder(owner)))

    def begin(self, plan: Plan) -> None:
        """Show an empty bar."""
        super().begin(plan)
        if self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            shown = clean(f"for {names(plan.targets)}") if plan.targets else ""
            self._task = self._bar.add_task("starting torch", total=len(plan.todo), shown=shown)

    def step(self, step: Step) -> None:
        """Show what is at work now; a failure stays on the screen."""
        super().step(step)
        bar = self._bar
        if bar is None:
            return
        row = self._rows.pop(step.kernel.key, None)
        if row is not None:
            bar.remove_task(row)
        if step.phase != "done":
            word = {"build": "  compiling", "verify": "  verifying"}[step.phase]
            shown = clean(step.kernel.spec.title)
            self._rows[step.kernel.key] = bar.add_task(word, total=None, shown=shown)
        elif step.entry is not None and step.entry.state not in _GOOD:
            bar.console.print(
                self._terminal.glyphs(
                    clean("✗ " + said(step.kernel, step.entry, step.entry.state))
                ),
                markup=False,
            )

    def tick(self) -> None:
        """Show the time left."""
        if self._bar is not None and self._task is not None and self.plan is not None:
            shown = f"{self.done}/{self.total()}  about {span(self.left())} left"
            self._bar.update(self._task, description="building", completed=self.done, shown=shown)


def holder(owner: Owner | None) -> str:
    """Who holds the lock, as a sentence."""
    if owner is None:
        return "another builder holds the lock of this cache"
    return (
        f"another builder (process {owner.pid} on {owner.host}, since {owner.since}) holds the lock"
        " of this cache"
    )
