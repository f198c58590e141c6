"""Options that several commands share: one thing has one name, one short form and one help text."""

from __future__ import annotations

from typing import Annotated

import typer

Python = Annotated[
    str,
    typer.Option(
        "--python",
        metavar="PATH",
        help="Interpreter or environment to examine. Default: the active environment.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Short for --format json.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", "-n", help="Show what would be done and change nothing.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def _log_if_twice(count: int) -> int:
    """Enable the log for `-vv`."""
    if count > 1:
        from attn_doctor import log

        log.enable("debug")
    return count


Verbose = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        callback=_log_if_twice,
        help="Show more; -vv also logs each step to standard error.",
    ),
]
