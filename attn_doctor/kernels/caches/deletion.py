"""What builds and `cache clear` delete, with the reasons.

`plan` lists what `cache clear` takes. A cache in which a process compiles now is left alone as a
whole, because its entries would disappear during the compilation. `removal` does the work.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.facts.kinds import CacheFolder
from attn_doctor.kernels.caches.contents import TRASH
from attn_doctor.kernels.caches.file_tree import Node
from attn_doctor.kernels.caches.removal import Removed, obstacle, remove
from attn_doctor.kernels.caches.trash import Clearing
from attn_doctor.ownership import cache_refusal
from attn_doctor.record.manifest import NAME, SCHEMA, Manifest

if TYPE_CHECKING:
    from attn_doctor.kernels.caches.survey import Survey

_log = logging.getLogger(__name__)
_RECORD_FOLDER = "attn-doctor"

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
    groups.append(_group(found, "incomplete files", _abandoned(found)))
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
    from attn_doctor.kernels.caches.integrity import damaged_files

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
    yield _group(found, "incomplete files of processes that were killed", _abandoned(found))
    abandoned = [lock.path for lock in found.locks if lock.stale]
    yield _group(found, "locks of builds that were killed", abandoned)


def _group(found: Survey, why: str, files: list[str], count: int | None = None) -> Group:
    unique = tuple(dict.fromkeys(files))
    size = sum(found.tree.nodes[path].size for path in unique)
    return Group(why, len(unique) if count is None else count, unique, size)


def _abandoned(found: Survey) -> list[str]:
    """Incomplete files whose writer has ended. Others may be renamed to an entry at any moment."""
    from attn_doctor.kernels.caches.integrity import leftovers

    return [one.path for one in leftovers(found.contents, found.tree)]


def _doubts(found: Survey) -> tuple[str, ...]:
    locks = [f"{lock.path}: {lock.doubt}" for lock in found.locks if lock.doubt]
    written = sorted({*found.contents.leftovers} - {*_abandoned(found)})
    return (*locks, *(f"{path}: a process may be writing it" for path in written))


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
