"""Reads parts of a file by position, and refuses positions outside it.

It uses `os.pread`, not a memory map: if pip replaces or truncates the file at that moment, a memory
map kills the process with SIGBUS.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from struct import Struct
from typing import Any

from attn_doctor.worker.files import open_file

#: Highest number of bytes in one read; no real read is nearly as large.
MOST = 1 << 24
#: The fault of a file that was cut short, as `too_short` writes it.
TOO_SHORT = re.compile(r"it ends after (\d+) of at least (\d+) bytes")
#: Bytes in a page of memory. Where a whole page is missing, reading it ends the process.
_PAGE = 4096


class DamagedError(ValueError):
    """The file contradicts its headers."""


def too_short(size: int, least: int) -> str:
    """Return what is wrong with a file of `size` bytes whose headers ask for `least`."""
    return f"it ends after {size} of at least {least} bytes"


def ends_process(fault: str) -> bool:
    """Whether loading a library with this fault ends the process: a page of it is missing."""
    short = TOO_SHORT.match(fault)
    return short is not None and _pages(short[1]) < _pages(short[2])


def _pages(size: str) -> int:
    return -(-int(size) // _PAGE)


class Window:
    """An open file; `close` it.

    Raises `OSError` if the file cannot be opened or read, `DamagedError` for places outside it.
    """

    def __init__(self, path: str) -> None:
        self._file = open_file(path)
        self.size = os.fstat(self._file).st_size

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def take(self, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start`."""
        if start < 0 or length < 0 or length > MOST:
            raise DamagedError(f"{length} bytes at {start} cannot be read")
        if start + length > self.size:
            raise DamagedError(too_short(self.size, start + length))
        piece = _pread(self._file, length, start)
        if len(piece) != length:
            raise DamagedError(f"the file ends within {length} bytes at {start}")
        return piece

    def unpack(self, form: Struct, start: int) -> tuple[Any, ...]:
        """Return the values of one structure at `start`."""
        return form.unpack(self.take(start, form.size))

    def text(self, start: int, end: int, most: int = 4096) -> bytes:
        """Return the bytes from `start` to the next zero byte before `end`, at most `most`."""
        piece = self.take(start, max(0, min(most, end - start, self.size - start)))
        head, zero, _ = piece.partition(b"\0")
        if not zero:
            raise DamagedError(f"the name at {start} has no end")
        return head


class Nearby:
    """A part of a file that is read at once, for tables of small structures."""

    #: Bytes that are kept; other positions are read one by one.
    LENGTH = 8192

    def __init__(self, window: Window, start: int) -> None:
        self._window, self._start = window, start
        self._piece = window.take(start, max(0, min(self.LENGTH, window.size - start)))

    def unpack(self, form: Struct, start: int) -> tuple[Any, ...]:
        """Return the values of one structure at `start`."""
        inner = start - self._start
        if 0 <= inner <= len(self._piece) - form.size:
            return form.unpack_from(self._piece, inner)
        return self._window.unpack(form, start)


def _seek_and_read(file: int, length: int, start: int) -> bytes:
    """Replace `os.pread` on Windows, which has none; a `Window` is used by one thread."""
    os.lseek(file, start, os.SEEK_SET)
    return os.read(file, length)


_pread: Callable[[int, int, int], bytes] = getattr(os, "pread", _seek_and_read)
