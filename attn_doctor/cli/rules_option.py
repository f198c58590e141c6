"""The option `--rules DIR`, and `$ATTN_DOCTOR_RULES` beside it: a team's own rules."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

Folders = Annotated[
    list[Path] | None,
    typer.Option(
        "--rules",
        metavar="DIR",
        help="Folder of rules of your own, beside ours; may be repeated. ATTN_DOCTOR_RULES, a list"
        " like PATH, names others.",
        show_default=False,
    ),
]


def rule_folders(given: list[Path] | None) -> tuple[Path, ...]:
    """The folders of the option, then those of the environment variable."""
    named = os.environ.get("ATTN_DOCTOR_RULES", "")
    return (*(given or ()), *(Path(one) for one in named.split(os.pathsep) if one))


def here() -> Path:
    """The working directory; the topmost folder where it has been removed under us."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path(os.sep)
