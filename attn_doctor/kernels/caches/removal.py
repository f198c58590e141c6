"""Deletes listed files below one folder, or moves them into a trash, and nothing else.

Another process may put a link or a mount in place of a folder after the files were listed. So each
folder is opened by its name inside the folder above, and links are refused. A file is taken through
that handle only if it is the listed file, belongs to this user, and lies on the same file system.
Windows has no such calls: there each part of the path is checked, which leaves a race.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from msgspec import Struct

from attn_doctor.kernels.caches.contents import TRASH
from attn_doctor.kernels.caches.file_tree import Node
from attn_doctor.kernels.caches.locks import holders, take

#: In a trash folder: what its numbered files were.
LIST = "list.json"

_AT = (
    os.unlink in os.supports_dir_fd and os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
)
_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


class Removed(Struct, frozen=True):
    """The files that were deleted, and those that were kept."""

    files: tuple[str, ...] = ()
    """Deleted paths, relative to the root."""
    bytes: int = 0
    kept: dict[str, str] = {}
    """Kept paths → why."""


class _Kept(OSError):  # noqa: N818 (not an error)
    """The file stays; the message says why."""


def link_above(root: str) -> str:
    """Return the first symbolic link in the path `root`; empty if there is none.

    Links at the top level that belong to the user root (`/tmp` on macOS) are the system's own and
    are accepted.
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
    """Say why this user may not delete anything below `root`; empty if deletion is allowed."""
    if link := link_above(root):
        return f"its path contains the symbolic link {link}; name {os.path.realpath(root)} instead"
    try:
        found = os.lstat(root)
    except OSError as error:
        return f"it cannot be reached: {error.strerror}"
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a folder"
    if not _mine(found):
        return f"it belongs to another user ({_owner(found.st_uid)})"
    return "" if os.access(root, os.W_OK) else "this user cannot write there"


def remove(
    root: str,
    files: Iterable[str],
    listed: Mapping[str, Node] | None = None,
    *,
    links: bool = False,
    locks: Collection[str] = (),
    trash: tuple[str, bytes] | None = None,
) -> Removed:
    """Delete `files` (relative to `root`), and folders that become empty.

    `listed`: the state of the files when they were listed; a file that changed since then is kept.
    `links`: also unlink symbolic links, but not their targets. `locks`: those of `files` that are
    locks; one that a process holds or has open is kept. `trash`: a new folder to which the others
    are moved, each named by its number among the sorted files, and the list to keep beside them.
    Never raises: a file that could not be deleted is in `kept` with the reason; a file that no
    longer exists is not mentioned.
    """
    wanted = sorted(set(files))
    with working(root) as work:
        if isinstance(work, str):
            return Removed(kept=dict.fromkeys(wanted, work))
        try:
            if trash is not None:
                work.open_trash(*trash)
        except OSError as error:
            why = f"the trash cannot be made: {_why(error)}; --no-trash deletes without one"
            return Removed(kept=dict.fromkeys(wanted, why))
        done = _removed(work, wanted, listed or {}, _held(root, locks), links=links)
        for folder in _folders(done.files):
            work.rmdir(folder)
        if trash is not None and not {*done.files} - {*locks}:
            work.discard(trash[0], [LIST])
    return done


def _held(root: str, locks: Iterable[str]) -> dict[str, str]:
    """Lock → the process that has it open, or an empty text."""
    full = {path: os.path.join(root, *path.split("/")) for path in locks}
    found = holders(full.values()).by_path
    return {path: str(found.get(place, "")) for path, place in full.items()}


def _removed(
    work: _Work, wanted: list[str], listed: Mapping[str, Node], held: dict[str, str], *, links: bool
) -> Removed:
    gone: list[str] = []
    size = number = 0
    kept: dict[str, str] = {}
    for path in wanted:
        try:
            if path not in held:
                number += 1
                size += work.take(path, listed.get(path), number - 1, links=links)
            elif held[path]:
                raise _Kept(f"{held[path]} has it open")
            else:
                work.unlock(path, listed.get(path))
            gone.append(path)
        except FileNotFoundError:
            continue  # another process deleted it
        except OSError as error:
            kept[path] = _why(error)
    return Removed(tuple(gone), size, kept)


def _why(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


@contextmanager
def working(root: str) -> Iterator[_Work | str]:
    """Open a folder to change files in it; if that may not be done, the reason."""
    if reason := obstacle(root):
        yield reason
        return
    try:
        work = _Handles(root) if _AT else _Paths(root)
    except OSError as error:
        yield _why(error)
        return
    try:
        yield work
    finally:
        work.close()


def _folders(files: Iterable[str]) -> list[str]:
    """Return the folders of `files`, the deepest first."""
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
    """Raise `_Kept` unless this is the listed file and may be deleted."""
    if stat.S_ISLNK(found.st_mode):
        if not links:
            raise _Kept("it is a symbolic link")
    elif not stat.S_ISREG(found.st_mode):
        raise _Kept("it is not a regular file")
    if not _mine(found):
        raise _Kept(f"it belongs to another user ({_owner(found.st_uid)})")
    if found.st_dev != device:
        raise _Kept("it lies on another file system")
    if listed is not None and listed.inode:
        if (found.st_dev, found.st_ino) != (listed.device, listed.inode):
            raise _Kept("another file replaced it after it was listed")
        if (found.st_size, found.st_mtime) != (listed.size, listed.mtime):
            raise _Kept("it changed after it was listed")


def _stays_inside(path: str) -> None:
    """Raise `_Kept` for a path that leads out of the root."""
    parts = path.split("/")
    if (
        {"", ".", ".."} & {*parts}
        or "\0" in path
        or (os.name == "nt" and re.search(r"[:\\]", path))
    ):
        raise _Kept("its path leads out of the cache")


class _Work:
    """Changes files below a root. Subclasses find them by handles of folders, or by paths."""

    _device: int
    _trash = ""

    def _place(self, path: str) -> tuple[str, int | None]:
        """The name of a file and the handle of its folder; the whole path and None without one."""
        raise NotImplementedError

    def close(self) -> None:
        return

    def take(self, path: str, listed: Node | None, number: int, *, links: bool) -> int:
        """Delete one file, or move it into the trash as `number`. Return its size."""
        name, at = self._place(path)
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
        _check(found, self._device, listed, links=links)
        if self._trash:
            there, bin = self._place(f"{self._trash}/{number}")
            os.rename(name, there, src_dir_fd=at, dst_dir_fd=bin)
        else:
            os.unlink(name, dir_fd=at)
        return found.st_size

    def unlock(self, path: str, listed: Node | None) -> None:
        """Delete a lock that no process holds, while we hold it."""
        name, at = self._place(path)
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
        _check(found, self._device, listed, links=False)
        flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        handle = os.open(name, flags, dir_fd=at)
        try:
            opened = os.fstat(handle)
            if (opened.st_dev, opened.st_ino) != (found.st_dev, found.st_ino) or not take(handle):
                raise _Kept("a process holds it")
            if os.name != "nt":
                os.unlink(name, dir_fd=at)
        finally:
            os.close(handle)
        if os.name == "nt":
            os.unlink(name)  # which fails while a process has it open

    def rmdir(self, path: str) -> None:
        """Delete a folder if it is empty."""
        try:
            name, at = self._place(path)
            self._leave(path)
            os.rmdir(name, dir_fd=at)
        except OSError:
            return  # another file is in it, or was written just now

    def _leave(self, path: str) -> None:
        """Let go of a folder that is about to be deleted."""

    def make(self, folder: str, mode: int = 0o777) -> None:
        """Make a folder with those above it, unless they exist."""
        parts = folder.split("/") if folder else []
        for count in range(1, len(parts) + 1):
            name, at = self._place("/".join(parts[:count]))
            with suppress(FileExistsError):
                os.mkdir(name, mode, dir_fd=at)

    def open_trash(self, folder: str, contents: bytes) -> None:
        """Make a new trash folder, note what it is to hold, and move files there from now on."""
        self.make(os.path.dirname(folder), 0o700)
        name, at = self._place(folder)
        os.mkdir(name, 0o700, dir_fd=at)
        try:
            name, at = self._place(f"{folder}/{LIST}")
            handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=at)
            with os.fdopen(handle, "wb") as file:
                file.write(contents)
                file.flush()
                os.fsync(handle)
        except OSError:
            self.discard(folder, [LIST])
            raise
        self._trash = folder

    def discard(self, folder: str, names: Iterable[str]) -> None:
        """Delete a folder of the trash with these files, and the trash if it is empty then."""
        with suppress(OSError):
            for one in names:
                name, at = self._place(f"{folder}/{one}")
                os.unlink(name, dir_fd=at)
        self.rmdir(folder)
        self.rmdir(os.path.dirname(folder))

    def bring_back(self, trashed: str, path: str) -> int:
        """Move a file out of the trash to `path`. Return its size.

        Raises `_Kept` if something is at `path` now: nothing is overwritten.
        """
        self.make(os.path.dirname(path))
        name, at = self._place(path)
        there, bin = self._place(trashed)
        found = os.stat(there, dir_fd=bin, follow_symlinks=False)
        try:
            if os.name == "nt":
                os.rename(there, name)  # which does not overwrite there
            else:
                os.link(there, name, src_dir_fd=bin, dst_dir_fd=at, follow_symlinks=False)
                os.unlink(there, dir_fd=bin)
        except FileExistsError:
            raise _Kept("another file is there now") from None
        return found.st_size


class _Handles(_Work):
    """Finds files through handles of folders, which are opened without following links."""

    def __init__(self, root: str) -> None:
        # Only the links at the top level that `link_above` accepts are followed here.
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

    def _place(self, path: str) -> tuple[str, int | None]:
        _stays_inside(path)
        folder, _, name = path.rpartition("/")
        return name, self._folder(folder)

    def _folder(self, path: str) -> int:
        """Return the handle of a folder below the root."""
        if path in self._open:
            return self._open[path]
        above, _, name = path.rpartition("/")
        outer = self._folder(above)
        try:
            handle = os.open(name, _DIRECTORY, dir_fd=outer)
        except NotADirectoryError:
            raise _Kept(f"{path} is not a folder any more") from None
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
        self._shut(path)
        self._open[path] = handle
        return handle

    def _shut(self, opened: str) -> None:
        """Close the handles that `opened` does not need, so that few are open.

        Files move between two folders, so one of the cache and one of the trash stay open.
        """
        for path in [one for one in self._open if one and not f"{opened}/".startswith(f"{one}/")]:
            if _in_trash(path) == _in_trash(opened):
                os.close(self._open.pop(path))

    def _leave(self, path: str) -> None:
        if path in self._open:
            os.close(self._open.pop(path))

    def close(self) -> None:
        for handle in self._open.values():
            os.close(handle)


def _in_trash(path: str) -> bool:
    return path.split("/", 1)[0] == TRASH


class _Paths(_Work):
    """Finds files by paths, for systems without handles of folders."""

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(root)
        self._device = os.lstat(self._root).st_dev

    def _place(self, path: str) -> tuple[str, int | None]:
        _stays_inside(path)
        full = self._root
        *folders, name = path.split("/")
        for part in folders:
            full = os.path.join(full, part)
            found = os.lstat(full)
            reparse = getattr(found, "st_file_attributes", 0) & 0x400
            if not stat.S_ISDIR(found.st_mode) or reparse:
                raise _Kept(f"{full} is a link")
        return os.path.join(full, name), None
