"""Open, read and replace files: the one place where a file that others may have made is opened.

A path in the environment, in a project or in a cache may lead to anything. So only regular files
are read: a pipe would block for ever, and a device has side effects. What is read is bounded.
A file is replaced in one step: a reader sees the old content or the new one, never a part of it.

Only the standard library is used, because workers in the examined interpreter use files too.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Union

from attn_doctor.worker import reach

AnyPath = Union[str, "os.PathLike[str]"]

#: Bytes of a file that a person writes: a configuration, a rule, a source file.
TEXT = 2 << 20
#: Bytes of a file that a program writes: a record, a report, a list of files.
DATA = 64 << 20

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
#: O_NONBLOCK: without it, opening a pipe waits for a writer. O_NOCTTY: a terminal stays unused.
_READ = os.O_RDONLY
for _name in ("O_NONBLOCK", "O_NOCTTY", "O_BINARY"):
    _READ |= getattr(os, _name, 0)
_NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
#: Bytes that are read at once if the size of a file is not known, as in /proc.
_PIECE = 1 << 16


def open_file(path: AnyPath, *, follow: bool = True) -> int:
    """Open a regular file for reading and return its descriptor. Never waits for a writer.

    `follow`: follow a symbolic link at the end of `path`. Raises `OSError`, whose `strerror` says
    what the path is if it is not a regular file; `ValueError` never, also for a NUL in `path`.
    """
    reach.refuse(path)
    try:
        handle = os.open(path, _READ if follow else _READ | _NO_LINK)
    except ValueError as error:  # a NUL in the path
        raise OSError(errno.EINVAL, str(error), os.fspath(path)) from None
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing listens at a socket
            raise _refused(path, "a socket") from None
        if error.errno == errno.EACCES and os.name == "nt" and os.path.isdir(path):
            raise _is_a_folder(path) from None  # Windows opens no folders
        raise
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise _is_a_folder(path)
    raise _refused(path, _KINDS.get(stat.S_IFMT(mode), "a special file"))


def open_binary(path: AnyPath, *, follow: bool = True) -> IO[bytes]:
    """Open a regular file as `open(path, "rb")` does. Raises `OSError` as `open_file` does."""
    return os.fdopen(open_file(path, follow=follow), "rb")


def is_file(path: AnyPath) -> bool:
    """Whether a regular file is there. False for a path that does not answer or is too long."""
    return not reach.dead(path) and os.path.isfile(path)


def is_folder(path: AnyPath) -> bool:
    """Whether a folder is there, as `is_file` says."""
    return not reach.dead(path) and os.path.isdir(path)


def read_bytes(path: AnyPath, limit: int, *, cut: bool = False, follow: bool = True) -> bytes:
    """Return the content of a regular file of at most `limit` bytes.

    `cut`: return the first `limit` bytes of a larger file; otherwise that is an `OSError`.
    """
    handle = open_file(path, follow=follow)
    try:
        size = os.fstat(handle).st_size
        if size > limit and not cut:
            raise _too_large(path, size, limit)
        data = _read(handle, limit + (not cut), size)
    finally:
        os.close(handle)
    if len(data) > limit:  # it grew, or its size is not known
        raise _too_large(path, len(data), limit)
    return data


def read_text(path: AnyPath, limit: int, *, cut: bool = False) -> str:
    """Return the text of a file as `read_bytes` does; bytes that are not UTF-8 are replaced."""
    return read_bytes(path, limit, cut=cut).decode("utf-8", "replace")


def read_lines(path: AnyPath, limit: int) -> Iterator[bytes]:
    """Yield the first `limit` bytes of a regular file in pieces that end with a line's end.

    All pieces together need less memory than the file: a new page of memory costs as much time as
    to search it. Raises `OSError` as `open_file` does.
    """
    handle = open_file(path)
    size = _PIECE
    try:
        while limit > 0 and (data := os.read(handle, min(limit, size))):
            end = data.rfind(b"\n") + 1
            if not end and len(data) == size:  # a long line: begin again with a larger piece
                os.lseek(handle, -size, os.SEEK_CUR)
                size *= 2
                continue
            if 0 < end < len(data):
                os.lseek(handle, end - len(data), os.SEEK_CUR)
                data = data[:end]
            limit -= len(data)
            yield data
    finally:
        os.close(handle)


def _read(handle: int, most: int, size: int) -> bytes:
    """Up to `most` bytes of an open file that says that it has `size`."""
    data = os.read(handle, min(most, max(size, _PIECE)))
    if len(data) == size or not data:
        return data
    parts = [data]
    left = most - len(data)
    while left > 0 and (data := os.read(handle, min(left, _PIECE))):
        parts.append(data)
        left -= len(data)
    return b"".join(parts)


def _refused(path: AnyPath, what: str) -> OSError:
    return OSError(errno.EINVAL, f"it is {what}, not a regular file", os.fspath(path))


def _is_a_folder(path: AnyPath) -> OSError:
    return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))


def _too_large(path: AnyPath, size: int, limit: int) -> OSError:
    reason = f"it has {_amount(size)}, and at most {_amount(limit)} are read"
    return OSError(errno.EFBIG, reason, os.fspath(path))


def _amount(size: int) -> str:
    """A number of bytes in the largest unit of which there is at least one."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >> shift:
            return f"{size >> shift} {unit}"
    return f"{size} bytes"


def write_atomic(
    path: AnyPath, data: bytes, mode: int | None = None, *, durable: bool = True
) -> None:
    """Write `data` to `path` as `replacing` does. The folder has to exist. Raises `OSError`."""
    with replacing(path, mode, durable=durable) as file:
        file.write(data)


@contextmanager
def replacing(
    path: AnyPath, mode: int | None = None, *, durable: bool = True, new: bool = False
) -> Iterator[IO[bytes]]:
    """Open a draft beside `path` for writing, and rename it to `path` at the end of the block.

    `mode`: permissions of the new file, exactly; None: as the umask decides. `durable`: bring file
    and folder to the disk, so that the file survives a power loss. `new`: raise `FileExistsError`
    if `path` exists in the end. On any exception the draft is removed and `path` stays unchanged.
    Raises `OSError`.
    """
    reach.refuse(path)
    folder, name = os.path.split(os.fspath(path))
    # The name is cut: with the rest it may be longer than a file system takes.
    draft = os.path.join(folder, f".{name[:40]}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    # O_EXCL: a link that lies in wait under this name is not followed.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(draft, flags, 0o666 if mode is None else mode)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if mode is not None:
            os.chmod(draft, mode)  # the umask may have removed bits
        _settle(draft, path, new=new)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise
    if durable:
        sync(folder or os.curdir)


def make_folders(root: AnyPath, names: Iterable[str]) -> None:
    """Make the folders `names`, each inside the one before, below `root`, which has to exist.

    A link in the place of one is not followed. Raises `OSError`.
    """
    path = os.fspath(root)
    for name in names:
        path = os.path.join(path, name)
        with suppress(FileExistsError):
            os.mkdir(path)
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise NotADirectoryError(
                errno.ENOTDIR, "is a link or a file; nothing is written through it: remove it", path
            )


def _settle(draft: str, path: AnyPath, *, new: bool) -> None:
    if new:
        try:
            os.link(draft, path)
            os.unlink(draft)
            return
        except FileExistsError:
            raise
        except OSError:  # this file system has no hard links: take the name, then fill it
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    os.replace(draft, path)


def sync(path: AnyPath) -> None:
    """Bring a file, or the names in a folder, to the disk, where the system offers that.

    Windows opens no folders, and flushes no file that is open for reading only.
    """
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
