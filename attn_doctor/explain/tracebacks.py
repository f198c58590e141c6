"""What happened on a page, in order: which lines belong to which failure, and what led to what.

Python prints a chain of exceptions with the first one on top: that is the root, and what was raised
while it was handled is its echo. Warnings are said by the way; the frames of a C++ stack and the
lines with which a build says that it has failed say nothing of the reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum

from msgspec import Struct

from attn_doctor.explain.normalize import Line

#: Lines after an exception's first that still count as its message.
_MESSAGE = 60

_HEADER = "Traceback (most recent call last)"
_HANDLING = "During handling of the above exception"
_DIRECT = "The above exception was the direct cause"
_FRAME = re.compile(r'\s*(?:File ".*", line \d+|\^+\s*$|~*\^+~*\s*$|❱? ?\d+ [│|])')
# IPython: "----> 5 import flash_attn", "~/site-packages/x.py in f(a)", "      3 import torch"
_CODE = re.compile(r"\s*(?:-+> ?\d+ |\d+ |\S+ in \S+\(?|$)")
_NAMED = re.compile(r"[A-Za-z_][\w.]*: \S")
_STACK = re.compile(
    r"\s*(?:frame #\d+:|#\d+ 0x[0-9a-f]+|C\+\+ (?:stack|Capture))|.*<unknown function> \+ 0x"
)
_WARNING = re.compile(r"Warning:|\b(?:WARNING|WARN|warning)\b|^\s*W\d{4} ")
_EXCEPTION = re.compile(
    r"(?:^|[\s:(\]!])(?:[A-Za-z_][\w.]*\.)?(?!Warning)[A-Z]\w*(?:Error|Exception|Interrupt|Failure|Unsupported"
    r"|OutOfResources|Timeout)\b(?::|\s*$|\()"
)
_ERROR = re.compile(
    r"\b(?:[Ee]rror|ERROR|FATAL|[Ff]atal|CRITICAL|[Ff]ailed|FAILED|Killed|Aborted|Aborting"
    r"|Segmentation fault|cannot|Cannot|could not|Could not|not found|undefined symbol"
    r"|Exception during processing)\b"
)
#: How a build ends whatever went wrong.
_BUILD_END = re.compile(
    r"subprocess-exited-with-error|metadata-generation-failed|Failed building wheel|did not run"
    r" successfully|Could not build wheels|Failed to build installable wheels"
    r"|legacy-install-failure"
    r"|ninja: build stopped|Error compiling objects|non-zero exit status"
    r"|failed with exit (?:code|status)|Encountered error while|note: This error originates"
    r"|note: This is an issue with the package|Command '?\[|CalledProcessError|BackendUnavailable"
    r"|Failed to build [`'\w]"
)
#: With what a launcher ends when one of its processes has failed, whatever went wrong there.
_LAUNCHER = re.compile(
    r"\b(?:ChildFailedError|ProcessRaisedException|ProcessExitedException)\b"
    r"|CalledProcessError: Command '\[.{0,300}\bpython[\d.]*(?:\.exe)?',"
    r" (?:'-\w', )?'[^']{0,200}\.py'"
)


class Kind(IntEnum):
    """What a line is. The higher, the nearer to the reason of a failure."""

    NOISE = 0
    """A frame, a stack of C++, or how a build ends."""
    WARNING = 1
    SAID = 2
    MESSAGE = 3
    """It goes on an exception's message."""
    ERROR = 4
    EXCEPTION = 5


class Place(Struct, frozen=True):
    """Where a line stands in the course of things."""

    kind: Kind
    failure: int = -1
    """Which failure it belongs to, in the order of the page; -1 for none."""
    link: int = 0
    """0 in the first exception of a chain, 1 in the one that followed, and so on."""
    direct: bool = False
    """The exception before it was its direct cause."""


class Course:
    """The places of a page's lines, and what came last in each process."""

    def __init__(self, lines: Sequence[Line]) -> None:
        walker = _Walker()
        self.lines = lines
        self.places = [walker.step(line) for line in lines]
        self._newest: dict[str, int] = {}
        self._last: dict[str, dict[int, int]] = {}
        for line, place in zip(lines, self.places, strict=True):
            if place.failure in walker.launchers:
                continue
            newest = self._newest.get(line.rank, -1)
            self._newest[line.rank] = max(newest, place.failure)
            if place.kind in (Kind.EXCEPTION, Kind.ERROR):
                self._last.setdefault(line.rank, {})[place.failure] = line.number

    def final(self, index: int) -> bool:
        """The line belongs to the last failure of its process."""
        failure = self.places[index].failure
        return failure >= 0 and failure == self._newest[self.lines[index].rank]

    def before(self, index: int) -> int:
        """So many lines before the last failure that the line does not belong to; 0 if none is."""
        line, failure = self.lines[index], self.places[index].failure
        last = [
            number
            for other, number in self._last.get(line.rank, {}).items()
            if other < 0 or other != failure
        ]
        return max(0, max(last, default=0) - line.number)

    def ending(self) -> list[Line]:
        """The message of the last failure."""
        last = max(self._newest.values(), default=-1)
        return [
            line
            for line, place in zip(self.lines, self.places, strict=True)
            if last >= 0 and place.failure == last and place.kind in (Kind.EXCEPTION, Kind.MESSAGE)
        ]


class _Walker:
    """Goes down the lines and remembers in which failure it is."""

    def __init__(self) -> None:
        self.failure = -1
        self.link = 0
        self.direct = False
        self.chained = False
        self.open = False
        self.indent = 0
        """Of the frames of the open traceback; their code stands further in."""
        self.message = 0
        self.rank = ""
        self.launchers: set[int] = set()
        """Failures that only tell that another process has failed."""

    def step(self, line: Line) -> Place:
        """The place of the next line."""
        if line.rank != self.rank:
            self.rank, self.open, self.chained, self.message = line.rank, False, False, 0
        text = line.text
        indent = len(text) - len(text.lstrip())
        if _HEADER in text:
            return self._begin(indent + 2)
        if _HANDLING in text or _DIRECT in text:
            self.chained, self.direct, self.open, self.message = True, _DIRECT in text, False, 0
            return self._at(Kind.NOISE)
        if _FRAME.match(text):
            if not self.open:
                return self._begin(indent)
            self.indent = indent
            return self._at(Kind.NOISE)
        if self.open and indent > self.indent:
            return self._at(Kind.NOISE)
        return self._named(line, indent)

    def _named(self, line: Line, indent: int) -> Place:
        text = line.text
        if _LAUNCHER.search(text):
            if self.open and not self.link:
                self.launchers.add(self.failure)
            self.open, self.message = False, 0
            return self._at(Kind.NOISE)
        if _STACK.match(text) or _BUILD_END.search(text):
            return self._at(Kind.NOISE)
        if _EXCEPTION.search(text) and not _WARNING.search(text):
            if not self.open:
                self._begin(indent)
            self.open, self.message = False, _MESSAGE
            return self._at(Kind.EXCEPTION)
        return self._other(line)

    def _other(self, line: Line) -> Place:
        text = line.text
        if line.stamped:
            self.open = False
        if line.stamped or not text.strip():
            self.message = 0
        warning = _WARNING.search(text) is not None
        if self.message and not warning:
            self.message -= 1
            return self._at(Kind.MESSAGE)
        kind = Kind.WARNING if warning else Kind.ERROR if _ERROR.search(text) else Kind.SAID
        if not self.open:
            return Place(kind)
        if kind is Kind.SAID and _NAMED.match(text):
            # An exception of a kind whose name does not tell, as `triton.Oops: it broke`.
            self.open, self.message = False, _MESSAGE
            return self._at(Kind.EXCEPTION)
        return self._at(Kind.NOISE if _CODE.match(text) else kind)

    def _begin(self, indent: int) -> Place:
        if self.chained:
            self.link += 1
        else:
            self.failure, self.link, self.direct = self.failure + 1, 0, False
        self.chained, self.open, self.message, self.indent = False, True, 0, indent
        return self._at(Kind.NOISE)

    def _at(self, kind: Kind) -> Place:
        return Place(kind, self.failure, self.link, self.direct and self.link > 0)
