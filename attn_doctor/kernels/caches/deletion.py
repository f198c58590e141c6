"""Deletes listed files below one folder, and nothing else: for builds and for `cache clear`.

Another process may put a link or a mount in place of a folder after the files were listed. So each
folder is opened by its name inside the folder above, and links are refused. A file is unlinked
through that handle only if it is the listed file, belongs to this user, and lies on the same file
system. Windows has no such calls: there each part of the path is checked, which leaves a race.

`plan` lists what `cache clear` deletes, with reasons. A cache in which a process compiles now is
left alone as a whole, because its entries would disappear during the compilation.
"""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.facts.kinds import CacheFolder
from attn_doctor.kernels.caches.contents import TRASH
from attn_doctor.kernels.caches.file_tree import Node
from attn_doctor.kernels.caches.locks import holders, take
from attn_doctor.ownership import cache_refusal
from attn_doctor.record.manifest import NAME, SCHEMA, Manifest

if TYPE_CHECKING:
    from attn_doctor.kernels.caches.survey import Survey

_log = logging.getLogger(__name__)
_RECORD_FOLDER = "attn-doctor"

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


# What a build deletes


class ClearedFile(Struct, frozen=True, kw_only=True):
    """One file that a build deletes, because it is compiled anew or must not be loaded."""

    path: str
    """Absolute."""
    bytes: int
    why: str


def existing(folder: Path, names: Iterable[str], why: str) -> Iterable[ClearedFile]:
    """The files below `folder` that exist."""
    for name in names:
        try:
            size = (folder / name).lstat().st_size
        except OSError:
            continue
        yield ClearedFile(path=str(folder / name), bytes=size, why=why)


class Deletions:
    """The files that one build deletes. Only files below `roots` are deleted."""

    def __init__(self, *roots: str) -> None:
        self._roots = [root for root in roots if root]
        self.cleared: list[ClearedFile] = []
        """Deleted files."""
        self.kept: dict[str, str] = {}
        """Files that could not be deleted → why."""

    def delete(self, files: Iterable[ClearedFile]) -> None:
        """Delete these files, and folders that become empty."""
        by_root: dict[str, dict[str, ClearedFile]] = {}
        for file in files:
            path = Path(file.path)
            root = next((root for root in self._roots if path.is_relative_to(root)), "")
            if root:
                by_root.setdefault(root, {})[path.relative_to(root).as_posix()] = file
            else:
                self.kept[file.path] = "it is in none of the cache folders"
        for root, listed in by_root.items():
            removed = remove(root, listed)
            self.cleared += [listed[name] for name in removed.files]
            self.kept |= {
                listed[name].path: why
                for name, why in removed.kept.items()
                if os.path.lexists(listed[name].path)
            }

    def delete_damaged(self) -> None:
        """Delete truncated files, which a killed compiler leaves: torch would load them.

        Every file is read for that, so this is done only after a build that was killed.
        """
        from attn_doctor.kernels.caches.integrity import damage

        for found in damage("inductor", self._roots[0]):
            if not found.harmless:
                self.delete(existing(Path(self._roots[0]), found.remove, f"damaged: {found.what}"))


# What `cache clear` deletes


class Group(Struct, frozen=True):
    """Files that are deleted for one reason."""

    why: str
    entries: int
    files: tuple[str, ...]
    bytes: int


class Plan(Struct, frozen=True, kw_only=True):
    """What to delete from one cache."""

    kind: CacheFolder
    root: str
    groups: tuple[Group, ...] = ()
    source: str = ""
    """The variable that names the folder; `default`, or `named` if the user named it."""
    refused: str = ""
    """Why nothing may be deleted there."""
    doubts: tuple[str, ...] = ()
    """Files that stay because they may be in use, with the reason."""
    unrelated_files: int = 0
    """Files that the cache did not write. They stay."""
    listed: dict[str, Node] = {}
    """What the files were when they were listed."""
    locks: frozenset[str] = frozenset()
    """Those of the files that are locks."""

    @property
    def files(self) -> tuple[str, ...]:
        """Every file of the plan, once."""
        return tuple(dict.fromkeys(path for group in self.groups for path in group.files))

    @property
    def bytes(self) -> int:
        """Their total size."""
        return sum(self.listed[path].size for path in self.files)


class Cleared(Struct, frozen=True):
    """A plan and what it deleted."""

    plan: Plan
    removed: Removed
    trash: str = ""
    """The folder in which the files are kept; empty if they were deleted."""


def plan(found: Survey, *, everything: bool) -> Plan:
    """List what to delete: all entries, or only what is useless (stale, broken, abandoned)."""
    empty = Plan(kind=found.location.kind, root=found.location.path)
    if not found.exists:
        return empty
    if found.danger:
        return replace(empty, refused=cache_refusal(found.location.path, found.danger))
    contents = found.contents
    if contents.unrecognised:
        return replace(empty, refused=contents.unrecognised)
    groups = _all(found) if everything else [*_useless(found)]
    groups = [one for one in groups if one.files]
    if not groups:
        return replace(empty, doubts=_doubts(found), unrelated_files=len(contents.unrelated_files))
    held = [lock for lock in found.locks if lock.holder]
    why = obstacle(contents.root)
    if not why and held:
        why = f"in use: {held[0].holder} holds {held[0].path}"
    return Plan(
        kind=found.location.kind,
        root=found.location.path,
        source=found.location.source,
        groups=tuple(groups),
        refused=why,
        doubts=_doubts(found),
        unrelated_files=len(contents.unrelated_files),
        listed=found.tree.nodes,
        locks=frozenset(contents.locks),
    )


def clear(one: Plan, trash: str = "") -> Cleared:
    """Delete what a plan lists, and note in the record of kernels what was deleted.

    `trash`: the id under which the files are kept, to be restored; empty: they are deleted.
    """
    _log.debug("clear %s: %d files, refused: %s", one.root, len(one.files), one.refused or "no")
    if one.refused:
        return Cleared(one, Removed())
    if not any(path.startswith(f"{_RECORD_FOLDER}/") for path in one.listed):
        return _cleared(one, trash, Manifest(schema=SCHEMA, attn_doctor=""))
    from attn_doctor.record.lock import Lock

    try:
        with Lock(Path(one.root), waiting=_give_up):
            manifest = _record(Path(one.root))
            cleared = _cleared(one, trash, manifest)
            _forget(Path(one.root), manifest, set(cleared.removed.files))
    except _Taken:
        return Cleared(replace(one, refused="in use: a build has begun just now"), Removed())
    except OSError as error:
        why = f"its lock cannot be taken: {error.strerror}"
        return Cleared(replace(one, refused=why), Removed())
    return cleared


def _cleared(one: Plan, trash: str, record: Manifest) -> Cleared:
    from attn_doctor.kernels.caches.trash import Clearing

    folder, kept = f"{TRASH}/{trash}", None
    if trash and (files := sorted({*one.files} - one.locks)):
        hit, warmups = _built_of(record, {*files})
        clearing = Clearing(
            kind=one.kind,
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            files={path: number for number, path in enumerate(files)},
            entries={key: record.entries[key] for key in hit},
            warmups={key: record.warmups[key] for key in warmups},
        )
        # Not msgspec, which refuses names that are not UTF-8.
        kept = folder, json.dumps(msgspec.to_builtins(clearing)).encode()
    removed = remove(
        one.root,
        one.files,
        one.listed,
        links=one.kind == "hub",
        locks=one.locks & {*one.files},
        trash=kept,
    )
    where = os.path.join(one.root, *folder.split("/"))
    return Cleared(one, removed, where if kept and removed.files else "")


class _Taken(Exception):  # noqa: N818 (not an error)
    """Another process holds the lock."""


def _give_up(_: object) -> None:
    raise _Taken


def _all(found: Survey) -> list[Group]:
    contents = found.contents
    parts: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    for entry in contents.entries:
        parts.setdefault(entry.part, []).extend(entry.files)
        counts[entry.part] = counts.get(entry.part, 0) + 1
    groups = [_group(found, part, files, counts[part]) for part, files in sorted(parts.items())]
    groups.append(_group(found, "incomplete files", [*contents.leftovers]))
    free = [one for one in contents.locks if one not in {lock.path for lock in found.locks}]
    abandoned = [lock.path for lock in found.locks if lock.stale]
    groups.append(_group(found, "locks that no process holds", free + abandoned))
    # Its lock files stay: a builder may take one at any moment.
    record = [path for path in contents.record if not path.startswith(f"{_RECORD_FOLDER}/lock.")]
    groups.append(_group(found, "attn-doctor's record", record))
    return groups


def _useless(found: Survey) -> Iterable[Group]:
    """Stale entries by reason, broken entries, and what crashed processes left."""
    from attn_doctor.kernels.caches.contents import State
    from attn_doctor.kernels.caches.integrity import damaged_files, leftovers

    reasons: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    gone: set[str] = set()
    for one in found.evaluated:
        if one.state is State.STALE:
            reasons.setdefault(one.why, []).extend(one.entry.files)
            counts[one.why] = counts.get(one.why, 0) + 1
            gone.update(one.entry.files)
    for why, files in reasons.items():
        yield _group(found, why, files, counts[why])
    broken = [
        one
        for one in damaged_files(found.contents, found.tree)
        if one.remove and one.path not in gone
    ]
    files = [path for one in broken for path in one.remove if path not in gone]
    yield _group(found, "truncated or corrupt", files, len(broken))
    record = [NAME] if found.record_damaged else []
    yield _group(found, "attn-doctor's record, which is damaged", record)
    rests = [one.path for one in leftovers(found.contents, found.tree)]
    yield _group(found, "incomplete files of processes that were killed", rests)
    abandoned = [lock.path for lock in found.locks if lock.stale]
    yield _group(found, "locks of builds that were killed", abandoned)


def _group(found: Survey, why: str, files: list[str], count: int | None = None) -> Group:
    unique = tuple(dict.fromkeys(files))
    size = sum(found.tree.nodes[path].size for path in unique)
    return Group(why, len(unique) if count is None else count, unique, size)


def _doubts(found: Survey) -> tuple[str, ...]:
    return tuple(f"{lock.path}: {lock.doubt}" for lock in found.locks if lock.doubt)


def _record(folder: Path) -> Manifest:
    """The record of kernels; an empty one if there is none, or it cannot be read."""
    from attn_doctor.errors import AttnDoctorError
    from attn_doctor.record.store import empty, load

    try:
        return load(folder) or empty()
    except AttnDoctorError:
        return empty()


def _built_of(manifest: Manifest, files: set[str]) -> tuple[list[str], list[str]]:
    """The keys of entries and of warm-ups that `files` belong to."""
    entries = [
        key
        for key, one in manifest.entries.items()
        if one.build is not None and files & one.build.files.keys()
    ]
    return entries, [key for key, one in manifest.warmups.items() if files & one.files.keys()]


def _forget(folder: Path, manifest: Manifest, gone: set[str]) -> None:
    """Note in the builder's record which kernels were cleared, so that they can be built again."""
    from attn_doctor.record.store import save

    hit, lost = _built_of(manifest, gone)
    if NAME in gone or not (hit or lost):
        return
    entries = {
        key: replace(one, state="cleared", build=None, message="its files were cleared")
        if key in hit
        else one
        for key, one in manifest.entries.items()
    }
    warmups = {key: one for key, one in manifest.warmups.items() if key not in lost}
    save(folder, replace(manifest, entries=entries, warmups=warmups))
