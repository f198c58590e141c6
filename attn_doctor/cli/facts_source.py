"""The facts that a command evaluates: of this machine or a snapshot, simulated parts applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

from attn_doctor.cli.option import Option

if TYPE_CHECKING:
    from attn_doctor.facts import Facts

Pretend = Annotated[
    list[str] | None,
    Option(
        "--pretend",
        metavar="KEY=VALUE,…",
        autocompletion="pretended",
        help="Evaluate another machine: gpu=rtx4090 (2xh100, mi300x, none), sm, memory, driver,"
        " torch, triton, python, os, arch, cc, env.NAME, or a package: flash-attn=2.8.3,"
        " xformers=absent.",
        show_default=False,
    ),
]


def examined(
    snapshot: str,
    python: str,
    timeout: float,
    pretended: Sequence[str] | None,
    prepare: Callable[[], None] | None = None,
) -> Facts:
    """The facts of a snapshot, or else of this machine and the interpreter at `python`.

    `prepare`: work that is needed afterwards.
    """
    if snapshot and python:
        import typer

        raise typer.BadParameter("--facts examines a snapshot: drop --python")
    from attn_doctor.cli.this_machine import this_machine
    from attn_doctor.examination import facts_of

    return facts_of(partial(this_machine, prepare), snapshot, python, pretended or (), timeout)
