"""What `cache clear` would delete, and deleting it.

A plan lists files with reasons. Nothing outside the plan is touched, and a cache in which somebody
compiles right now is left alone as a whole: entries would vanish under their hands.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.kernels.caches.damage import leftovers, look
from attn_doctor.kernels.caches.deletion import Removed, obstacle, remove
from attn_doctor.kernels.caches.entry import State
from attn_doctor.kernels.caches.file_tree import Node
from attn_doctor.kernels.caches.survey import RECORD, Survey

_OURS = "attn-doctor"


class Group(Struct, frozen=True):
    """Files that go for one reason."""

    why: str
    entries: int
    files: tuple[str, ...]
    bytes: int


class Plan(Struct, frozen=True, kw_only=True):
    """What goes from one cache."""

    kind: str
    root: str
    groups: tuple[Group, ...] = ()
    refused: str = ""
    """Why nothing may be deleted there."""
    doubts: tuple[str, ...] = ()
    """What is left although it may be of no use, with the reason."""
    strangers: int = 0
    """Files that are not the cache's own; they stay."""
    listed: dict[str, Node] = {}

    @property
    def files(self) -> tuple[str, ...]:
        """Every file of the plan, once."""
        return tuple(dict.fromkeys(path for group in self.groups for path in group.files))

    @property
    def bytes(self) -> int:
        """Their size."""
        return sum(self.listed[path].size for path in self.files)


class Cleared(Struct, frozen=True):
    """A plan carried out."""

    plan: Plan
    removed: Removed


def plan(found: Survey, *, everything: bool) -> Plan:
    """What goes: all entries, or only what can no longer serve (stale, broken, left behind)."""
    empty = Plan(kind=found.place.kind, root=found.place.path)
    if not found.exists:
        return empty
    contents = found.contents
    if contents.unrecognised:
        return replace(empty, refused=contents.unrecognised)
    groups = _all(found) if everything else [*_useless(found)]
    groups = [one for one in groups if one.files]
    if not groups:
        return replace(empty, doubts=_doubts(found), strangers=len(contents.strangers))
    held = [lock for lock in found.locks if lock.holder]
    why = obstacle(contents.root)
    if not why and held:
        why = f"in use: {held[0].holder} holds {held[0].path}"
    return Plan(
        kind=found.place.kind,
        root=found.place.path,
        groups=tuple(groups),
        refused=why,
        doubts=_doubts(found),
        strangers=len(contents.strangers),
        listed=found.tree.nodes,
    )


def clear(one: Plan) -> Cleared:
    """Delete what a plan lists. Its folder's record of kernels is brought in line."""
    if one.refused:
        return Cleared(one, Removed())
    if not any(path.startswith(f"{_OURS}/") for path in one.listed):
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


class _Taken(Exception):  # noqa: N818 (it is no error)
    """Somebody else holds the lock."""


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
    groups.append(_group(found, "half-written files", [*contents.leftovers]))
    free = [one for one in contents.locks if one not in {lock.path for lock in found.locks}]
    dead = [lock.path for lock in found.locks if lock.stale]
    groups.append(_group(found, "locks that nobody holds", free + dead))
    # Its lock files stay: a builder may take one at any moment.
    record = [path for path in contents.record if not path.startswith(f"{_OURS}/lock.")]
    groups.append(_group(found, "attn-doctor's record", record))
    return groups


def _useless(found: Survey) -> Iterable[Group]:
    """Stale entries by reason, broken ones, and what dead processes left."""
    reasons: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    gone: set[str] = set()
    for one in found.judged:
        if one.state is State.STALE:
            reasons.setdefault(one.why, []).extend(one.entry.files)
            counts[one.why] = counts.get(one.why, 0) + 1
            gone.update(one.entry.files)
    for why, files in reasons.items():
        yield _group(found, why, files, counts[why])
    broken = [one for one in look(found.contents, found.tree) if one.path not in gone]
    files = [path for one in broken for path in one.remove if path not in gone]
    yield _group(found, "cut short, corrupt, or leading elsewhere", files, len(broken))
    torn = [RECORD] if found.torn else []
    yield _group(found, "attn-doctor's record, which nobody can read", torn)
    rests = [one.path for one in leftovers(found.contents, found.tree)]
    yield _group(found, "left behind by processes that were ended while they wrote", rests)
    dead = [lock.path for lock in found.locks if lock.stale]
    yield _group(found, "locks of builds that died", dead)


def _group(found: Survey, why: str, files: list[str], count: int | None = None) -> Group:
    unique = tuple(dict.fromkeys(files))
    size = sum(found.tree.nodes[path].size for path in unique)
    return Group(why, len(unique) if count is None else count, unique, size)


def _doubts(found: Survey) -> tuple[str, ...]:
    return tuple(f"{lock.path}: {lock.doubt}" for lock in found.locks if lock.doubt)


def _forget(folder: Path, gone: set[str]) -> None:
    """Note in the builder's record which kernels have been cleared, so that they can be rebuilt."""
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
