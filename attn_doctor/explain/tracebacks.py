"""Assign the lines of a log to failures, and each line of a failure to its place in the chain.

Python prints a chain of exceptions with the first one on top: that is the root cause, and those
raised while it was handled are consequences. Warnings are not part of a failure. The frames of a
C++ stack and the lines with which a build reports its failure do not say the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import IntEnum

from msgspec import Struct

from attn_doctor.explain.normalize import LogLine

#: Lines after an exception's first that still count as its message.
_MESSAGE = 60

_HEADER = "Traceback (most recent call last)"
_HANDLING = "During handling of the above exception"
_DIRECT = "The above exception was the direct cause"
_FRAME = re.compile(r'\s*(?:File ".*", line \d+|\^+\s*$|~*\^+~*\s*$|❱? ?\d+ [│|])')
# IPython: "----> 5 import flash_attn", "~/site-packages/x.py in f(a)", "      3 import torch"
_CODE = re.compile(r"\s*(?:-+> ?\d+ |\d+ |\S+ in \S+\(?|$)")
#: pytest: a place below an exception, and the summary, which repeats it.
_TESTED = re.compile(
    r"\s*[\w./\\-]{1,300}\.py:\d+:(?: [A-Z]\w*)?\s*$|(?:FAILED|ERROR) \S+\.py::\S+ - "
)
#: The end of a block, or a heading, in a report that quotes a traceback.
_QUOTE_END = re.compile(r"\s*(?:```|#{2,6} )")
_NAMED = re.compile(r"[A-Za-z_][\w.]*: \S|[A-Z][A-Za-z]{5,40}$")
#: What torch's tracer writes below its exception, before the frames of the program that it traced.
_TRACED = re.compile(r"\s*from user code:?\s*$")
_STACK = re.compile(
    r"\s*(?:frame #\d+:|#\d+ 0x[0-9a-f]+|C\+\+ (?:stack|Capture))|.*<unknown function> \+ 0x"
)
_WARNING = re.compile(r"Warning:|\b(?:WARNING|WARN|warning)\b|^\s*W\d{4} ")
_EXCEPTION = re.compile(
    r"(?:^|[\s:(\]!])(?<!except )(?:[A-Za-z_][\w.]*\.)?(?!Warning)"
    r"(?:[A-Z]\w*(?:Error|Exception|Interrupt|Failure|Unsupported|OutOfResources|Timeout|Missing)|Unsupported|OutOfResources)\b(?::|\s*$|\()"
)
_ERROR = re.compile(
    r"\b(?:[Ee]rror|ERROR|FATAL|[Ff]atal|CRITICAL|[Ff]ailed|FAILED|Killed|Aborted|Aborting"
    r"|Segmentation fault|cannot|Cannot|could not|Could not|not found|undefined symbol"
    r"|Exception during processing)\b"
)
#: Triton's compiler quotes its source, of at most so many lines, marks a place and says the reason.
_QUOTES, _QUOTED, _MARK = (
    re.compile(r"\bCompilationError: at \d+:\d+"),
    200,
    re.compile(r"\s*\^\s*$"),
)
#: A command at a prompt of a shell.
PROMPT = re.compile(
    r"\s{0,8}(?:\([\w./-]{1,40}\) ?)?(?:\$|[\w.-]{1,40}@[\w.-]{1,60}:\S{0,120}[$#]"
    r"|(?:PS )?[A-Z]:\\[^>\n]{0,200}>|##\[group\]Run) ?(?:[A-Z_]{2,40}=\S{0,100} )*"
    r"(?P<command>[\w./\\-]+)(?: |$)"
)
#: The end of a failed build, for any reason.
_BUILD_END = re.compile(
    r"subprocess-exited-with-error|metadata-generation-failed|Failed building wheel|did not run"
    r" successfully|Could not build wheels|Failed to build installable wheels"
    r"|legacy-install-failure"
    r"|ninja: build stopped|Error compiling objects|non-zero exit status"
    r"|failed with exit (?:code|status)|Encountered error while|note: This error originates"
    r"|note: This is an issue with the package|Command '?\[|CalledProcessError|BackendUnavailable"
    r"|Failed to build [`'\w]|Process completed with exit code"
)
#: The end of a launcher after one of its processes failed, for any reason.
_LAUNCHER = re.compile(
    r"\b(?:ChildFailedError|ProcessRaisedException|ProcessExitedException)\b"
    r"|CalledProcessError: Command '\[.{0,300}\bpython[\d.]*(?:\.exe)?',"
    r" (?:'-\w', )?'[^']{0,200}\.py'"
)


class LineKind(IntEnum):
    """The kind of a line. A higher one is nearer to the reason of a failure."""

    NOISE = 0
    """A frame, a C++ stack, or the end of a build."""
    WARNING = 1
    TEXT = 2
    """Any other line."""
    MESSAGE = 3
    """The message of an exception continues on it."""
    ERROR = 4
    EXCEPTION = 5


class Position(Struct, frozen=True):
    """The position of a line in the failures of a log."""

    kind: LineKind
    failure: int = -1
    """Number of the failure that it belongs to, in the order of the log; -1 for none."""
    link: int = 0
    """0 in the first exception of a chain, 1 in the next one, and so on."""
    direct: bool = False
    """The exception before it was its direct cause."""


class TraceLog:
    """The positions of lines, and the last failure of each process."""

    def __init__(self, lines: Sequence[LogLine], stepped: int = 0) -> None:
        walker = _Walker()
        self.lines = lines
        self.stepped = stepped
        """The number of the last line with a bar that shows a step; 0 if there is none."""
        self.positions = [walker.step(line) for line in lines]
        self._newest: dict[str, int] = {}
        self._last: dict[str, dict[int, int]] = {}
        for line, position in zip(lines, self.positions, strict=True):
            if position.failure in walker.launchers:
                continue
            newest = self._newest.get(line.rank, -1)
            self._newest[line.rank] = max(newest, position.failure)
            if position.kind in (LineKind.EXCEPTION, LineKind.ERROR):
                self._last.setdefault(line.rank, {})[position.failure] = line.number

    def is_final(self, index: int) -> bool:
        """The line belongs to the last failure of its process."""
        failure = self.positions[index].failure
        return failure >= 0 and failure == self._newest[self.lines[index].rank]

    def distance(self, index: int) -> int:
        """Lines between this one and the last failure it does not belong to; 0 if there is none."""
        line, failure = self.lines[index], self.positions[index].failure
        last = [
            number
            for other, number in self._last.get(line.rank, {}).items()
            if other < 0 or other != failure
        ]
        return max(0, max(last, default=0) - line.number)

    def failures(self) -> Iterator[list[tuple[LogLine, Position]]]:
        """The lines of each failure with an exception, the last failure first."""
        lines: dict[int, list[tuple[LogLine, Position]]] = {}
        raised = set()
        for line, at in zip(self.lines, self.positions, strict=True):
            lines.setdefault(at.failure, []).append((line, at))
            if at.kind is LineKind.EXCEPTION and at.failure in self._last.get(line.rank, {}):
                raised.add(at.failure)
        yield from (lines[number] for number in sorted(raised, reverse=True))

    def below(self, failure: int) -> list[LogLine]:
        """The lines of later failures, which have no exception.

        A report may show the exception first and the frames below it.
        """
        return [
            line
            for line, at in zip(self.lines, self.positions, strict=True)
            if at.failure > failure
        ]

    def last_message(self) -> list[LogLine]:
        """The message of the last failure."""
        last = max(self._newest.values(), default=-1)
        kinds = (LineKind.EXCEPTION, LineKind.MESSAGE)
        return [
            line
            for line, position in zip(self.lines, self.positions, strict=True)
            if last >= 0 and position.failure == last and position.kind in kinds
        ]


class _Walker:
    """Goes through the lines and remembers the failure that it is in."""

    def __init__(self) -> None:
        self.failure = -1
        self.link = 0
        self.direct = False
        self.chained = False
        self.open = False
        self.indent = 0
        """Indent of the frames of the open traceback; their code is indented further."""
        self.message = 0
        self.quoted = 0
        """Lines of source that may follow."""
        self.reason = False
        """The next line says why the source is wrong."""
        self.rank = ""
        self.traced = False
        """The frames of the program that torch traced may follow."""
        self.launchers: set[int] = set()
        """Failures that only belong to another one, or report that of another process."""

    def step(self, line: LogLine) -> Position:
        """The position of the next line."""
        if line.rank != self.rank:
            self.rank, self.open, self.chained, self.message = line.rank, False, False, 0
        text = line.text
        indent = len(text) - len(text.lstrip())
        if self.quoted and self._quotes(text):
            return self._at(LineKind.MESSAGE)
        if _HEADER in text:
            return self._begin(indent + 2)
        if _HANDLING in text or _DIRECT in text:
            self.chained, self.direct, self.open, self.message = True, _DIRECT in text, False, 0
            return self._at(LineKind.NOISE)
        if _FRAME.match(text):
            if not self.open:
                return self._begin(indent, of_the_same=self.traced)
            self.indent = indent
            return self._at(LineKind.NOISE)
        self.traced = _TRACED.match(text) is not None
        if self.open and indent > self.indent:
            return self._at(LineKind.NOISE)
        return self._named(line, indent)

    def _quotes(self, text: str) -> bool:
        """The line belongs to the source in the message of a compiler."""
        self.quoted -= 1
        if _MARK.match(text):
            self.quoted, self.reason, self.message = 0, True, _MESSAGE
        elif _HEADER in text or _FRAME.match(text) or _EXCEPTION.search(text):
            self.quoted = 0
            return False
        return True

    def _named(self, line: LogLine, indent: int) -> Position:
        text = line.text
        if _TESTED.match(text):
            self.message = 0
            return self._at(LineKind.NOISE)
        if _LAUNCHER.search(text):
            if self.open and not self.link:
                self.launchers.add(self.failure)
            self.open, self.message = False, 0
            return self._at(LineKind.NOISE)
        if _STACK.match(text) or _BUILD_END.search(text):
            return self._at(LineKind.NOISE)
        shown = line.quiet and not self.open
        if _EXCEPTION.search(text) and not shown and not _WARNING.search(text):
            if not self.open and not self.reason:
                self._begin(indent)
            self.open, self.message, self.reason = False, _MESSAGE, False
            self.quoted = _QUOTED if _QUOTES.search(text) else 0
            return self._at(LineKind.EXCEPTION)
        return self._other(line)

    def _other(self, line: LogLine) -> Position:
        text = line.text
        if line.stamped or _QUOTE_END.match(text):
            self.open = False
        if self.message and (line.stamped or not text.strip() or PROMPT.match(text)):
            self.message = 0
        warning = _WARNING.search(text) is not None
        if self.message and not warning:
            self.message -= 1
            return self._at(LineKind.MESSAGE)
        kind = (
            LineKind.WARNING
            if warning
            else LineKind.ERROR
            if _ERROR.search(text)
            else LineKind.TEXT
        )
        if not self.open:
            return Position(kind)
        if kind is LineKind.TEXT and _NAMED.match(text):
            # Its name does not end in Error: `triton.Oops: it broke`, `StopIteration`.
            self.open, self.message = False, _MESSAGE
            return self._at(LineKind.EXCEPTION)
        return self._at(LineKind.NOISE if _CODE.match(text) else kind)

    def _begin(self, indent: int, *, of_the_same: bool = False) -> Position:
        if self.chained:
            self.link += 1
        else:
            self.failure, self.link, self.direct = self.failure + 1, 0, False
            if of_the_same:
                self.launchers.add(self.failure)
        self.chained, self.open, self.message, self.indent = False, True, 0, indent
        return self._at(LineKind.NOISE)

    def _at(self, kind: LineKind) -> Position:
        return Position(kind, self.failure, self.link, self.direct and self.link > 0)
