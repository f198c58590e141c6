"""The option `--rules DIR`, and `$ATTN_DOCTOR_RULES` beside it: a team's own rules."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from attn_doctor.cli.option import Option

Folders = Annotated[
    list[Path] | None,
    Option(
        "--rules",
        metavar="DIR",
        help="Folder of your own rules, in addition to ours; can be repeated. ATTN_DOCTOR_RULES, a"
        " list like PATH, names more.",
        show_default=False,
    ),
]


def rule_folders(given: list[Path] | None) -> tuple[Path, ...]:
    """The folders of the option, then those of the environment variable."""
    more = os.environ.get("ATTN_DOCTOR_RULES", "").split(os.pathsep)
    return (*(given or ()), *(Path(path) for path in more if path))


def here() -> Path:
    """The working directory; the topmost folder if it has been removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path(os.sep)
