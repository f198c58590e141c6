"""Copies a folder at almost no cost, and restores it.

Files are hard-linked, not copied, into a folder beside it: installers replace files and never write
into them, so a link keeps the old contents. Files that a program might write into (`.pth` files and
metadata) are copied, and so are all files where links are impossible. So `fix undo` can restore an
environment exactly, without a network, from any state an installer left it in.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator

from msgspec import Struct

from attn_doctor.files import open_binary

#: Files up to this size at the top of a folder, and metadata, are copied.
_SMALL = 1 << 16


class Changes(Struct, frozen=True, kw_only=True):
    """How a folder differs from its copy. Paths are relative; folders end with a slash."""

    back: tuple[str, ...] = ()
    """In the copy, and changed or removed since."""
    new: tuple[str, ...] = ()
    """Not in the copy; deepest first, so that a folder comes after what is in it."""

    def without(self, left: Callable[[str], bool]) -> Changes:
        """Return the changes without the paths for which `left` is true."""
        return Changes(
            back=tuple(one for one in self.back if not left(one)),
            new=tuple(one for one in self.new if not left(one)),
        )


def keep(folder: str, copy: str) -> None:
    """Make `copy` a copy of `folder`. Raises `OSError`; what was copied until then remains."""
    os.makedirs(copy, mode=0o700)
    for path, entry in _walk(folder):
        place = os.path.join(copy, path)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), place)
        elif entry.is_dir(follow_symlinks=False):
            os.mkdir(place)
        elif entry.is_file(follow_symlinks=False):
            _put(entry.path, place, linked=not _might_be_written(path, entry.stat().st_size))


def changes(folder: str, copy: str) -> Changes:
    """Return the changes that make `folder` like `copy` again."""
    now = dict(_walk(folder))
    then = dict(_walk(copy))
    back = [path for path, entry in then.items() if not _same(entry, now.get(path))]
    new = [
        path + "/" * entry.is_dir(follow_symlinks=False)
        for path, entry in now.items()
        if path not in then or entry.is_dir(follow_symlinks=False) > _is_folder(then[path])
    ]
    return Changes(back=tuple(back), new=tuple(sorted(new, key=_depth, reverse=True)))


def restore(folder: str, copy: str, wanted: Changes) -> None:
    """Apply `wanted` to `folder`. Can be repeated after an interruption. Raises `OSError`.

    New files are removed first, so that a full disk has space for restored ones.
    """
    for path in wanted.new:
        removed(os.path.join(folder, path.rstrip("/")), folder=path.endswith("/"))
    folders = []
    for path in wanted.back:
        source, place = os.path.join(copy, path), os.path.join(folder, path)
        if os.path.isdir(source) and not os.path.islink(source):
            folders.append((source, place))
        else:
            _bring_back(source, place)
    for source, place in folders:
        # Restored files made their folders; a folder whose contents stay unchanged is not made.
        if not os.listdir(source):
            os.makedirs(place, exist_ok=True)
        if os.path.isdir(place):
            shutil.copystat(source, place)


def removed(path: str, *, folder: bool) -> None:
    """Remove one file, link or empty folder; a folder that is not empty stays."""
    if folder and not os.path.islink(path):
        with contextlib.suppress(OSError):
            os.rmdir(path)
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _bring_back(source: str, place: str) -> None:
    found = os.lstat(source)
    parent = os.path.dirname(place)
    if os.path.lexists(parent) and not os.path.isdir(parent):
        os.unlink(parent)  # where a folder was, there is a file now
    os.makedirs(parent, exist_ok=True)
    part = f"{place}.attn-doctor-{secrets.token_hex(4)}"
    if stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(source), part)
    else:
        _put(source, part, linked=not _might_be_written(os.path.basename(place), found.st_size))
    if os.path.isdir(place) and not os.path.islink(place):
        shutil.rmtree(place)
    os.replace(part, place)


def _put(source: str, place: str, *, linked: bool) -> None:
    if linked:
        try:
            os.link(source, place)
            return
        except OSError as error:
            import errno

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
    old, new = then.stat(follow_symlinks=False), now.stat(follow_symlinks=False)
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


def _depth(path: str) -> tuple[int, str]:
    return path.rstrip("/").count(os.sep), path


def _walk(folder: str, below: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Everything under `folder`, each folder before what is in it; links are not followed."""
    with os.scandir(os.path.join(folder, below)) as entries:
        for entry in entries:
            path = os.path.join(below, entry.name)
            yield path, entry
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(folder, path)
