"""Options that several commands share: one thing has one name, one short form and one help text."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from attn_doctor.cli.option import Option

Python = Annotated[
    str,
    Option(
        "--python",
        metavar="PATH",
        help="Interpreter or environment to examine. Default: the active environment, else the"
        " first one with torch in this directory, above it, or on PATH.",
        show_default=False,
    ),
]
Timeout = Annotated[
    float,
    Option(
        min=0.1,
        metavar="SECONDS",
        help="Longest time that the examination may take; on a loaded machine five times that.",
    ),
]
Snapshot = Annotated[
    str,
    Option(
        "--facts",
        metavar="FILE",
        help="Examine a snapshot (- for stdin) instead of this machine.",
        show_default=False,
    ),
]
Output = Annotated[
    str,
    Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to this file instead of standard output.",
        show_default=False,
    ),
]
CacheDir = Annotated[
    str,
    Option(
        "--cache-dir",
        metavar="DIR",
        help="Cache folder. Default: TORCHINDUCTOR_CACHE_DIR, else torch's own.",
        show_default=False,
    ),
]
Json = Annotated[bool, Option("--json", help="Short for --format json.")]
DryRun = Annotated[
    bool, Option("--dry-run", "-n", help="Show what would be done and change nothing.")
]
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")]


def _log_if_twice(count: int) -> int:
    """Enable the log for `-vv`."""
    if count > 1:
        from attn_doctor import log

        log.enable("debug")
    return count


_verbose = partial(
    Option,
    "--verbose",
    "-v",
    count=True,
    metavar="",
    show_default=False,
    callback=_log_if_twice,
)
Verbose = Annotated[int, _verbose(help="Show more; -vv also logs each step to standard error.")]
#: Of commands that have no more to show.
OnlyLog = Annotated[int, _verbose(help="-vv logs each step to standard error.")]
