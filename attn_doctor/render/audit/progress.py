"""Progress of an audit: a bar on a terminal, plain lines elsewhere. All on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attn_doctor.backends.audit.run import Step
from attn_doctor.render.edge import raw
from attn_doctor.render.terminal import clean


@contextmanager
def progress() -> Iterator[Callable[[Step], None]]:
    """Yield the function to call with each step."""
    if sys.stderr.isatty():
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
            if step.fault is not None:
                bar.console.print(_found(step), markup=False, highlight=False)
            bar.update(task, completed=step.done, total=step.total or 1)
            bar.update(task, description=clean(step.title))

        yield show


def _line(step: Step) -> None:
    words = _found(step) if step.fault is not None else clean(step.title)
    sys.stderr.write(f"[{step.done}/{step.total}] {words}\n")
    sys.stderr.flush()


def _found(step: Step) -> str:
    sentence = step.fault.sentence if step.fault is not None else ""
    return clean(f"{step.backend}: {sentence}")
