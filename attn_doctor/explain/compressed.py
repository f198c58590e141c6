"""Unpacks compressed logs while they are read: gzip, xz, bzip2, and zstd from Python 3.14 on.

A packed log is read like a plain one of its size: piece by piece, up to `MOST` bytes.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple, Protocol

#: Bytes that a log may unpack to. A larger one was made to fill a machine.
MOST = 4 << 30
#: Bytes of memory for xz, whose files say how much they need; `xz -9` takes 65 MiB.
_MEMORY = 256 << 20
#: First bytes of archives, and what each is.
_ARCHIVES = {b"PK\3\4": "a zip archive", b"7z\xbc\xaf\x27\x1c": "a 7z archive"}


class UnreadableError(Exception):
    """A file is not a log that can be read; the message completes `FILE …`."""


class _Decompressor(Protocol):
    """As in lzma and bz2."""

    eof: bool
    needs_input: bool
    unused_data: bytes

    def decompress(self, data: bytes, most: int) -> bytes: ...


class _Gzip:
    """zlib's decompressor with the interface of the others."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, most: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, most)


class _Form(NamedTuple):
    """A form of compression."""

    name: str
    magic: bytes
    unpack: str
    """The command that unpacks a file."""
    make: Callable[[], Any]


def _xz() -> Any:
    return importlib.import_module("lzma").LZMADecompressor(memlimit=_MEMORY)


_FORMS = (
    _Form("gzip", b"\x1f\x8b\x08", "gzip -dk", _Gzip),
    _Form("xz", b"\xfd7zXZ\0", "xz -dk", _xz),
    _Form("bzip2", b"BZh", "bzip2 -dk", lambda: importlib.import_module("bz2").BZ2Decompressor()),
    _Form(
        "zstd",
        b"\x28\xb5\x2f\xfd",
        "zstd -dk",
        lambda: importlib.import_module("compression.zstd").ZstdDecompressor(),
    ),
)


def pieces(stream: IO[bytes], size: int) -> Iterator[bytes]:
    """The bytes of `stream`, unpacked, in pieces of at most `size` bytes.

    Raises `UnreadableError` for a damaged stream, an archive, and one that is too large.
    """
    head = stream.read(size)
    form = next((one for one in _FORMS if head.startswith(one.magic)), None)
    if form is None:
        _refuse_archive(head)
        while head:
            yield head
            head = stream.read(size)
        return
    total = 0
    for number, data in enumerate(_unpacked(form, head, stream, size)):
        if not number:
            _refuse_archive(data)
        total += len(data)
        if total > MOST:
            raise UnreadableError(
                f"unpacks to more than {MOST >> 30} GiB; name the part of the failure"
            )
        yield data


def _unpacked(form: _Form, data: bytes, stream: IO[bytes], size: int) -> Iterator[bytes]:
    """Unpack one stream after another. One that is cut short ends where it was cut."""
    while data.startswith(form.magic):
        try:
            inner: _Decompressor = form.make()
        except ImportError:
            raise UnreadableError(
                f"is packed with {form.name}, which this Python cannot unpack; unpack it with"
                f" `{form.unpack}` first"
            ) from None
        while not inner.eof:
            try:
                found = inner.decompress(data, size)
            except Exception as error:  # each module has errors of its own
                raise UnreadableError(f"cannot be unpacked ({form.name}: {error})") from None
            if found:
                yield found
            data = stream.read(size) if inner.needs_input and not inner.eof else b""
            if inner.needs_input and not inner.eof and not data and not found:
                return
        data = inner.unused_data.lstrip(b"\0")
        data += stream.read(size) if len(data) < len(form.magic) else b""


def _refuse_archive(head: bytes) -> None:
    """Raise `UnreadableError` if these are the first bytes of an archive of files."""
    found = next((what for magic, what in _ARCHIVES.items() if head.startswith(magic)), "")
    if head[257:262] == b"ustar":
        found = "a tar archive"
    if found:
        raise UnreadableError(f"is {found}; unpack it, and name the log in it")
