"""What the commands of `attn-doctor cache` have in common: which caches, held against what."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from attn_doctor.facts import Facts
    from attn_doctor.kernels.caches.survey import Place


class Kind(str, Enum):
    """Kinds of caches."""

    inductor = "inductor"
    triton = "triton"
    extensions = "extensions"
    jiterator = "jiterator"
    driver = "driver"
    cute = "cute"
    hub = "hub"


Python = Annotated[
    str,
    typer.Option(
        metavar="PATH",
        help="Interpreter or environment that entries are held against, as in check.",
    ),
]
Kinds = Annotated[
    list[Kind] | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="Only this kind, may be given again: inductor, triton, extensions, jiterator, driver,"
        " cute, hub.",
        show_default=False,
    ),
]
Where = Annotated[
    str,
    typer.Argument(metavar="[PATH]", help="Only the cache in this folder.", show_default=False),
]


def examined(python: str) -> Facts:
    """The facts that entries are held against."""
    from attn_doctor.diagnosis import examine
    from attn_doctor.host.local import LocalHost

    return examine(LocalHost(), python)


def places(kinds: Sequence[Kind] | None, path: str) -> tuple[Place, ...]:
    """The caches that were asked for. Raises a usage error for a folder that is none."""
    from attn_doctor.host.local import LocalHost
    from attn_doctor.kernels.caches.survey import chosen

    found = chosen(LocalHost(), [kind.value for kind in kinds or ()], path)
    if path and not found:
        raise typer.BadParameter(
            f"{path} {_why_not(path)} (`attn-doctor cache status` lists the caches that are known)"
        )
    return found


def _why_not(path: str) -> str:
    """Why a path is no cache, as far as can be said of it."""
    if not os.path.lexists(path):
        return "does not exist"
    if not os.path.isdir(path):
        return "is not a folder" if os.path.exists(path) else "is a link that leads nowhere"
    try:
        empty = not os.listdir(path)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if empty:
        return "is empty, so there is nothing to look at"
    return "is not recognised as a cache of compiled kernels, so it is left alone"
