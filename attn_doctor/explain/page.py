"""A stretch of a log as clean text: what its program said, without what carried it here.

Colours, progress bars, ranks, times, the boxes of pip and rich, and the marks of a quoted message
are taken off each line, and lines that a terminal or a box has broken are put together again.
Every place in the text can be led back to the number of its line.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

__all__ = ["Line", "Page"]

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,500}(?:\x07|\x1b\\)|[@-Z\\^_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# "[rank3]: ", "[default0]:", "[1,3]<stderr>: ", "rank 3: ", "3: ", "(Worker pid=71, ip=10.0.0.2) "
_RANK = re.compile(
    r" {0,8}(?:\[(?:rank|default) ?(?P<a>\d{1,4})\] ?: ?|\[\d+,(?P<b>\d+)\]<std(?:out|err)>: ?"
    r"|(?:[Rr]ank ?)?(?P<c>\d{1,4}): |\((?:\w{1,40} )?pid=(?P<d>\d+)(?:, ip=[\d.]+)?\) ?)"
)
# "2025-11-21T10:00:00.123Z ", "[2025-11-21 10:00:00,123] ", "[10:00:00] ",
# "Nov 21 10:00:00 host prog[7]: "
_TIME = re.compile(
    r"\[?(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]? +"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,64} \S{1,64}: "
)
# pip's "  │ " and "  ╰─> ", rich's "│ ", an exception group's "  | ", a quoted message's "> "
_BOX = re.compile(r" {0,12}(?:[│┃|]|╰─>|> ?(?!>)|[+] ?(?=Exception Group)) ?")
_RULE = re.compile(r"\s*(?:```\w*|[╭╰┌└├+─━=_-][─━=_+┄ -]{6,}.{0,80}[╮╯┐┘┤+─━=-]?)\s*")
# " 45%|████▌     | 450/1000 [00:12<00:15, 36.12it/s, loss=0.12]"
_PROGRESS = re.compile(r"[^%\n]{0,80}\d{1,3}%\|[^|\n]{0,300}\|[^\[\n]{0,60}(?:\[[^\]\n]{0,200}\])?")
#: What never stands in the middle of a broken message.
_BEGINS = re.compile(
    r'\s*(?:File "|Traceback \(|During handling|The above exception|\$ |>>> '
    r"|(?:[a-z_]\w{0,40}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception|Warning)\b)"
)
#: A line is looked at in pieces of this length, and so much of each is in the next one too.
_LONGEST, _SHARED = 8000, 400
#: Columns in which messages are broken.
_NARROWEST, _WIDEST = 40, 240
#: Lines on each side that show how wide the terminal or the box was.
_NEAR = 12


class Line(NamedTuple):
    """One line of a log; what carriage returns part counts as lines of the same number."""

    number: int
    text: str
    rank: str
    """The process that wrote it, where the log tells."""
    width: int
    """How wide it was as it stood in the log."""
    stamped: bool
    """It carried a time, so that it begins something."""


class Page:
    """Neighbouring lines of a log. Lines of one process stand together."""

    def __init__(self, first: int, data: bytes) -> None:
        lines = [line for number, text in _split(first, data) for line in _clean(number, text)]
        ranks = dict.fromkeys(line.rank for line in lines)
        if len(ranks) > 1:
            lines = [line for rank in ranks for line in lines if line.rank == rank]
        self.lines = lines

    @cached_property
    def text(self) -> str:
        """The lines, parted by line ends."""
        return "\n".join(line.text for line in self.lines)

    @cached_property
    def lowered(self) -> str:
        """All forms of the text in lower case, to see whether something occurs at all."""
        return "\n".join(form.lower() for form in (self.text, *self.mended))

    @cached_property
    def mended(self) -> tuple[str, ...]:
        """The text with broken lines put together, by a blank, and as their width suggests.

        Empty if no line looks broken. Places in it are those of `index_in`, not of `index_at`.
        """
        joints = self._joints
        if not joints:
            return ()
        return (self._joined(dict.fromkeys(joints, " ")), self._joined(joints))

    @cached_property
    def _joints(self) -> dict[int, str]:
        """Indexes of lines that go on in the next one, and what parted them."""
        found: dict[int, str] = {}
        lines = self.lines
        for index in range(len(lines) - 1):
            line, following = lines[index], lines[index + 1]
            if not _NARROWEST <= line.width <= _WIDEST or following.stamped:
                continue
            word = following.text.split(maxsplit=1)
            if not word or _BEGINS.match(following.text):
                continue
            near = lines[max(0, index - _NEAR) : index + _NEAR]
            wide = max((one.width for one in near if one.width <= _WIDEST), default=0)
            if line.width + 1 + len(word[0]) > wide - 2:
                found[index] = "" if line.width >= wide else " "
        return found

    def _joined(self, joints: dict[int, str]) -> str:
        parts = []
        for index, line in enumerate(self.lines):
            text = line.text
            if index - 1 in joints:
                text = text.lstrip()
            parts.append(text + joints.get(index, "\n"))
        return "".join(parts).removesuffix("\n")

    def index_at(self, offset: int) -> int:
        """Index of the line that holds this place of `text`."""
        return bisect_right(self._starts, offset) - 1

    def index_in(self, form: int, offset: int) -> int:
        """Index of the line that holds this place of `mended[form]`."""
        return bisect_right(self._mended_starts[form], offset) - 1

    @cached_property
    def _starts(self) -> list[int]:
        starts, offset = [], 0
        for line in self.lines:
            starts.append(offset)
            offset += len(line.text) + 1
        return starts

    @cached_property
    def _mended_starts(self) -> tuple[list[int], list[int]]:
        joints = self._joints
        found: tuple[list[int], list[int]] = ([], [])
        for form, parted in enumerate((dict.fromkeys(joints, " "), joints)):
            offset = 0
            for index, line in enumerate(self.lines):
                found[form].append(offset)
                text = line.text.lstrip() if index - 1 in joints else line.text
                offset += len(text) + len(parted.get(index, "\n"))
        return found


def _split(first: int, data: bytes) -> list[tuple[int, str]]:
    """The lines with their numbers, decoded."""
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        lines = [_decoded(line) for line in data.split(b"\n")]
    if lines and not lines[-1]:
        lines.pop()
    return [
        (number, part)
        for number, line in enumerate(lines, first)
        for whole in (line.rstrip("\r").split("\r") if "\r" in line else (line,))
        for part in (_pieces(whole) if len(whole) > _LONGEST else (whole,))
    ]


def _pieces(line: str) -> Iterator[str]:
    """A line of absurd length in pieces, each of which repeats the end of the one before."""
    for start in range(0, len(line), _LONGEST - _SHARED):
        yield line[start : start + _LONGEST]


def _decoded(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("cp1252", "replace")


def _clean(number: int, text: str) -> list[Line]:
    """The line without what carried it; nothing for a line that only draws."""
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    text = _CONTROL.sub("", text).rstrip()
    if "%|" in text:
        text = _PROGRESS.sub("", text).strip()
        if not text:
            return []
    width = len(text)
    rank, stamped = "", False
    for _ in range(4):
        if match := _RANK.match(text):
            rank = rank or next(filter(None, match.groups()), "")
        elif match := _TIME.match(text):
            stamped = True
        elif match := _BOX.match(text):
            text = text.rstrip("│┃|").rstrip()
        else:
            break
        text = text[match.end() :]
    if _RULE.fullmatch(text) and "Traceback" not in text:
        return []
    return [Line(number, text, rank, width, stamped)]
