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
