"""Deleting listed files below one folder, and nothing else.

Between listing and deleting, another process may put a link or a mount in place of a folder. So
each folder is opened by its name inside the one above, links refused, and a file is unlinked
through that handle only if it is still the one that was listed, belongs to this user, and lies on
the same file system. Where the system has no such calls (Windows), each part of the path is looked
at instead, which leaves a moment in between.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping

from msgspec import Struct

from attn_doctor.kernels.caches.file_tree import Node

_AT = (
    os.unlink in os.supports_dir_fd and os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
)
_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


class Removed(Struct, frozen=True):
    """What was done."""

    files: tuple[str, ...] = ()
    """Paths that are gone, relative to the root."""
    bytes: int = 0
    kept: dict[str, str] = {}
    """Paths that are still there → why."""


class _Kept(Exception):  # noqa: N818 (it is no error)
    """This one stays; the message says why."""


def link_above(root: str) -> str:
    """The first symbolic link on the way to `root`, itself included; empty if there is none.

    Links at the very top that belong to root (`/tmp` on macOS) are the system's own and pass.
    """
    path = os.path.abspath(root)
    parts: list[str] = []
    while (above := os.path.dirname(path)) != path:
        parts.append(path)
        path = above
    for part in reversed(parts):
        try:
            found = os.lstat(part)
        except OSError:
            return ""
        ours = os.path.dirname(os.path.dirname(part)) == os.path.dirname(part) and found.st_uid == 0
        if stat.S_ISLNK(found.st_mode) and not ours:
            return part
    return ""


def obstacle(root: str) -> str:
    """Why nothing below `root` may be deleted by this user; empty if nothing speaks against it."""
    if link := link_above(root):
        return (
            f"the way there leads through the symbolic link {link}; name {os.path.realpath(root)}"
        )
    try:
        found = os.lstat(root)
    except OSError as error:
        return f"it cannot be reached: {error.strerror}"
    if not stat.S_ISDIR(found.st_mode):
        return "it is no directory"
    if not _mine(found):
        return f"it belongs to another user ({_owner(found.st_uid)})"
    return "" if os.access(root, os.W_OK) else "this user may not change it"


def remove(
    root: str,
    files: Iterable[str],
    listed: Mapping[str, Node] | None = None,
    *,
    links: bool = False,
) -> Removed:
    """Delete `files` (relative to `root`), and folders that become empty thereby.

    `listed`: what they were when they were listed; a file that has changed since is kept. `links`:
    symbolic links among them may be unlinked too, which leaves what they lead to. Never raises:
    what is still there is in `kept` with the reason; what was gone already is not mentioned.
    """
    wanted = sorted(set(files))
    if reason := obstacle(root):
        return Removed(kept=dict.fromkeys(wanted, reason))
    try:
        work = _Handles(root) if _AT else _Paths(root)
    except (OSError, _Kept) as error:
        return Removed(kept=dict.fromkeys(wanted, str(error)))
    gone: list[str] = []
    size = 0
    kept: dict[str, str] = {}
    try:
        for path in wanted:
            try:
                size += work.unlink(path, (listed or {}).get(path), links)
                gone.append(path)
            except FileNotFoundError:
                continue  # somebody else was quicker
            except _Kept as reason:
                kept[path] = str(reason)
            except OSError as error:
                kept[path] = error.strerror or type(error).__name__
        for folder in _folders(gone):
            work.rmdir(folder)
    finally:
        work.close()
    return Removed(tuple(gone), size, kept)


def _folders(files: Iterable[str]) -> list[str]:
    """The folders of `files`, the deepest first."""
    found = set()
    for path in files:
        while path := path.rpartition("/")[0]:
            found.add(path)
    return sorted(found, key=lambda one: (-one.count("/"), one))


def _mine(found: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or found.st_uid == os.geteuid()


def _owner(uid: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return f"uid {uid}"


def _check(found: os.stat_result, device: int, listed: Node | None, *, links: bool) -> None:
    """Raises `_Kept` unless this is the file that was listed and may be deleted."""
    if stat.S_ISLNK(found.st_mode):
        if not links:
            raise _Kept("it is a symbolic link")
    elif not stat.S_ISREG(found.st_mode):
        raise _Kept("it is no regular file")
    if not _mine(found):
        raise _Kept(f"it belongs to another user ({_owner(found.st_uid)})")
    if found.st_dev != device:
        raise _Kept("it lies on another file system")
    if listed is not None and listed.inode:
        if (found.st_dev, found.st_ino) != (listed.device, listed.inode):
            raise _Kept("another file has taken its place since it was listed")
        if (found.st_size, found.st_mtime) != (listed.size, listed.mtime):
            raise _Kept("it has changed since it was listed")


def _stays_inside(path: str) -> None:
    """Raises `_Kept` for a path that names anything but what lies below the root."""
    parts = path.split("/")
    if {"", ".", ".."} & {*parts} or (os.name == "nt" and re.search(r"[:\\]", path)):
        raise _Kept("its path does not stay inside the cache")


class _Handles:
    """Deletes through handles of folders, none of which was reached through a link."""

    def __init__(self, root: str) -> None:
        # The links at the very top that `link_above` lets pass are followed here, no others.
        top, *rest = os.path.abspath(root).lstrip(os.sep).split(os.sep)
        handle = os.open(os.sep + top, os.O_RDONLY | os.O_DIRECTORY)
        for part in rest:
            try:
                inner = os.open(part, _DIRECTORY, dir_fd=handle)
            finally:
                os.close(handle)
            handle = inner
        found = os.fstat(handle)
        if not _mine(found):
            os.close(handle)
            raise _Kept(f"{root} belongs to another user ({_owner(found.st_uid)})")
        self._open = {"": handle}
        self._device = found.st_dev

    def _folder(self, path: str) -> int:
        """The handle of a folder below the root."""
        if path in self._open:
            return self._open[path]
        above, _, name = path.rpartition("/")
        outer = self._folder(above)
        try:
            handle = os.open(name, _DIRECTORY, dir_fd=outer)
        except NotADirectoryError:
            raise _Kept(f"{path} is no directory any more") from None
        except OSError as error:
            if stat.S_ISLNK(os.stat(name, dir_fd=outer, follow_symlinks=False).st_mode):
                raise _Kept(f"{path} is a symbolic link") from None
            raise error
        found = os.fstat(handle)
        if found.st_dev != self._device or not _mine(found):
            os.close(handle)
            mounted = found.st_dev != self._device
            where = "is another file system" if mounted else "belongs to another user"
            raise _Kept(f"{path} {where}")
        self._shut(above)
        self._open[path] = handle
        return handle

    def _shut(self, above: str) -> None:
        """Close the handles that no path below `above` needs, so that few are open at once."""
        for path in [one for one in self._open if one and not f"{above}/".startswith(f"{one}/")]:
            os.close(self._open.pop(path))

    def unlink(self, path: str, listed: Node | None, links: bool) -> int:
        """Delete one file and return its size."""
        _stays_inside(path)
        folder, _, name = path.rpartition("/")
        handle = self._folder(folder)
        found = os.stat(name, dir_fd=handle, follow_symlinks=False)
        _check(found, self._device, listed, links=links)
        os.unlink(name, dir_fd=handle)
        return found.st_size

    def rmdir(self, path: str) -> None:
        """Delete a folder if it is empty."""
        above, _, name = path.rpartition("/")
        try:
            outer = self._folder(above)
            if path in self._open:
                os.close(self._open.pop(path))
            os.rmdir(name, dir_fd=outer)
        except (OSError, _Kept):
            return  # something else is in it, or arrived just now

    def close(self) -> None:
        for handle in self._open.values():
            os.close(handle)


class _Paths:
    """The same by paths, for systems without handles of folders."""

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(root)
        self._device = os.lstat(self._root).st_dev

    def _full(self, path: str) -> str:
        _stays_inside(path)
        full = self._root
        *folders, name = path.split("/")
        for part in folders:
            full = os.path.join(full, part)
            found = os.lstat(full)
            reparse = getattr(found, "st_file_attributes", 0) & 0x400
            if not stat.S_ISDIR(found.st_mode) or reparse:
                raise _Kept(f"{full} is a link")
        return os.path.join(full, name)

    def unlink(self, path: str, listed: Node | None, links: bool) -> int:
        full = self._full(path)
        found = os.lstat(full)
        _check(found, self._device, listed, links=links)
        os.unlink(full)
        return found.st_size

    def rmdir(self, path: str) -> None:
        try:
            os.rmdir(self._full(path))
        except (OSError, _Kept):
            return

    def close(self) -> None:
        return
