"""The progress of a build while it runs: a bar on a terminal, plain lines elsewhere.

All of it goes to standard error, so that standard output holds the result alone.
"""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from attn_doctor.kernels.builder.plan import IMPORT_SECONDS, Phase, Plan, PlannedBuild
from attn_doctor.kernels.builder.progress import Step, Watcher
from attn_doctor.record.lock import Owner
from attn_doctor.render.build_kernels.idle_clock import IdleClock
from attn_doctor.render.build_kernels.off_gpu import names
from attn_doctor.render.build_kernels.text import said
from attn_doctor.render.edge import raw
from attn_doctor.render.grouping import plural
from attn_doctor.render.humanize import remaining, span
from attn_doctor.render.terminal import Terminal, clean

if TYPE_CHECKING:
    from rich.progress import Progress

#: A process that takes longer than estimated needs about this share of its time again.
_LATE = 0.1
#: Seconds that went as estimated, counted beside those that were seen: one process says little.
_PRIOR = 5.0
#: Modules that are loaded when torch and its compiler are imported. Seen: 2,529 with torch 2.13.
_MODULES = 2500
#: Modules that count as loaded at the usual speed, beside those that were seen.
_PRIOR_MODULES = 150
_GOOD = ("built", "unverified")
#: Seconds between two plain lines that say who holds the lock.
_REMIND = 30.0


class _Running(NamedTuple):
    """A process of a kernel."""

    phase: Phase
    begun: float
    """By the idle clock."""
    estimate: float
    """Seconds that it was estimated to take."""


class _Times(Watcher):
    """How much is done and how long the rest will take.

    Estimates are seconds of an idle machine. What ended shows how fast this machine is, and the
    clock how much of it other programs take now.
    """

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.done = 0
        self.running: dict[str, _Running] = {}
        self._left: dict[str, PlannedBuild] = {}
        #: When torch began to be imported, by the idle clock; None if unknown, and afterwards.
        self._importing: float | None = None
        #: How many modules are loaded while torch is imported; 0 if unknown.
        self._modules = 0
        #: Seconds by the idle clock, and estimated seconds, of what has ended: torch's import, and
        #: each process.
        self._known: list[tuple[float, float]] = []
        self._begun: set[Phase] = set()
        self._ended: set[Phase] = set()
        self._said = 0.0
        self._clock = IdleClock()

    def begin(self, plan: Plan) -> None:
        self.plan, self.done = plan, 0
        if not self._known:
            self._importing = self._clock.now()
        self._left = {item.key: item for item in plan.todo}

    def importing(self, modules: int) -> None:
        self._modules = max(self._modules, modules)

    def imported(self, seconds: float) -> None:
        now = self._clock.now()
        begun, self._importing = self._importing, None
        self._known.append(_as_shown(seconds if begun is None else max(now - begun, 0.0)))
        # Processes wait for the import.
        self.running = {key: one._replace(begun=now) for key, one in self.running.items()}

    def step(self, step: Step) -> None:
        kernel, now = step.kernel, self._clock.now()
        before = self.running.pop(kernel.key, None)
        failed = step.entry is not None and step.entry.state not in _GOOD
        if before is not None:
            self._ended.add(before.phase)
            if not failed:
                # What processes took corrects what is estimated of the others.
                self._known.append((now - before.begun, before.estimate))
        if step.phase == "done":
            self.done += 1
            self._left.pop(kernel.key, None)
        elif step.phase in ("build", "verify"):
            phase: Phase = step.phase
            first = phase not in self._ended
            self._begun.add(phase)
            once = kernel.first_seconds(phase) if first else 0.0
            estimate = kernel.process_seconds(phase) + once
            self.running[kernel.key] = _Running(phase, now, estimate)

    def left(self) -> float:
        """Seconds until all is done, roughly."""
        if self.plan is None or not self._left:
            return 0.0
        now = self._clock.now()
        scale = self._scale(now)
        each = [self._of(kernel, scale, now) for kernel in self._left.values()]
        coming = [phase for phase in self.plan.phases if phase not in self._begun]
        first = sum(
            max(one.first_seconds(phase) for one in self._left.values()) for phase in coming
        )
        idle = first * scale + max(*each, sum(each) / self.plan.jobs)
        return (self._import_left(now) + idle) * self._clock.slowdown()

    def total(self) -> int:
        return len(self.plan.todo) if self.plan else 0

    def _of(self, kernel: PlannedBuild, scale: float, now: float) -> float:
        """Seconds until a kernel is done, while nothing else runs."""
        phases = self.plan.phases_of(kernel) if self.plan else ()
        running = self.running.get(kernel.key)
        if running is None:
            return scale * sum(map(kernel.process_seconds, phases))
        late = now - running.begun if self._importing is None else 0.0
        after = [phase for phase in phases if phase == "verify" != running.phase]
        rest = max(running.estimate * scale - late, _LATE * late)
        return rest + scale * sum(map(kernel.process_seconds, after))

    def _scale(self, now: float) -> float:
        """How many times as long as estimated processes take; late ones count too."""
        known = list(self._known)
        if self._importing is None:
            begun = ((now - one.begun, one.estimate) for one in self.running.values())
            known += [(took, estimated) for took, estimated in begun if took > estimated]
        else:
            known.append(_as_shown(self._imported_for(now) + self._import_left(now)))
        took, estimated = map(sum, zip(*known, (_PRIOR, _PRIOR), strict=True))
        return took / estimated

    def _imported_for(self, now: float) -> float:
        """Seconds since torch began to be imported."""
        # The clock may go back by less than a second when it looks again.
        return 0.0 if self._importing is None else max(now - self._importing, 0.0)

    def _import_left(self, now: float) -> float:
        """Seconds until torch is imported, while nothing else runs."""
        if self._importing is None:
            return 0.0
        took = self._imported_for(now)
        if not self._modules:
            return max(IMPORT_SECONDS - took, _LATE * took)
        usual = IMPORT_SECONDS * _PRIOR_MODULES / _MODULES
        each = (took + usual) / (self._modules + _PRIOR_MODULES)
        return each * max(_MODULES - self._modules, _LATE * self._modules)


def _as_shown(seconds: float) -> tuple[float, float]:
    """Seconds of torch's import as far as they show how fast the machine is, and those estimated.

    A first import also reads the libraries from the disk, and may compile Python's bytecode: it
    counts half, and as far as its root says.
    """
    return math.sqrt(seconds * IMPORT_SECONDS) / 2, IMPORT_SECONDS / 2


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
        from rich.progress import (
            BarColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        console = Console(file=raw(sys.stderr), no_color=not self._terminal.colour, highlight=False)
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
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
            shown = clean(names(plan.targets)) if plan.targets else ""
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
            shown = f"{self.done}/{self.total()}  {remaining(self.left())}"
            phase = "building" if self._importing is None else "starting torch"
            self._bar.update(self._task, description=phase, completed=self.done, shown=shown)


def holder(owner: Owner | None) -> str:
    """Who holds the lock, as a sentence."""
    if owner is None:
        return "another builder holds the lock of this cache"
    return (
        f"another builder (process {owner.pid} on {owner.host}, since {owner.since}) holds the lock"
        " of this cache"
    )
