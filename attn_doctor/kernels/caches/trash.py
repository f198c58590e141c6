"""The trash of `cache clear`: what it took, how that comes back, and how the trash is emptied.

It lies inside the cache, `.attn-doctor-trash/<clearing>/`, because files move there by a rename,
which needs no space and no time. The files have numbers for names, and `list.json` says what they
were. torch, Triton and the driver do not read it.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.files import read_bytes
from attn_doctor.kernels.caches.contents import TRASH
from attn_doctor.kernels.caches.removal import LIST, Removed, working
from attn_doctor.ownership import require_cache
from attn_doctor.record.manifest import Entry, Warmup

#: Bytes of a list that are read: half a million files.
_LONGEST = 1 << 26


class Clearing(Struct, frozen=True, kw_only=True):
    """One `cache clear`, as the list in the trash keeps it."""

    kind: str
    at: str
    """UTC, ISO 8601."""
    files: dict[str, int]
    """Path below the cache → number of the file in the trash."""
    entries: dict[str, Entry] = {}
    """Manifest key → what the record of kernels said of them."""
    warmups: dict[str, Warmup] = {}


class Trashed(Struct, frozen=True):
    """A clearing whose files are still in the trash."""

    id: str
    root: str
    clearing: Clearing
    sizes: dict[str, int]
    """Path below the cache → bytes."""

    @property
    def bytes(self) -> int:
        """Their total size."""
        return sum(self.sizes.values())


class Restored(Struct, frozen=True):
    """What came back."""

    trashed: Trashed
    files: tuple[str, ...] = ()
    bytes: int = 0
    kept: dict[str, str] = {}
    """Path that stays in the trash → why."""


def new_id() -> str:
    """A name for the next clearing; later ones sort behind earlier ones."""
    now = datetime.now(timezone.utc)
    return f"{now:%Y%m%d-%H%M%S%f}-{os.urandom(2).hex()}"


def trashed(root: str) -> tuple[Trashed, ...]:
    """What the trash of a cache holds, the newest first. A list that cannot be read is left out.

    Raises `OwnershipError` if there is a trash and another user decides what is in the cache.
    """
    found = []
    try:
        ids = sorted(os.listdir(os.path.join(root, TRASH)), reverse=True)
    except OSError:
        return ()
    require_cache(root)
    for id in ids:
        folder = os.path.join(root, TRASH, id)
        try:
            data = read_bytes(os.path.join(folder, LIST), _LONGEST, follow=False)
            clearing = msgspec.convert(json.loads(data), Clearing)
        except (OSError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
            continue
        sizes = {}
        for path, number in clearing.files.items():
            with suppress(OSError):
                sizes[path] = os.lstat(os.path.join(folder, str(number))).st_size
        found.append(Trashed(id, root, clearing, sizes))
    return tuple(found)


def restore(one: Trashed) -> Restored:
    """Bring the files of a clearing back. Where another file is now, it stays in the trash."""
    from attn_doctor.record.lock import FOLDER, Lock

    if not os.path.isdir(os.path.join(one.root, FOLDER)):
        return _restored(one)
    with Lock(Path(one.root)):
        done = _restored(one)
        _remember(Path(one.root), one.clearing, {*done.files})
        return done


def _restored(one: Trashed) -> Restored:
    back: list[str] = []
    size = 0
    with working(one.root) as work:
        if isinstance(work, str):
            return Restored(one, kept=dict.fromkeys(one.sizes, work))
        kept: dict[str, str] = {}
        for path in sorted(one.sizes):
            number = one.clearing.files[path]
            try:
                size += work.bring_back(f"{TRASH}/{one.id}/{number}", path)
                back.append(path)
            except OSError as error:
                kept[path] = error.strerror or str(error)
        if not kept:
            work.discard(f"{TRASH}/{one.id}", [LIST])
    return Restored(one, tuple(back), size, kept)


def _remember(folder: Path, clearing: Clearing, back: set[str]) -> None:
    """Note the kernels that are whole again in the builder's record."""
    from attn_doctor.record.store import empty, load, save

    if not (clearing.entries or clearing.warmups):
        return
    now = load(folder) or empty()
    entries = {
        key: one
        for key, one in clearing.entries.items()
        if one.build is not None
        and back & one.build.files.keys()
        and all((folder / path).exists() for path in one.build.files)
        and (key not in now.entries or now.entries[key].state == "cleared")
    }
    warmups = {
        key: one
        for key, one in clearing.warmups.items()
        if key not in now.warmups and all((folder / path).exists() for path in one.files)
    }
    if entries or warmups:
        both = replace(now, entries=now.entries | entries, warmups=now.warmups | warmups)
        save(folder, both)


def empty(one: Trashed) -> Removed:
    """Delete the files of a clearing for good."""
    gone: list[str] = []
    kept: dict[str, str] = {}
    with working(one.root) as work:
        if isinstance(work, str):
            return Removed(kept=dict.fromkeys(one.sizes, work))
        folder = f"{TRASH}/{one.id}"
        names = {str(one.clearing.files[path]): path for path in one.sizes}
        for name, path in names.items():
            try:
                work.take(f"{folder}/{name}", None, 0, links=True)
                gone.append(path)
            except OSError as error:
                kept[path] = error.strerror or str(error)
        if not kept:
            work.discard(folder, [LIST])
    return Removed(tuple(gone), sum(one.sizes[path] for path in gone), kept)
