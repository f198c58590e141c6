"""Read logs of any size and encoding as chunks of whole lines, never a whole log at once.

In the bytes of a chunk every ASCII character is one byte: UTF-8, or an older one-byte encoding.
UTF-16, which PowerShell writes at `>`, is converted to UTF-8. Packed logs are unpacked.
"""

from __future__ import annotations

import codecs
import itertools
import sys
from collections.abc import Iterator
from typing import IO, NamedTuple

from attn_doctor.errors import AttnDoctorError
from attn_doctor.explain.compressed import UnreadableError, pieces
from attn_doctor.files import open_binary

#: Bytes read at once; small enough that a chunk and its words stay in the processor's cache.
CHUNK = 1 << 16
#: Most lines of a chunk: to read short lines closely costs more than their bytes tell.
_LINES = 2048
#: Characters that no program prints. Of random bytes they are 9 of 100, of programs and pictures
#: more. Backspaces, colours and NUL, which a log that was cut while open begins with, are common.
_NOISE = bytes([*range(1, 7), *range(16, 27), *range(28, 32), 127])


class LogChunk(NamedTuple):
    """Some whole lines of a log."""

    first: int
    """Number of its first line, from 1."""
    data: bytes
    """Its lines, each with ``\\n`` at the end; the last line of a log may have none."""
    counted: int = -1
    """Line ends in `data`, with those of progress bars; -1 before they are counted."""

    @property
    def ends(self) -> int:
        """Line ends, with those of progress bars. To count them takes as long as to read them."""
        return self.counted if self.counted >= 0 else _ends(self.data)


def log_name(path: str) -> str:
    """The name of the log at `path` in messages."""
    return "standard input" if path == "-" else path


def chunks(path: str) -> Iterator[LogChunk]:
    """The chunks of the log at `path`, or of standard input for ``-``.

    Raises `AttnDoctorError` with one sentence if it cannot be read.
    """
    try:
        if path == "-":
            yield from _numbered(_whole_lines(_one_byte(sys.stdin.buffer)))
            return
        with open_binary(path) as file:
            yield from _numbered(_whole_lines(_one_byte(file)))
    except UnreadableError as error:
        raise AttnDoctorError(f"{log_name(path)} {error}") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        advice = "" if path == "-" else "; name a log file, or - for standard input"
        raise AttnDoctorError(f"{log_name(path)} cannot be read: {reason}{advice}") from None


def _one_byte(stream: IO[bytes]) -> Iterator[bytes]:
    """The bytes of the stream, with UTF-16 converted to UTF-8."""
    parts = pieces(stream, CHUNK)
    head = next(parts, b"")
    encoding = _encoding(head)
    if not encoding:
        if _is_noise(head):
            raise UnreadableError("is not a log: it has bytes that no program prints as text")
        yield head.removeprefix(codecs.BOM_UTF8)
        for data in parts:
            # Two programs with two encodings may have written to one file.
            yield data.replace(b"\0", b"") if b"\0" in data else data
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for data in itertools.chain([head], parts):
        yield decoder.decode(data).lstrip("\ufeff").encode("utf-8", "replace")


def _is_noise(head: bytes) -> bool:
    """The first bytes of a file are those of a program, a picture or the like."""
    text = head.replace(b"\0", b"")
    odd = len(text) - len(text.translate(None, _NOISE))
    return odd > 20 and odd * 50 > len(text)


def _encoding(head: bytes) -> str:
    """`utf-16-…` if the log is in UTF-16, else an empty text."""
    if head.startswith(codecs.BOM_UTF16_LE):
        return "utf-16-le"
    if head.startswith(codecs.BOM_UTF16_BE):
        return "utf-16-be"
    sample = head[:4096]
    even, odd = sample[::2], sample[1::2]
    # Programs are full of zeros too.
    if odd.count(0) * 3 > len(sample) and not _is_noise(even):
        return "utf-16-le"
    if even.count(0) * 3 > len(sample) and not _is_noise(odd):
        return "utf-16-be"
    return ""


def _whole_lines(parts: Iterator[bytes]) -> Iterator[tuple[bytes, int]]:
    """Whole lines of the parts, with their number of line ends."""
    rest = b""
    for part in parts:
        data = rest + part
        cut = data.rfind(b"\n") + 1
        if not cut and len(data) > CHUNK:
            # A progress bar may rewrite one line for hours. Any other line is cut anywhere.
            cut = data.rfind(b"\r") + 1 or len(data)
        if cut:
            yield from _few_lines(data[:cut])
        rest = data[cut:]
    if rest:
        yield rest, _ends(rest)


def _few_lines(data: bytes) -> Iterator[tuple[bytes, int]]:
    """The bytes, cut at ends of lines where they have too many."""
    counted = _ends(data)
    parts = 1 + counted // _LINES
    if parts == 1:
        yield data, counted
        return
    ends = data.replace(b"\r", b"\n") if b"\r" in data else data
    size, start = len(data) // parts + 1, 0
    while end := ends.find(b"\n", start + size) + 1:
        yield data[start:end], ends.count(b"\n", start, end)
        start = end
    if start < len(data):
        yield data[start:], ends.count(b"\n", start)


def _ends(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r")


def _numbered(parts: Iterator[tuple[bytes, int]]) -> Iterator[LogChunk]:
    number = 1
    for data, ends in parts:
        yield LogChunk(number, data, ends)
        number += ends - data.count(b"\r")
