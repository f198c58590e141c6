"""Normalize a stretch of a log: the text of its program, without what terminals and collectors add.

Colours, progress bars, ranks, times, the boxes of pip and rich, prefixes of containers and log
collectors, and the marks of a quoted message are removed. Lines that a terminal or a box has broken
are joined. Docker and log collectors write a line as one record of JSON, servers put a traceback
into one string, web pages and chat programs replace blanks and quotes by others that look alike,
and text that is pasted as prose loses its line ends: all this is undone. Each offset in the text
leads back to the number of its line.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from attn_doctor.json_files import JsonError, decode

_ESCAPE = re.compile(
    r"(?:\x1b|\^\[)(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,500}(?:\x07|\x1b\\)|[@-Z\\^_])"
)
#: Colours that lost their escape character, as on web pages.
_LOST = re.compile(r"\[(?:\d{1,3}(?:;\d{1,3}){0,4}m|m(?![a-z_]))")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# "[rank3]: ", "[default0]:", "[trainer0]:", "[1,3]<stderr>: ", "rank 3: ", "worker-1: ", "3: ",
# "(Worker pid=71, ip=10.0.0.2) ", "(VllmWorker rank=1 pid=71) ",
# "(a pid=71) [repeated 3x across cluster] "
_RANK = re.compile(
    r" {0,8}(?:\[(?:rank|default|trainer|worker)[-_ ]?(?P<a>\d{1,4})\] ?: ?"
    r"|\[\d+,(?P<b>\d+)\]<std(?:out|err)>: ?"
    r"|(?:[Rr]ank ?|(?:worker|trainer|node)[-_]?)?(?P<c>\d{1,4}): "
    r"|\((?P<d>(?:[\w:.-]{1,60}(?:\(\S{1,20}\))? )?(?:rank=\d+ )?pid=\d+)(?:, ip=[\d.]+)?\)"
    r"(?: \[repeated \d+x across cluster\])? ?)"
)
# "2025-11-21T10:00:00.123Z ", "[2025-11-21 10:00:00,123] ", "[10:00:00] ", "03/04/2025 10:00:00 ",
# "[2025-11-21 10:00] ",
# GitLab's "2025-11-21T10:00:00.123456Z 00O ",
# "Nov 21 10:00:00 host prog[7]: ", "2025-11-21T10:00:00+0100 host prog[7]: ", and a server's
# "ERROR 03-04 10:11:12 [core.py:700] " and torch's "E0304 10:11:12.123000 140 torch/a.py:7] "
_TIME = re.compile(
    r"\[?(?:\d{4}[-/]\d\d[-/]\d\d(?:T|,? )|\d\d/\d\d/(?:\d{4}|\d\d) )?\d\d:\d\d:\d\d"
    r"(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d| UTC(?=\]))?\]?"
    r"(?:\s+(?:std(?:out|err) [FP]|[\da-f]{2}[OE]|[\w.-]{1,64} [\w.-]{1,64}\[\d+\]:))?(?: |$)"
    r"|\[\d{4}-\d\d-\d\d \d\d:\d\d\](?: |$)"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,64} \S{1,64}:(?: |$)"
    r"|(?:DEBUG|INFO|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d"
    r" (?:\[[\w./]{1,80}:\d+\]|[\w./]{1,80}:\d+\])(?: |$)"
    r"|[EI]\d{3,4} \d\d:\d\d:\d\d\.\d{3,9} (?:\d+ )?[\w./\\-]{1,200}:\d+\](?: |$)"
)
# What follows a time in logs of Python: "- INFO - ", "- __main__ - ERROR - ",
# "[ERROR] train.main: ", "| ERROR    | run:main:88 - ", Airflow's "{subprocess.py:93} INFO - "
_LEVEL = re.compile(
    r"(?:- [\w.]{1,80} )?- (?:DEBUG|INFO|ERROR|CRITICAL|FATAL) -(?: [\w.]{1,80} -(?= ))?(?: |$)"
    r"|\[(?:DEBUG|INFO|ERROR|CRITICAL|FATAL)\]"
    r"(?: (?![\w.]{0,75}(?:Error|Exception|Warning):)[\w.]{1,80}:(?= |$))?(?: |$)"
    r"|\| (?:DEBUG|INFO|ERROR|CRITICAL|FATAL) {0,6}\| \S{1,120} -(?: |$)"
    r"|\{[\w.-]{1,80}:\d{1,5}\} (?:DEBUG|INFO|ERROR|CRITICAL|FATAL) -(?: |$)"
    r"|##\[(?:error|debug|command)\]"
)
_FAILING = re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b|^E\d{3,4} |##\[error\]")
_DEBUG, _QUIET = "DEBUG", re.compile(r"DEBUG(?::| +\S{1,80}:\d{1,5}\b)")
# "trainer-1  | " and "comfyui  | " of docker compose, "[pod/train-7d9f8b-x2k/trainer] ",
# "#12 0.526 " of a docker build, "train-7d9f8b6c5d-x2k4p trainer " of stern
# "INFO:server.log:" of Python's logging as it is without a format
_CARRIER = re.compile(
    r"[\w.-]{1,60}[-_]\d{1,3} {1,40}\|(?: |$)|[a-z][\w.-]{2,60} {2,40}\|(?: |$)"
    r"|\[pod/[\w./-]{1,200}\] ?"
    r"|#\d{1,3} (?:\d{1,5}\.\d{1,3}(?: |$))?"
    r"|(?:\d{1,5}\.\d{3}|\d\d\.\d\d|\d{3,5}\.\d)(?: (?=\D)|$)"
    r"|[a-z][a-z0-9-]{1,50}-[a-f0-9]{8,10}-[a-z0-9]{5} [a-z0-9-]{1,40}(?: |$)"
    r"|(?:DEBUG|INFO|ERROR|CRITICAL):[a-z_][\w.]{0,80}:(?! ?\d+:) ?"
)
# pip's "  │ " and "  ╰─> ", rich's "│ ", an exception group's "  | ", a quoted message's "> "
_BOX = re.compile(r" {0,12}(?:[│┃|]|╰─>|> ?(?!>)|[+] ?(?=Exception Group)) ?")
_RULE = re.compile(r"\s*(?:```\w*|[╭╰┌└├+─━=_-][─━=_+┄ -]{6,}.{0,80}[╮╯┐┘┤+─━=-]?)\s*")
#: The end of tests of which none failed.
_PASSED = re.compile(r"= \d+ passed\b(?!.*\b(?:failed|errors?)\b)")
# " 45%|████▌     | 450/1000 [00:12<00:15, 36.12it/s, loss=0.12]"
_PROGRESS = re.compile(r"[^%\n]{0,80}\d{1,3}%\|[^|\n]{0,300}\|[^\[\n]{0,60}(?:\[[^\]\n]{0,200}\])?")
#: The end of one after a step: "1/1000 [00:12<00:15, 36.12it/s".
_STEP = re.compile(r"\| *[1-9]\d*/\d+ \[\d[^\]\n]{0,40}[\d.](?:it/s|s/it)")
# "12:" and "12-" of grep -n
_NUMBERED = re.compile(r" {0,6}(\d{1,8})[:-]")
#: The beginning of a line that never continues a broken message.
_BEGINS = re.compile(
    r'\s*(?:File "|Traceback \(|During handling|The above exception|\$ |>>> '
    r"|(?:[a-z_]\w{0,40}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception|Warning)\b)"
)
_HEADER = "Traceback (most recent call last):"
#: The most characters that are taken for a prefix, and the most prefixes that a log can have.
_LONGEST_PREFIX, _PREFIXES = 80, 8
#: What changes in a prefix from line to line.
_DIGIT = re.compile(r"\d")
#: A line is searched in pieces of this length, each of which shares some text with the next.
_LONGEST, _SHARED = 8000, 400
#: Widths, in columns, at which messages are broken.
_NARROWEST, _WIDEST = 40, 240
#: Lines on each side that show the width of the terminal or the box.
_NEAR = 12


class LogLine(NamedTuple):
    """One line of a log; parts between carriage returns are lines with the same number."""

    number: int
    text: str
    rank: str
    """The process that wrote it, if the log says so: `3`, or `EngineCore_DP0 pid=71`."""
    width: int
    """Its width in the log, without colours."""
    stamped: int
    """Number of times of day before it; not 0 for a line that begins a message."""
    failing: bool = False
    """Its logger calls it an error."""
    quiet: bool = False
    """Its logger shows it only to who looks for faults of the program."""


def processes(lines: Iterable[LogLine]) -> list[str]:
    """The names of processes before lines, as the log has them: a program is known by them."""
    return [f"({rank})" for rank in dict.fromkeys(line.rank for line in lines) if "pid=" in rank]


class NormalizedLog:
    """Neighbouring lines of a log as clean text. Lines of one process are kept together."""

    def __init__(self, first: int, data: bytes) -> None:
        parts = _split(first, data)
        lines = _without_unknown_prefix(
            _without_common_time([line for number, text in parts for line in _clean(number, text)])
        )
        steps = (number for number, text in reversed(parts) if "%|" in text and _STEP.search(text))
        self.stepped = next(steps, 0)
        """The number of the last line with a bar that shows a step; 0 if there is none."""
        order = {rank: at for at, rank in enumerate(dict.fromkeys(line.rank for line in lines))}
        if len(order) > 1:
            lines.sort(key=lambda line: order[line.rank])
        self.lines = lines

    def with_lines(self, lines: list[LogLine]) -> NormalizedLog:
        """The same log with some of its lines."""
        other = NormalizedLog.__new__(NormalizedLog)
        other.lines, other.stepped = lines, self.stepped
        return other

    @cached_property
    def text(self) -> str:
        """The lines, separated by line ends."""
        return "\n".join(line.text for line in self.lines)

    @cached_property
    def lowered(self) -> tuple[str, ...]:
        """The text and `joined` in lower case, for a first search; offsets stay the same."""
        # The one character that would become two.
        return tuple(form.replace("\u0130", "i").lower() for form in (self.text, *self.joined))

    @cached_property
    def joined(self) -> tuple[str, ...]:
        """The text with broken lines joined: by a blank, and as their width suggests.

        Empty if no line looks broken. Offsets in it are for `index_in`, not for `index_at`.
        """
        joints = self._joints
        if not joints:
            return ()
        return (self._join(dict.fromkeys(joints, " ")), self._join(joints))

    @cached_property
    def only_joined(self) -> str:
        """The lines of `joined` that were joined, in lower case."""
        return "\n".join(
            lowered[start:end]
            for lowered, lines in zip(self.lowered[1:], self.joined_lines, strict=False)
            for start, end in lines
        )

    @cached_property
    def joined_lines(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """From and to which offsets of each of `joined` lines were joined."""
        found: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
        for form, text in enumerate(self.joined):
            end = -1
            for index in self._joints:
                start = self._joined_starts[form][index]
                if start > end:
                    end = text.find("\n", start)
                    end = end if end >= 0 else len(text)
                    found[form].append((start, end))
        return found

    @cached_property
    def _joints(self) -> dict[int, str]:
        """Indexes of lines that continue in the next one, and the text between the two."""
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

    def _join(self, joints: dict[int, str]) -> str:
        parts = []
        for index, line in enumerate(self.lines):
            text = line.text
            if index - 1 in joints:
                text = text.lstrip()
            parts.append(text + joints.get(index, "\n"))
        return "".join(parts).removesuffix("\n")

    def index_at(self, offset: int) -> int:
        """Index of the line at this offset of `text`."""
        return bisect_right(self._starts, offset) - 1

    def index_in(self, form: int, offset: int) -> int:
        """Index of the line at this offset of `joined[form]`."""
        return bisect_right(self._joined_starts[form], offset) - 1

    @cached_property
    def _starts(self) -> list[int]:
        starts, offset = [], 0
        for line in self.lines:
            starts.append(offset)
            offset += len(line.text) + 1
        return starts

    @cached_property
    def _joined_starts(self) -> tuple[list[int], list[int]]:
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
        for one in unwrap(line)
        for whole in (one.rstrip("\r").split("\r") if "\r" in one else (one,))
        for part in (_pieces(whole) if len(whole) > _LONGEST else (whole,))
    ]


def _unnumbered(lines: list[str]) -> list[str]:
    """The lines without the numbers that `grep -n` and editors put before each of them.

    The number of a process is before each line as well, but does not grow from line to line.
    """
    last = -1
    for line in lines:
        match = _NUMBERED.match(line)
        if match is None or int(match[1]) <= last:
            return lines
        last = int(match[1])
    return [_NUMBERED.sub("", line, count=1) for line in lines] if len(lines) > 1 else lines


def _goes_on(text: str, following: str) -> bool:
    """Prose that programs such as uv and rich break before a line is full."""
    indent = len(following) - len(following.lstrip())
    return (
        following[indent : indent + 1].islower()
        and len(text) - len(text.lstrip()) == indent
        and text[-1:] not in ".:;)]}"
        and "  File " not in text
    )


def _without_common_time(lines: list[LogLine]) -> list[LogLine]:
    """The lines without a time that every line has: it does not mark the beginning of a message."""
    if len(lines) > 1 and all(line.stamped for line in lines):
        return [line._replace(stamped=line.stamped - 1) for line in lines]
    return lines


def _without_unknown_prefix(lines: list[LogLine]) -> list[LogLine]:
    """The lines without what a collector that is not known here puts before those of a traceback.

    It is before the header and before the frame below it, with other digits at most.
    """
    found: set[str] = set()
    for line, below in pairwise(lines):
        at = line.text.find(_HEADER)
        if 0 < at <= _LONGEST_PREFIX and below.text.startswith('  File "', at):
            prefix = _DIGIT.sub("0", line.text[:at])
            if prefix.strip() and prefix == _DIGIT.sub("0", below.text[:at]):
                found.add(prefix)
    # A program has few; a hostile log could have one for each line.
    if not 0 < len(found) <= _PREFIXES:
        return lines
    return [line._replace(text=_without(line.text, found)) for line in lines]


def _without(text: str, prefixes: set[str]) -> str:
    for one in prefixes:
        if _DIGIT.sub("0", text[: len(one)]) == one:
            return text[len(one) :]
    return text


def _pieces(line: str) -> Iterator[str]:
    """A very long line in pieces, each of which repeats the end of the one before."""
    for start in range(0, len(line), _LONGEST - _SHARED):
        yield line[start : start + _LONGEST]


def _decoded(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("cp1252", "replace")


def _clean(number: int, text: str) -> list[LogLine]:
    """The line without its prefixes; nothing for a line that only draws."""
    text = _CONTROL.sub("", to_ascii(_uncoloured(text))).rstrip()
    if text.lstrip(" >").startswith("**"):
        text = _BOLD.sub(r"\1", text)
    if "%|" in text:
        text = _PROGRESS.sub("", text).strip()
        if not text:
            return []
    width = len(text)
    rank, stamped, failing, quiet = "", 0, False, False
    debug = _DEBUG in text
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
        failing = failing or _FAILING.search(match[0]) is not None
        quiet = quiet or (debug and _DEBUG in match[0])
        text = text[match.end() :]
    if _RULE.fullmatch(text) and "Traceback" not in text and not _PASSED.search(text):
        return []
    quiet = quiet or (debug and _QUIET.match(text) is not None)
    return [LogLine(number, text, rank, width, stamped, failing, quiet)]


def _uncoloured(text: str) -> str:
    if "\x1b" in text or "^[" in text:
        text = _ESCAPE.sub("", text)
    return _LOST.sub("", text) if "[0m" in text or "[m" in text else text


# Lines inside a line, and characters that look like others

#: Keys of a record with the text of the program, the most likely first.
_KEYS = ("log", "message", "msg", "MESSAGE", "text", "line", "textPayload", "error", "exc_info")
#: A literal `\n` where a message of Python continues, and not within a path such as `C:\new`.
_ESCAPED = re.compile(r"(?:\\r)?\\n(?=[ \t\\A-Z~^\"'`]|$)")
_TRACEBACK = "Traceback (most recent call last):\\n"
_QUOTE = re.compile(r"\\([\"'\\])")
#: A traceback that lost its line ends when it was pasted: its frames and its message.
_FOLDED = re.compile(r'Traceback \(most recent call last\):[ \t]+(?:\[rank\d{1,4}\]: *)?File "')
_FRAME = re.compile(
    r'(?<!\]:)[ \t]+(?=(?:\[rank\d{1,4}\]: *)?File "[^"\n]{1,300}", line \d{1,7}\b)'
    r"|(?<!:)[ \t]+(?=(?:\[rank\d{1,4}\]: *)?(?:[a-z_]\w{0,40}\.){0,8}"
    r"[A-Z]\w{0,60}(?:Error|Exception): )"
    r"|[ \t]+(?=During handling of the above|The above exception was)"
)
#: A frame and its code. Web pages leave out `<module>`, as they take it for a tag.
_WITH_CODE = re.compile(r'(File "[^"]+", line \d+, in (?!from |import )(?:\w+|<\w+>)) (\S.*)')
#: Words in bold type.
_BOLD = re.compile(r"\*\*(\S(?:[^*\n]{0,2000}[^*\s])?)\*\*")
#: Line ends in a cell of a table, each line of which may be set as code.
_BREAK = re.compile(r"`?<br ?/?>`?")
#: Characters that look like ASCII ones, also the quotes in messages of other languages.
_ALIKE: dict[int, str] = str.maketrans(
    {
        **dict.fromkeys("\u00a0\u2002\u2003\u2007\u2009\u202f\u3000", " "),
        **dict.fromkeys("\u2018\u2019\u201a\u2032", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u2033", '"'),
        **dict.fromkeys("\u2010\u2011", "-"),
        # Full-width forms, as input methods for Chinese and Japanese write them.
        **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
        "\u3001": ",",
        "\u3002": ".",
        **dict.fromkeys("\u300c\u300d\u300e\u300f", '"'),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", ""),
    }
)
_ENTITY = re.compile(r"&(amp|lt|gt|quot|apos|nbsp|#39|#x27|#34|#x22);")
_ENTITIES = {
    "amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'", "nbsp": " ",
    "#39": "'", "#x27": "'", "#34": '"', "#x22": '"',
}  # fmt: skip


def to_ascii(text: str) -> str:
    """The text with ASCII blanks and quotes, and without the entities of HTML."""
    if not text.isascii():
        text = text.translate(_ALIKE)
    if "&" in text and ";" in text:
        text = _ENTITY.sub(lambda match: _ENTITIES[match[1]], text)
    return text


def unwrap(line: str) -> Sequence[str]:
    """The lines in one line: the line itself, unless it is a record or lost its line ends."""
    if line.startswith("{") and line.rstrip().endswith("}") and '":' in line:
        found = _record(line)
        if found:
            return found
    if "\\n" in line and (_TRACEBACK in line or line.count("\\n  ") > 1):
        return [_QUOTE.sub(r"\1", part) for part in _ESCAPED.split(line)]
    row = line.lstrip().startswith("|")
    if line.count("<br") > (not row) and len(parts := _BREAK.split(line)) > 1:
        first, *middle, last = parts
        cell = first.rsplit(" | ", 1)[-1] if row else first
        return [cell.lstrip("`"), *middle, last.rstrip("`| ")]
    folded = "(most recent call last):" in line and _FOLDED.search(line)
    if folded or line.count('File "') > 1:
        return [one for part in _FRAME.split(line) for one in _frame(part)]
    return (line,)


def _frame(part: str) -> Iterator[str]:
    """A frame that lost its line end, and its line of code; any other part as it is."""
    if not part.startswith("File"):
        yield part
    elif match := _WITH_CODE.fullmatch(part):
        yield f"  {match[1]}"
        yield f"    {match[2]}"
    else:
        yield f"  {part}"


def _record(line: str) -> list[str]:
    """The text of a record in JSON; empty if it is not a record or has no text."""
    try:
        record = decode(line)
    except JsonError:
        return []
    texts = list(_texts(record))
    return [part for text in texts for part in text.removesuffix("\n").split("\n")]


def _texts(record: Any) -> Iterator[str]:
    if not isinstance(record, dict):
        return
    for key in _KEYS:
        value = record.get(key)
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from _texts(value)
