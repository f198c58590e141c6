"""Progress of runs that take minutes: a bar on a terminal, plain lines elsewhere.

All on standard error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from attn_doctor.render.edge import raw
from attn_doctor.render.humanize import remaining
from attn_doctor.render.terminal import clean


class Step(Protocol):
    """One step of a run."""

    @property
    def done(self) -> int:
        """Steps that have ended."""

    @property
    def total(self) -> int:
        """Steps known so far."""

    @property
    def title(self) -> str:
        """What is being done; empty if the title stays."""


S = TypeVar("S", bound=Step)


@contextmanager
def progress(
    event: Callable[[S], str],
    line: Callable[[S], str],
    *,
    left: Callable[[S], float | None] = lambda _: None,
    quiet: bool = False,
) -> Iterator[Callable[[S], None]]:
    """Yield the function to call with each step.

    `event` gives the line that stays above the bar, `line` the one that is written where no bar can
    be. An empty one is left out. `left` gives the seconds until the end, where they are known.
    """
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        yield from _bar(event, left)
    else:
        yield lambda step: _write(step, line(step), left(step))


def _bar(
    event: Callable[[S], str], left: Callable[[S], float | None]
) -> Iterator[Callable[[S], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text

    class Left(ProgressColumn):
        """The time that is left, which runs on between two steps."""

        def render(self, task: Task) -> Text:
            return Text(_about(task.fields["end"] - time.monotonic()))

    columns = (
        BarColumn(24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        Left(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=Console(file=raw(sys.stderr)), transient=True) as bar:
        task = bar.add_task("", end=0.0)

        def show(step: S) -> None:
            end = time.monotonic() + (left(step) or 0.0)
            if words := event(step):
                bar.console.print(words, markup=False, highlight=False)
            bar.update(task, completed=step.done, total=step.total or 1, end=end)
            if step.title:
                bar.update(task, description=clean(step.title))

        yield show


def _write(step: Step, words: str, left: float | None) -> None:
    if words:
        said = ", ".join(filter(None, (words, _about(left or 0.0))))
        sys.stderr.write(f"[{step.done}/{step.total}] {said}\n")
        sys.stderr.flush()


def _about(seconds: float) -> str:
    """`about 40 s left`; empty where the time has run out."""
    return remaining(seconds) if seconds >= 1 else ""
