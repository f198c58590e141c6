"""The facts that a command evaluates: of this machine or a snapshot, simulated parts applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from attn_doctor.cli.option import Option

if TYPE_CHECKING:
    from attn_doctor.facts import Facts

Pretend = Annotated[
    list[str] | None,
    Option(
        "--pretend",
        metavar="KEY=VALUE,…",
        help="Evaluate another machine: gpu=rtx4090 (2xh100, mi300x, none), sm, memory, driver,"
        " torch, triton, python, os, arch, cc, env.NAME, or a package: flash-attn=2.8.3,"
        " xformers=absent.",
        show_default=False,
    ),
]


def examined(snapshot: str, python: str, timeout: float, pretended: Sequence[str] | None) -> Facts:
    """The facts of a snapshot, or else of this machine and the interpreter at `python`."""
    from attn_doctor.diagnosis import derive

    if snapshot and python:
        import typer

        raise typer.BadParameter("--facts examines a snapshot: drop --python")
    if snapshot:
        from attn_doctor.snapshot import load

        facts = load(snapshot)
        if not pretended:
            return derive(facts)
    else:
        from attn_doctor.cli.this_machine import this_machine
        from attn_doctor.diagnosis import examine

        facts = examine(this_machine(), python, timeout)
        if not pretended:
            return facts
    from attn_doctor.pretend import pretend
    from attn_doctor.rulebook import library

    return derive(pretend(facts, pretended, library.tables()))
