"""Reads parts of a file by position, and refuses what lies outside it.

`os.pread` rather than a memory map: a map of a file that pip replaces or cuts short at this moment
kills the process with SIGBUS.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from struct import Struct
from typing import Any

#: Bytes of the longest single piece; nothing that is asked for here comes near it.
MOST = 1 << 24


class DamagedError(ValueError):
    """The file is not what its headers say."""


class Window:
    """An open file; `close` it.

    Raises `OSError` if the file cannot be opened or read, `DamagedError` for places outside it.
    """

    def __init__(self, path: str) -> None:
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
        self._file = os.open(path, flags | getattr(os, "O_CLOEXEC", 0))
        self.size = os.fstat(self._file).st_size

    def close(self) -> None:
        """Close the file; closing it twice does no harm."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def take(self, start: int, length: int) -> bytes:
        """Exactly `length` bytes from `start`."""
        if start < 0 or length < 0 or length > MOST or start + length > self.size:
            raise DamagedError(f"{length} bytes at {start} lie outside the file of {self.size}")
        piece = _pread(self._file, length, start)
        if len(piece) != length:
            raise DamagedError(f"the file ends within {length} bytes at {start}")
        return piece

    def unpack(self, form: Struct, start: int) -> tuple[Any, ...]:
        """The values of one structure at `start`."""
        return form.unpack(self.take(start, form.size))

    def text(self, start: int, end: int, most: int = 4096) -> bytes:
        """The bytes from `start` to the next zero byte before `end`, at most `most` of them."""
        piece = self.take(start, max(0, min(most, end - start, self.size - start)))
        head, zero, _ = piece.partition(b"\0")
        if not zero:
            raise DamagedError(f"the name at {start} has no end")
        return head


class Nearby:
    """The part of a file from one place on, read at once, for tables of small structures."""

    #: Bytes kept; what lies elsewhere is read by itself.
    LENGTH = 8192

    def __init__(self, window: Window, start: int) -> None:
        self._window, self._start = window, start
        self._piece = window.take(start, max(0, min(self.LENGTH, window.size - start)))

    def unpack(self, form: Struct, start: int) -> tuple[Any, ...]:
        """The values of one structure at `start`."""
        inner = start - self._start
        if 0 <= inner <= len(self._piece) - form.size:
            return form.unpack_from(self._piece, inner)
        return self._window.unpack(form, start)


def _seek_and_read(file: int, length: int, start: int) -> bytes:
    """`os.pread` for Windows, which has none; a `Window` belongs to one thread."""
    os.lseek(file, start, os.SEEK_SET)
    return os.read(file, length)


_pread: Callable[[int, int, int], bytes] = getattr(os, "pread", _seek_and_read)
