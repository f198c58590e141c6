"""Reads the libraries of a wheel, at a URL or on disk, without downloading all of it."""

from __future__ import annotations

import os
import posixpath
import re
import time
import zipfile
from contextlib import closing
from typing import IO
from urllib.parse import unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.binaries import fatbin
from attn_doctor.binaries.architectures import order
from attn_doctor.binaries.unresolved import of_torch
from attn_doctor.binaries.window import DamagedError
from attn_doctor.files import open_binary
from attn_doctor.wheels import tables
from attn_doctor.wheels.archive import DAMAGE, open_archive
from attn_doctor.wheels.front import Front, TooFarError
from attn_doctor.wheels.ranges import RemoteFile, TooMuchError, WheelError

#: Share of a wheel that is fetched at most, and the bytes that may be fetched of a small one.
SHARE, LEAST = 0.05, 4 << 20
#: Fat binaries that are read of each library: all are compiled for the same GPUs, as a rule.
_BINARIES = 4
#: A wheel with more files, or more libraries, is not read.
_MOST_FILES, _MOST_LIBRARIES = 200_000, 400
_LIBRARY = re.compile(r"\.so(\.\d+)*$|\.(pyd|dylib)$")
#: Libraries of others that a wheel brings along; they do not use torch.
_BUNDLED = re.compile(r"(^|/)([\w.-]+\.libs|nvidia|\.dylibs)/")
_MAGIC = b"\x50\xed\x55\xba"


class Library(Struct, frozen=True, kw_only=True):
    """One shared library of a wheel."""

    path: str
    """In the wheel."""
    torch_symbols: tuple[str, ...] | None = None
    """Symbols of torch that it needs, mangled; None if they could not be read."""
    needed: tuple[str, ...] = ()
    """Libraries that it needs."""
    exported: frozenset[int] = frozenset()
    """Hashes of the names that it defines (GNU's, with the lowest bit set)."""
    gpu_code: tuple[str, ...] | None = None
    """GPU architectures with machine code in its first fat binaries; `+PTX` follows those with PTX.
    None if they were not read."""
    unread: str = ""
    """Why the symbols could not be read."""


class WheelReading(Struct, frozen=True, kw_only=True):
    """What was read of a wheel."""

    name: str
    """File name."""
    size: int
    """Bytes of the wheel."""
    fetched: int
    """Bytes that were received to read it; 0 for a file on disk."""
    libraries: tuple[Library, ...]


def read(source: str, *, gpu_code: bool = False, seconds: float = 120.0) -> WheelReading:
    """Read the wheel at `source`, a URL or a path. At most `SHARE` of it is fetched, or `LEAST`.

    `gpu_code` also reads for which GPUs its libraries have code, which takes most of these bytes.
    `seconds`: limit for all. Raises `WheelError` with the reason if it cannot be read.
    """
    deadline = time.monotonic() + seconds
    if "://" not in source:
        try:
            with open_binary(source) as file:
                size = file.seek(0, 2)
                found = _read(file, deadline, gpu_code=gpu_code)
                return WheelReading(
                    name=os.path.basename(source), size=size, fetched=0, libraries=found
                )
        except OSError as error:
            raise WheelError(error.strerror or str(error)) from None
    name = posixpath.basename(unquote(urlsplit(source).path))
    with closing(RemoteFile(source, limit=LEAST, deadline=deadline)) as remote:
        remote.limit = max(LEAST, int(remote.size * SHARE))
        found = _read(remote, deadline, gpu_code=gpu_code)
        return WheelReading(name=name, size=remote.size, fetched=remote.fetched, libraries=found)


def _read(file: IO[bytes] | RemoteFile, deadline: float, *, gpu_code: bool) -> tuple[Library, ...]:
    members = libraries_of(file)
    # The small ones first, so that a large one that exceeds the limit does not hide them.
    members.sort(key=lambda one: one.info.compress_size)
    found = []
    for one in members:
        if time.monotonic() > deadline:
            raise WheelError("reading it takes too long")
        found.append(_library(one, gpu_code=gpu_code))
    return tuple(sorted(found, key=lambda one: one.path))


class Member(Struct, frozen=True):
    """A library in an open archive."""

    archive: zipfile.ZipFile
    info: zipfile.ZipInfo

    def front(self) -> Front:
        """Open it at its start. Raises `WheelError`."""
        try:
            return Front(self.archive.open(self.info), self.info.file_size)
        except WheelError:
            raise
        except DAMAGE as error:
            raise WheelError(f"the archive is damaged: {error}") from None


def libraries_of(file: IO[bytes] | RemoteFile) -> list[Member]:
    """Return the shared libraries in an archive. Raises `WheelError` if it is not one."""
    try:
        archive = open_archive(file)
    except zipfile.BadZipFile as error:
        raise WheelError(f"it is not a wheel, or a damaged one: {error}") from None
    infos = archive.infolist()
    found = [info for info in infos if _LIBRARY.search(info.filename)]
    if len(infos) > _MOST_FILES or len(found) > _MOST_LIBRARIES:
        raise WheelError(f"it has {len(infos)} files, {len(found)} of them libraries: too many")
    return [Member(archive, info) for info in found]


def _library(member: Member, *, gpu_code: bool) -> Library:
    path = member.info.filename
    if _BUNDLED.search(path):
        return Library(path=path, torch_symbols=())
    if path.endswith((".pyd", ".dylib")):
        return Library(path=path, unread="only libraries for Linux are read")
    try:
        with closing(member.front()) as window:
            found = _symbols(window, path, member.info.compress_size)
            if gpu_code and found.torch_symbols:
                return replace(found, gpu_code=_gpu_code(window))
            return found
    except (DamagedError, WheelError) as error:
        return Library(path=path, unread=str(error))


def _symbols(window: Front, path: str, compressed: int) -> Library:
    end = tables.front_end(window)
    try:
        table = tables.hashes(window, end)
        found, exported = tables.needs(window, table, end), table.exported()
    except tables.MovedError:
        found, exported = _of_whole(window, compressed)
    torch = tuple(name.decode("utf-8", "replace") for name in found.symbols if of_torch(name))
    return Library(path=path, torch_symbols=torch, needed=found.libraries, exported=exported)


def _of_whole(window: Front, compressed: int) -> tuple[tables.Needs, frozenset[int]]:
    try:
        window.reach(window.size)
    except WheelError as error:
        if window.have == window.size or not isinstance(error, (TooMuchError, TooFarError)):
            raise
        raise WheelError(
            "the names of its symbols are at its end, behind all the"
            f" {compressed / 1e6:.0f} MB before it"
        ) from None
    return tables.of_whole(window)


def _gpu_code(window: Front) -> tuple[str, ...] | None:
    """Read the first fat binaries, as far as the limit allows; None if none was reached."""
    place = window.have // 8 * 8
    try:
        while True:
            stop = min(window.size, place + (1 << 20))
            found = window.find(_MAGIC, max(0, place - 8), stop)
            if found >= 0 and found % 8 == 0:
                break
            if found < 0 and stop == window.size:
                return ()
            place = stop if found < 0 else found + 4
        code = fatbin.walk(_Limited(window), [(found, window.size - found)], _BINARIES)
    except WheelError:
        return None
    ptx = (f"{name}+PTX" for name in order(code.ptx))
    return (*order(code.cubins), *ptx) or None


class _Limited(Front):
    """The same member; the limit on what is fetched ends it like the end of the file."""

    def __init__(self, window: Front) -> None:
        self._window, self.size = window, window.size
        self._file = -1

    def take(self, start: int, length: int) -> bytes:
        try:
            return self._window.take(start, length)
        except WheelError as error:
            raise DamagedError(str(error)) from None
