"""From an artifact to a cache folder: trusted, compared with this machine, proven, taken in.

Everything happens in a folder of its own below the cache folder until the kernels were run in fresh
processes of the examined interpreter, hit every cache, and agreed with a float64 reference; only
then do the files move to where torch looks. What fails leaves nothing behind.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.builder import stamp
from attn_doctor.builder.lock import FOLDER, Lock
from attn_doctor.builder.manifest import Entry, Manifest
from attn_doctor.builder.run import Request, Watcher, prove
from attn_doctor.builder.surroundings import seen
from attn_doctor.caches import drift
from attn_doctor.caches.portable import artifact as artifacts
from attn_doctor.caches.portable.artifact import Artifact, ArtifactError
from attn_doctor.facts import Facts

__all__ = ["Imported", "differences", "private", "unpack"]


class Imported(Struct, frozen=True, kw_only=True):
    """What an import did."""

    proven: dict[str, Entry]
    """Manifest key → entry that is in use now, with the errors measured here."""
    refused: dict[str, Entry]
    """Manifest key → entry that was not taken; `message` says why."""
    present: tuple[str, ...]
    """Manifest keys that the cache folder had already."""
    files: int
    bytes: int


@contextmanager
def private(path: Path, folder: Path) -> Iterator[Path]:
    """A copy of the artifact and its signature where nobody else writes, removed at the end.

    What was trusted and what is read afterwards are then the same bytes.
    """
    incoming = folder / FOLDER / "incoming"
    try:
        incoming.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=incoming) as room:
            copy = Path(room) / path.name
            shutil.copyfile(path, copy)
            signature = path.with_name(f"{path.name}.sig")
            if signature.is_file():
                shutil.copyfile(signature, copy.with_name(signature.name))
            yield copy
    except OSError as error:
        name = error.filename or folder
        raise ArtifactError(f"{name}: {error.strerror or error}") from None


def differences(
    artifact: Artifact, facts: Facts, environ: Mapping[str, str]
) -> dict[str, tuple[drift.Moved, ...]]:
    """Place → what differs between its builder and this machine so that nothing would be reused."""
    found = {}
    for place, was in artifact.surroundings.items():
        device = place.partition(" ")[0]
        now = seen(facts, device, environ, was)
        found[place] = tuple(one for one in drift.moved(was, now) if one.effect == drift.REBUILD)
    return found


def unpack(
    copy: Path, artifact: Artifact, request: Request, watcher: Watcher, places: frozenset[str]
) -> Imported:
    """Prove the entries of the artifact that are for `places`, and take in those that hold.

    `copy` lies alone in a folder of its own (`private`). `request` names the cache folder, the
    interpreter and the environment; its specs are not used. Raises `ArtifactError` for a changed
    artifact, `PoolError` if the interpreter cannot import torch.
    """
    folder = request.folder
    with Lock(folder, watcher.waiting) as lock:
        manifest = stamp.load(folder) or stamp.empty()
        fitting = {key: one for key, one in artifact.entries.items() if one.place in places}
        present = tuple(key for key in fitting if _stands(manifest, artifact, key))
        wanted = {key: one for key, one in fitting.items() if key not in present}
        if not wanted:
            return Imported(proven={}, refused={}, present=present, files=0, bytes=0)
        room = copy.parent / "cache"
        room.mkdir()
        artifacts.extract(copy, artifact, room)
        stamp.save(room, replace(stamp.empty(), surroundings=artifact.surroundings, entries=wanted))
        found = prove(_inside(request, room), wanted, watcher)
        proven = {
            key: _kept(wanted[key], one) for key, one in found.items() if one.state == "built"
        }
        refused = {key: one for key, one in found.items() if one.state != "built"}
        names = _files(proven.values())
        lock.check()
        sizes = {name: _move(room, folder, name, artifact) for name in names}
        proven = {key: _sized(one, sizes) for key, one in proven.items()}
        built_in = {one.place: artifact.surroundings[one.place] for one in proven.values()}
        merged = replace(
            manifest,
            surroundings={**built_in, **manifest.surroundings},
            entries={**manifest.entries, **proven},
        )
        if proven:
            stamp.flush(folder, names)
            stamp.save(folder, merged)
    return Imported(
        proven=proven, refused=refused, present=present, files=len(names), bytes=sum(sizes.values())
    )


def _stands(manifest: Manifest, artifact: Artifact, key: str) -> bool:
    """The folder has this kernel, built in the same surroundings."""
    own = manifest.entries.get(key)
    return (
        own is not None
        and own.state == "built"
        and manifest.surroundings.get(own.place) == artifact.surroundings.get(own.place)
    )


def _inside(request: Request, room: Path) -> Request:
    environ = {name: text for name, text in request.environ.items() if name != "TRITON_CACHE_DIR"}
    environ["TORCHINDUCTOR_CACHE_DIR"] = str(room)
    return replace(request, folder=room, environ=environ)


def _kept(packed: Entry, found: Entry) -> Entry:
    """The entry as it is recorded here: files and keys as packed, errors and times as measured."""
    if packed.build is None or found.build is None:
        return packed
    build = replace(
        packed.build,
        at=found.build.at,
        reuse_seconds=found.build.reuse_seconds,
        errors=found.build.errors or packed.build.errors,
        hits=found.build.hits,
        proven=True,
    )
    return replace(packed, build=build, message="")


def _files(entries: Iterable[Entry]) -> list[str]:
    built = [one for one in entries if one.build is not None]
    names = {name for one in built if one.build for name in one.build.files}
    return sorted(names | {f"attn-doctor/keys/{one.spec.id}.json" for one in built})


def _move(room: Path, folder: Path, name: str, artifact: Artifact) -> int:
    """Move one proven file to where torch looks. Returns its bytes; 0 if it was not packed."""
    packed = artifact.files.get(Path(name).as_posix())
    source, target = room / name, folder / name
    if packed is None or not source.is_file():
        return 0
    target.parent.mkdir(parents=True, exist_ok=True)
    if packed.holds_path:
        source.write_bytes(source.read_bytes().replace(_json(room), _json(folder)))
    size = source.stat().st_size
    os.replace(source, target)
    return size


def _sized(entry: Entry, sizes: Mapping[str, int]) -> Entry:
    """The entry with the sizes that its files have here: a longer path makes a file longer."""
    if entry.build is None:
        return entry
    files = {name: sizes.get(name) or size for name, size in entry.build.files.items()}
    return replace(entry, build=replace(entry.build, files=files))


def _json(folder: Path) -> bytes:
    import msgspec

    return msgspec.json.encode(str(folder))[1:-1]
