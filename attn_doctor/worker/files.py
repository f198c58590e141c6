"""Replace a file in one step: a reader sees the old content or the new one, never a part of it.

Only the standard library is used, because workers in the examined interpreter write files too.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Union

AnyPath = Union[str, "os.PathLike[str]"]


def write_atomic(
    path: AnyPath, data: bytes, mode: int | None = None, *, durable: bool = True
) -> None:
    """Write `data` to `path` as `replacing` does. The folder has to exist. Raises `OSError`."""
    with replacing(path, mode, durable=durable) as file:
        file.write(data)


@contextmanager
def replacing(
    path: AnyPath, mode: int | None = None, *, durable: bool = True
) -> Iterator[IO[bytes]]:
    """Open a draft beside `path` for writing, and rename it to `path` at the end of the block.

    `mode`: permissions of the new file, exactly; None: as the umask decides. `durable`: bring file
    and folder to the disk, so that the file survives a power loss. On any exception the draft is
    removed and `path` stays unchanged. Raises `OSError`.
    """
    folder, name = os.path.split(os.fspath(path))
    draft = os.path.join(folder, f".{name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
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
        os.replace(draft, path)
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
