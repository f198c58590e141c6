"""What `explain` finds in the log of a step that failed."""

from __future__ import annotations

from pathlib import Path

from attn_doctor.explain.engine import explanation, read
from attn_doctor.rulebook import library


def causes(log: Path) -> tuple[str, ...]:
    """The causes in `log`, the likeliest first, as `title [rule]`; none if it shows none."""
    if not log.is_file():
        return ()
    rules = library.load()
    found = explanation(read([str(log)], rules), rules, library.tables, None)
    return tuple(f"{one.title} [{one.rule}]" for one in found.matches[:3])
