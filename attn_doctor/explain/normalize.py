"""A stretch of a log as clean text: what its program said, without what carried it here.

Colours, progress bars, ranks, times, the boxes of pip and rich, what containers and log collectors
put before a line, and the marks of a quoted message are taken off, and lines that a terminal or a
box has broken are put together again. Every place in the text can be led back to the number of its
line. What a collector wrapped in JSON is taken out by `unwrapping`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from attn_doctor.explain.log_prefixes import plain, unwrapped

_ESCAPE = re.compile(
    r"(?:\x1b|\^\[)(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,500}(?:\x07|\x1b\\)|[@-Z\\^_])"
)
#: Colours whose escape character was lost on the way to a web page.
_LOST = re.compile(r"\[(?:\d{1,3}(?:;\d{1,3}){0,4}m|m(?![a-z_]))")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# "[rank3]: ", "[default0]:", "[trainer0]:", "[1,3]<stderr>: ", "rank 3: ", "worker-1: ", "3: ",
# "(Worker pid=71, ip=10.0.0.2) "
_RANK = re.compile(
    r" {0,8}(?:\[(?:rank|default|trainer|worker)[-_ ]?(?P<a>\d{1,4})\] ?: ?"
    r"|\[\d+,(?P<b>\d+)\]<std(?:out|err)>: ?"
    r"|(?:[Rr]ank ?|(?:worker|trainer|node)[-_]?)?(?P<c>\d{1,4}): "
    r"|\((?:\w{1,40} )?pid=(?P<d>\d+)(?:, ip=[\d.]+)?\) ?)"
)
# "2025-11-21T10:00:00.123Z ", "[2025-11-21 10:00:00,123] ", "[10:00:00] ", "03/04/2025 10:00:00 ",
# "Nov 21 10:00:00 host prog[7]: ", "2025-11-21T10:00:00+0100 host prog[7]: ", and a server's
# "ERROR 03-04 10:11:12 [core.py:700] " and torch's "E0304 10:11:12.123000 140 torch/a.py:7] "
_TIME = re.compile(
    r"\[?(?:\d{4}[-/]\d\d[-/]\d\d[T ]|\d\d/\d\d/(?:\d{4}|\d\d) )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    r"(?:Z|[+-]\d\d:?\d\d)?\]?"
    r"(?:\s+(?:std(?:out|err) [FP]|[\w.-]{1,64} [\w.-]{1,64}\[\d+\]:))?(?: +|$)"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,64} \S{1,64}:(?: |$)"
    r"|(?:DEBUG|INFO|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d"
    r" (?:\[[\w./]{1,80}:\d+\]|[\w./]{1,80}:\d+\])(?: |$)"
    r"|[EI]\d{3,4} \d\d:\d\d:\d\d\.\d{3,9} (?:\d+ )?[\w./\\-]{1,200}:\d+\](?: |$)"
)
# What follows a time in logs of Python: "- INFO - ", "- __main__ - ERROR - ",
# "[ERROR] train.main: ", "| ERROR    | run:main:88 - "
_LEVEL = re.compile(
    r"(?:- [\w.]{1,80} )?- (?:DEBUG|INFO|ERROR|CRITICAL|FATAL) -(?: [\w.]{1,80} -(?= ))?(?: |$)"
    r"|\[(?:DEBUG|INFO|ERROR|CRITICAL|FATAL)\](?: [\w.]{1,80}:(?= |$))?(?: |$)"
    r"|\| (?:DEBUG|INFO|ERROR|CRITICAL|FATAL) {0,6}\| \S{1,120} -(?: |$)"
    r"|##\[(?:error|debug|command)\]"
)
# "trainer-1  | " of docker compose, "[pod/train-7d9f8b-x2k/trainer] ", "#12 0.526 " of a docker
# build, "train-7d9f8b6c5d-x2k4p trainer " of stern
_CARRIER = re.compile(
    r"[\w.-]{1,60}[-_]\d{1,3} {1,40}\|(?: |$)|\[pod/[\w./-]{1,200}\] ?"
    r"|#\d{1,3} (?:\d{1,5}\.\d{1,3}(?: |$))?|\d{1,5}\.\d{3}(?: (?=\D)|$)"
    r"|[a-z][a-z0-9-]{1,50}-[a-f0-9]{8,10}-[a-z0-9]{5} [a-z0-9-]{1,40}(?: |$)"
)
# pip's "  │ " and "  ╰─> ", rich's "│ ", an exception group's "  | ", a quoted message's "> "
_BOX = re.compile(r" {0,12}(?:[│┃|]|╰─>|> ?(?!>)|[+] ?(?=Exception Group)) ?")
_RULE = re.compile(r"\s*(?:```\w*|[╭╰┌└├+─━=_-][─━=_+┄ -]{6,}.{0,80}[╮╯┐┘┤+─━=-]?)\s*")
# " 45%|████▌     | 450/1000 [00:12<00:15, 36.12it/s, loss=0.12]"
_PROGRESS = re.compile(r"[^%\n]{0,80}\d{1,3}%\|[^|\n]{0,300}\|[^\[\n]{0,60}(?:\[[^\]\n]{0,200}\])?")
# "12:" and "12-" of grep -n
_NUMBERED = re.compile(r" {0,6}(\d{1,8})[:-]")
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
    stamped: int
    """So many times it carried; true for a line that begins something."""


class Page:
    """Neighbouring lines of a log. Lines of one process stand together."""

    def __init__(self, first: int, data: bytes) -> None:
        lines = _stamped_apart(
            [line for number, text in _split(first, data) for line in _clean(number, text)]
        )
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
            room = wide - line.width - 1 - len(word[0])
            if room < 2 or (room < wide // 2 and _goes_on(line.text, following.text)):
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
        for number, line in enumerate(_unnumbered(lines), first)
        for one in unwrapped(line)
        for whole in (one.rstrip("\r").split("\r") if "\r" in one else (one,))
        for part in (_pieces(whole) if len(whole) > _LONGEST else (whole,))
    ]


def _unnumbered(lines: list[str]) -> list[str]:
    """The lines without the numbers that `grep -n` and editors put before each of them.

    The number of a process stands before lines as well, but does not grow with each of them.
    """
    last = -1
    for line in lines:
        match = _NUMBERED.match(line)
        if match is None or int(match[1]) <= last:
            return lines
        last = int(match[1])
    return [_NUMBERED.sub("", line, count=1) for line in lines] if len(lines) > 1 else lines


def _goes_on(text: str, following: str) -> bool:
    """Prose that programs break evenly, not only where a line is full: uv and rich do so."""
    indent = len(following) - len(following.lstrip())
    return (
        following[indent : indent + 1].islower()
        and len(text) - len(text.lstrip()) == indent
        and text[-1:] not in ".:;)]}"
        and "  File " not in text
    )


def _stamped_apart(lines: list[Line]) -> list[Line]:
    """The lines with the times that begin something; what stamps every line begins nothing."""
    if len(lines) > 1 and all(line.stamped for line in lines):
        return [line._replace(stamped=line.stamped - 1) for line in lines]
    return lines


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
    text = _CONTROL.sub("", plain(_uncoloured(text))).rstrip()
    if "%|" in text:
        text = _PROGRESS.sub("", text).strip()
        if not text:
            return []
    width = len(text)
    rank, stamped = "", 0
    for _ in range(6):
        if match := _RANK.match(text):
            rank = rank or next(filter(None, match.groups()), "")
        elif match := _TIME.match(text):
            stamped += 1
        elif match := (_LEVEL.match(text) if stamped else None) or _CARRIER.match(text):
            pass
        elif match := _BOX.match(text):
            text = text.rstrip("│┃|").rstrip()
        else:
            break
        text = text[match.end() :]
    if _RULE.fullmatch(text) and "Traceback" not in text:
        return []
    return [Line(number, text, rank, width, stamped)]


def _uncoloured(text: str) -> str:
    if "\x1b" in text or "^[" in text:
        text = _ESCAPE.sub("", text)
    return _LOST.sub("", text) if "[0m" in text or "[m" in text else text
