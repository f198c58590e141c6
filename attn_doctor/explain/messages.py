"""The index of messages that released attention software can print, `rules/messages.tsv`.

`tools/mine_messages.py` makes it from the sources. It is read only for a failure that no rule
knows: one pass over some thousand lines, in a few milliseconds.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import NamedTuple

from attn_doctor.files import DATA, read_bytes
from attn_doctor.rulebook import library

#: Plain text that a message must share with an entry, in all and in one piece.
_LEAST, _PIECE = 24, 14
#: The same where the message names the file of the entry.
_LEAST_THERE, _PIECE_THERE = 12, 8
#: Plain text with which an entry alone names its component.
_ENOUGH = 34
#: The end of a message that a person leaves out.
_FULL_STOP = " .!"
#: Messages of Python, of torch and of any build, which say nothing of a component.
_GENERAL = re.compile(
    r"unexpected keyword argument|positional argument|has no attribute|No module named|CUDA_HOME"
    r"|[Ii]nvalid value|not implemented|got multiple values for"
    r"|Expected all tensors to be on the same device"
)


#: The condition of a check that always fails, where a macro excluded a kernel.
_NO_CONDITION = ("not (false)", "not (False)")


class KnownMessage(NamedTuple):
    """A message in the sources of a component."""

    component: str
    file: str
    function: str
    first: str
    """First release with it that was read; `main` is a development version."""
    last: str
    condition: str
    """The condition under which it is printed, as the code writes it; may be empty."""
    text: str
    """The message, with `{}` for each value."""
    placed: bool = False
    """The message that was looked up names the file of the entry."""

    @property
    def names_its_component(self) -> bool:
        """It is long and special enough, so that hardly another program prints it."""
        enough = len(self.text.replace("{}", "")) >= _ENOUGH
        return self.placed or (enough and not _GENERAL.search(self.text))


def known_message(message: str, paths: tuple[str, ...] = ()) -> KnownMessage | None:
    """The entry that says most of `message`; one in a file of `paths` counts more."""
    text = " ".join(message.split())
    names = {path.rsplit("/", 1)[-1] for path in paths}
    places = text.replace("\\", "/")
    best, best_score = None, 0
    for longest, row in _rows():
        if longest not in text:
            continue
        entry = KnownMessage._make((*row.split("\t"), False))
        placed = (end := _end_of(entry.file)) != "" and end in places
        entry = entry._replace(placed=placed)
        pieces = [piece.strip() for piece in entry.text.rstrip(_FULL_STOP).split("{}")]
        plain = sum(map(len, pieces))
        least, piece = (_LEAST_THERE, _PIECE_THERE) if entry.placed else (_LEAST, _PIECE)
        if plain < least or len(longest) < piece or not _in_order(pieces, text):
            continue
        if entry.condition in _NO_CONDITION:
            entry = entry._replace(condition="")
        score = plain + 1000 * (entry.placed or entry.file.rsplit("/", 1)[-1] in names)
        if score > best_score:
            best, best_score = entry, score
    return best


def owner_of_source(path: str) -> str:
    """The one component that has a file of C++ with this name and folder; empty if unknown."""
    owners = {
        row.split("\t", 1)[0]
        for _, row in _rows()
        if path.endswith(_end_of(row.split("\t", 2)[1]) or "\n")
    }
    return owners.pop() if len(owners) == 1 else ""


def _end_of(file: str) -> str:
    """The end of a path by which a file of C++ is recognised: its folder and its name."""
    parts = file.rsplit("/", 2)
    return "/".join(parts[-2:]) if len(parts) > 1 and not file.endswith(".py") else ""


def _in_order(pieces: list[str], text: str) -> bool:
    """All pieces are in the text, one after another."""
    at = 0
    for piece in pieces:
        found = text.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return True


@cache
def _rows() -> tuple[tuple[str, str], ...]:
    """The longest plain piece of each message, and the line of the table."""
    path = os.path.join(library.folder(), "messages.tsv")
    lines = read_bytes(path, DATA).decode("utf-8").splitlines()
    texts = (line.rsplit("\t", 1)[-1].rstrip(_FULL_STOP) for line in lines)
    longest = (max(text.split("{}"), key=len).strip() for text in texts)
    return tuple(
        (piece, line)
        for piece, line in zip(longest, lines, strict=True)
        if len(piece) >= _PIECE_THERE
    )
