"""Options that the commands of `attn-doctor cache` share, and the caches that they select."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from attn_doctor.facts import Facts
    from attn_doctor.kernels.caches.survey import CacheLocation


class Kind(str, Enum):
    """Kinds of caches."""

    inductor = "inductor"
    triton = "triton"
    extensions = "extensions"
    jiterator = "jiterator"
    driver = "driver"
    cute = "cute"
    hub = "hub"


Kinds = Annotated[
    list[Kind] | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="Only this kind of cache; repeatable: inductor, triton, extensions, jiterator, driver,"
        " cute, hub.",
        show_default=False,
    ),
]
OneCache = Annotated[
    str,
    typer.Option(
        "--cache-dir",
        metavar="DIR",
        help="Only the cache in this folder. Default: every known cache.",
        show_default=False,
    ),
]


def examined(python: str) -> Facts:
    """Return the facts that entries are compared with."""
    from attn_doctor.cli.this_machine import this_machine
    from attn_doctor.examination import examine

    return examine(this_machine(), python)


def selected(
    kinds: Sequence[Kind] | None, cache_dir: str, *, hub: bool = True
) -> tuple[CacheLocation, ...]:
    """Return the selected caches. Raises a usage error for a folder that is not a cache.

    `hub`: include the downloads from the Hugging Face Hub also where nothing is selected.
    """
    from attn_doctor.host.local import LocalHost
    from attn_doctor.kernels.caches.contents import KINDS
    from attn_doctor.kernels.caches.survey import selected_locations

    wanted = {kind.value for kind in kinds or ()}
    found = selected_locations(LocalHost(), [kind for kind in KINDS if kind in wanted], cache_dir)
    if cache_dir and not found:
        raise typer.BadParameter(
            f"--cache-dir {cache_dir} {_why_not(cache_dir)} (`attn-doctor cache status` lists the"
            " known caches)"
        )
    if hub or kinds or cache_dir:
        return found
    return tuple(location for location in found if location.kind != Kind.hub.value)


def _why_not(path: str) -> str:
    """Say why a path is not a cache."""
    from attn_doctor.worker import reach

    if folder := reach.dead(path):
        return f"leads into {folder}, which does not answer"
    if not os.path.lexists(path):
        return "does not exist"
    if not os.path.isdir(path):
        return "is not a folder" if os.path.exists(path) else "is a link to a missing file"
    try:
        empty = not os.listdir(path)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if empty:
        return "is empty"
    return "is not recognised as a cache of compiled kernels, so it is left alone"


def agreed(question: str, size: int, *, text: bool) -> None:
    """Ask on a terminal; elsewhere --yes is required. Raises `typer.Exit` if the answer is no."""
    from attn_doctor.render.humanize import size as readable

    if not text or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise typer.BadParameter("not a terminal: preview with --dry-run, then pass --yes")
    sys.stderr.write(f"{question}, {readable(size)}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        sys.stderr.write("Nothing was changed.\n")
        raise typer.Exit(130)
