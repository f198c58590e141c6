"""Copies a folder at almost no cost, and compares it with its copy.

Files are hard-linked, not copied, into a folder beside it: installers replace files and never write
into them, so a link keeps the old contents. Files that a program might write into (`.pth` files and
metadata) are copied, and so are all files where links are impossible.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Collection

from attn_doctor.files import open_binary
from attn_doctor.fixes.path_state import walk

#: Files up to this size at the top of a folder, and metadata, are copied.
_SMALL = 1 << 16


def keep(folder: str, copy: str) -> None:
    """Make `copy` a copy of `folder`; of a folder that is missing, nothing.

    Raises `OSError`; what was copied until then remains.
    """
    if not os.path.lexists(folder):
        return
    os.makedirs(copy, mode=0o700)
    for path, entry in walk(folder):
        place = os.path.join(copy, path)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), place)
        elif entry.is_dir(follow_symlinks=False):
            os.mkdir(place)
        elif entry.is_file(follow_symlinks=False):
            put(entry.path, place, linked=not _might_be_written(path, entry.stat().st_size))


def changed(folder: str, copy: str) -> list[str]:
    """Return the relative paths at which `folder` and `copy` differ."""
    now = dict(walk(folder))
    then = dict(walk(copy))
    return [path for path, entry in then.items() if not _same(entry, now.get(path))] + [
        path for path in now if path not in then
    ]


def prune(copy: str, wanted: Collection[str]) -> None:
    """Remove all from a copy but the paths that are `wanted`. Raises nothing."""
    for path, entry in sorted(walk(copy), key=lambda one: one[0], reverse=True):
        if path in wanted:
            continue
        with contextlib.suppress(OSError):  # a folder with wanted files stays
            if entry.is_dir(follow_symlinks=False):
                os.rmdir(entry.path)
            else:
                os.unlink(entry.path)


def put(source: str, place: str, *, linked: bool = True) -> None:
    """Make `place` the file or link at `source`, as a hard link if possible. Raises `OSError`."""
    if os.path.islink(source):
        os.symlink(os.readlink(source), place)
        return
    if linked:
        try:
            os.link(source, place)
            return
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
                raise
    shutil.copy2(source, place)


def _might_be_written(path: str, size: int) -> bool:
    top, _, rest = path.replace(os.sep, "/").partition("/")
    return size <= _SMALL and (not rest or top.endswith((".dist-info", ".egg-info")))


def _same(then: os.DirEntry[str], now: os.DirEntry[str] | None) -> bool:
    """It did not change. A hard link is the same file; a copy is compared."""
    if now is None or then.is_symlink() != now.is_symlink():
        return False
    if then.is_symlink():
        return os.readlink(then.path) == os.readlink(now.path)
    if _is_folder(then) or _is_folder(now):
        return _is_folder(then) and _is_folder(now)
    # Not the status of the entries: on Windows a listing gives no device and no inode.
    old, new = os.lstat(then.path), os.lstat(now.path)
    if (old.st_dev, old.st_ino) == (new.st_dev, new.st_ino):
        return True
    if (old.st_size, old.st_mtime_ns) != (new.st_size, new.st_mtime_ns):
        return False
    with open_binary(then.path) as one, open_binary(now.path) as other:
        while piece := one.read(1 << 20):
            if piece != other.read(len(piece)):
                return False
    return True


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)
