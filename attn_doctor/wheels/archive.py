"""Opens the zip archive of a wheel whose author may be anybody, in a bounded amount of memory.

`zipfile` reads the list of files at once, however long it is, and unpacks bzip2 and LZMA without a
limit: 1,600 bytes become 2 GB. So the list has a limit, and only the two compressions that tools
for wheels write are read.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from typing import IO, Any, cast

from attn_doctor.wheels.ranges import RemoteFile, WheelError

#: Bytes of the list of files. Torch's wheels have 2 MB for 15,000 files.
_LISTED = 16 << 20
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
#: What `zipfile` raises for a damaged archive: RuntimeError for encrypted files, ValueError for
#: names that are not UTF-8.
DAMAGE = (
    *(zipfile.BadZipFile, EOFError, IndexError, NotImplementedError, OverflowError),
    *(RuntimeError, ValueError, struct.error, zlib.error),
)


def open_archive(file: IO[bytes] | RemoteFile) -> zipfile.ZipFile:
    """Open the archive in `file`.

    Raises `zipfile.BadZipFile` for every kind of damage, `WheelError` for a server that fails.
    """
    bounded = _Bounded(file)
    try:
        archive = zipfile.ZipFile(cast("IO[bytes]", bounded))
    except WheelError:
        raise
    except DAMAGE as error:
        raise zipfile.BadZipFile(str(error)) from None
    bounded.limited = False
    for info in archive.infolist():
        if not info.filename:
            raise zipfile.BadZipFile("a file in it has no name")
        if info.compress_type not in _COMPRESSIONS:
            raise zipfile.BadZipFile(
                f"{info.filename} is compressed by method {info.compress_type}, which no tool for"
                " wheels uses"
            )
    return archive


def content(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return a file of the archive, at most as many bytes as the list says.

    Raises `zipfile.BadZipFile` as `open_archive` does.
    """
    try:
        with archive.open(info) as member:
            return member.read(info.file_size)
    except WheelError:
        raise
    except DAMAGE as error:
        raise zipfile.BadZipFile(str(error)) from None


class _Bounded:
    """A file of which `_LISTED` bytes at most are read at once, while it is `limited`."""

    def __init__(self, file: IO[bytes] | RemoteFile) -> None:
        self._file, self.limited = file, True

    def read(self, size: int = -1) -> bytes:
        if self.limited and size > _LISTED:
            raise zipfile.BadZipFile(
                f"its list of files has {size >> 20} MiB, and at most {_LISTED >> 20} MiB are read"
            )
        return self._file.read(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
