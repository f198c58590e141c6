"""`cache restore` and `cache empty-trash` as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attn_doctor.render.grouping import plural
from attn_doctor.render.humanize import size
from attn_doctor.render.json_text import result
from attn_doctor.render.terminal import Terminal, clean

if TYPE_CHECKING:
    from attn_doctor.kernels.caches.removal import Removed
    from attn_doctor.kernels.caches.trash import Restored, Trashed


def trash_text(found: Sequence[Trashed], terminal: Terminal) -> str:
    """What the trash holds, the newest first."""
    if not found:
        return terminal.page(["The trash is empty."])
    lines: list[str] = []
    for one in sorted(found, key=lambda each: each.id, reverse=True):
        count = f"{plural(len(one.sizes), 'file')}, {size(one.bytes)}"
        lines += terminal.wrap(
            f"{one.id}: {count} of the cache {one.clearing.kind} {clean(one.root)}", 2
        )
    return terminal.page(lines)


def restored_text(done: Sequence[Restored], terminal: Terminal) -> str:
    """What came back, and what stays in the trash."""
    if not done:
        return terminal.page(["The trash is empty."])
    lines: list[str] = []
    for emptied in done:
        what = f"{plural(len(emptied.files), 'file')}, {size(emptied.bytes)}"
        cache = f"{emptied.trashed.clearing.kind} {clean(emptied.trashed.root)}"
        lines += terminal.wrap(f"{cache}: {what} restored", 0)
        lines += kept_lines(emptied.kept, "stays in the trash", terminal)
    return terminal.page(lines)


def emptied_text(found: Sequence[Trashed], done: Sequence[Removed], terminal: Terminal) -> str:
    """How much was freed, and what could not be deleted."""
    count, freed = sum(len(one.files) for one in done), sum(one.bytes for one in done)
    lines = [f"{plural(count, 'file')} deleted, {size(freed)} freed"] if found else []
    for emptied in done:
        lines += kept_lines(emptied.kept, "kept", terminal)
    return terminal.page(lines) if lines else ""


def kept_lines(kept: dict[str, str], word: str, terminal: Terminal) -> list[str]:
    """The files that were not moved or deleted, by reason, each reason with one of them."""
    lines: list[str] = []
    for why, number in Counter(kept.values()).most_common():
        first = next(path for path, each in kept.items() if each == why)
        more = f" and {number - 1} more" if number > 1 else ""
        text = terminal.wrap(clean(f"{word}: {first}{more}: {why}"), 2)
        lines += [terminal.style(line, "yellow") for line in text]
    return lines


def trash_json(found: Sequence[Trashed], done: Sequence[Restored | Removed], code: int) -> str:
    """What the trash holds, or held, and what was done with it."""
    data = [
        {
            "clearing": one.id,
            "at": one.clearing.at,
            "kind": one.clearing.kind,
            "path": one.root,
            "bytes": one.bytes,
            "files": sorted(one.sizes),
            "done": None if not done else sorted(done[number].files),
            "kept": None if not done else done[number].kept,
        }
        for number, one in enumerate(found)
    ]
    return result(exit_code=code, applied=bool(done), trash=data)
