"""Progress of a live run: a bar on a terminal, plain lines elsewhere. All on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attn_doctor.backends.live.run import Step
from attn_doctor.render.backends.figures import millis
from attn_doctor.render.edge import raw
from attn_doctor.render.terminal import clean


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Callable[[Step], None]]:
    """Yield the function to call with each step."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        yield from _bar()
    else:
        yield _line


def _bar() -> Iterator[Callable[[Step], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=Console(file=raw(sys.stderr)), transient=True) as bar:
        task = bar.add_task("")

        def show(step: Step) -> None:
            line = ended(step)
            if line:
                bar.console.print(line, markup=False, highlight=False)
            bar.update(task, completed=step.done, total=step.total)
            if step.title:
                bar.update(task, description=clean(step.title))

        yield show


def _line(step: Step) -> None:
    line = ended(step)
    if line:
        sys.stderr.write(f"[{step.done}/{step.total}] {line}\n")
        sys.stderr.flush()


def ended(step: Step) -> str:
    """One line on the step that has just ended; empty if none has."""
    if step.imported is not None:
        one = step.imported
        words = one.version if one.verdict.works else one.sentence
        return clean(f"import {one.module}: {words} ({one.seconds:.1f} s)")
    if step.result is None:
        return ""
    parts = []
    for phase, outcome in step.result.outcomes.items():
        time = millis(outcome.figures[-1].milliseconds) if outcome.figures else ""
        parts.append(f"{phase} {outcome.verdict.value}" + (f", {time}" if time else ""))
    return clean(f"{step.result.title}: {'; '.join(parts)} ({step.result.seconds:.1f} s)")
