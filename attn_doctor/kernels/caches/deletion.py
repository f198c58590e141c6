"""Deletes listed files below one folder, and nothing else: for builds and for `cache clear`.

Another process may put a link or a mount in place of a folder after the files were listed. So each
folder is opened by its name inside the folder above, and links are refused. A file is unlinked
through that handle only if it is the listed file, belongs to this user, and lies on the same file
system. Windows has no such calls: there each part of the path is checked, which leaves a race.

`plan` lists what `cache clear` deletes, with reasons. A cache in which a process compiles now is
left alone as a whole, because its entries would disappear during the compilation.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.facts.kinds import CacheFolder
from attn_doctor.kernels.caches.file_tree import Node
from attn_doctor.ownership import cache_refusal
from attn_doctor.record.manifest import NAME

if TYPE_CHECKING:
    from attn_doctor.kernels.caches.survey import Survey

_log = logging.getLogger(__name__)
_RECORD_FOLDER = "attn-doctor"

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


class _Kept(Exception):  # noqa: N818 (not an error)
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
) -> Removed:
    """Delete `files` (relative to `root`), and folders that become empty.

    `listed`: the state of the files when they were listed; a file that changed since then is kept.
    `links`: also unlink symbolic links, but not their targets. Never raises: a file that could not
    be deleted is in `kept` with the reason; a file that no longer exists is not mentioned.
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
                continue  # another process deleted it
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
    if {"", ".", ".."} & {*parts} or (os.name == "nt" and re.search(r"[:\\]", path)):
        raise _Kept("its path leads out of the cache")


class _Handles:
    """Deletes through handles of folders, which are opened without following links."""

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
        self._shut(above)
        self._open[path] = handle
        return handle

    def _shut(self, above: str) -> None:
        """Close the handles that no path below `above` needs, so that few are open."""
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
            return  # another file is in it, or was written just now

    def close(self) -> None:
        for handle in self._open.values():
            os.close(handle)


class _Paths:
    """Deletes by paths, for systems without handles of folders."""

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
    refused: str = ""
    """Why nothing may be deleted there."""
    doubts: tuple[str, ...] = ()
    """Files that stay because they may be in use, with the reason."""
    unrelated_files: int = 0
    """Files that the cache did not write. They stay."""
    listed: dict[str, Node] = {}
    """What the files were when they were listed."""

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
        groups=tuple(groups),
        refused=why,
        doubts=_doubts(found),
        unrelated_files=len(contents.unrelated_files),
        listed=found.tree.nodes,
    )


def clear(one: Plan) -> Cleared:
    """Delete what a plan lists, and note in the record of kernels what was deleted."""
    _log.debug("clear %s: %d files, refused: %s", one.root, len(one.files), one.refused or "no")
    if one.refused:
        return Cleared(one, Removed())
    if not any(path.startswith(f"{_RECORD_FOLDER}/") for path in one.listed):
        return Cleared(one, remove(one.root, one.files, one.listed, links=one.kind == "hub"))
    from attn_doctor.record.lock import Lock

    try:
        with Lock(Path(one.root), waiting=_give_up):
            removed = remove(one.root, one.files, one.listed)
            _forget(Path(one.root), set(removed.files))
    except _Taken:
        return Cleared(replace(one, refused="in use: a build has begun just now"), Removed())
    except OSError as error:
        why = f"its lock cannot be taken: {error.strerror}"
        return Cleared(replace(one, refused=why), Removed())
    return Cleared(one, removed)


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
    broken = [one for one in damaged_files(found.contents, found.tree) if one.path not in gone]
    files = [path for one in broken for path in one.remove if path not in gone]
    yield _group(found, "truncated or corrupt, or with paths to another folder", files, len(broken))
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


def _forget(folder: Path, gone: set[str]) -> None:
    """Note in the builder's record which kernels were cleared, so that they can be built again."""
    from attn_doctor.errors import AttnDoctorError
    from attn_doctor.record.store import load, save

    try:
        manifest = load(folder)
    except AttnDoctorError:
        return
    if manifest is None:
        return
    hit = {
        key
        for key, one in manifest.entries.items()
        if one.build is not None and gone & one.build.files.keys()
    }
    entries = {
        key: replace(one, state="cleared", build=None, message="its files were cleared")
        if key in hit
        else one
        for key, one in manifest.entries.items()
    }
    warmups = {key: one for key, one in manifest.warmups.items() if not gone & one.files.keys()}
    if hit or len(warmups) < len(manifest.warmups):
        save(folder, replace(manifest, entries=entries, warmups=warmups))
