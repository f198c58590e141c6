"""From an artifact to a cache folder: trusted, compared with this machine, verified, taken in.

Everything happens in a folder of its own below the cache folder until the kernels were run in fresh
processes of the examined interpreter, hit every cache, and agreed with a float64 reference; only
then do the files move to where torch looks. What fails leaves nothing behind. Without the GPU
nothing can be run: then, if it is asked for, entries are taken in as `unverified`, never as built.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from attn_doctor.kernels.builder.devices import TRITON
from attn_doctor.kernels.builder.plan import BuildRequest
from attn_doctor.kernels.builder.watcher import Watcher
from attn_doctor.kernels.bundle import artifact as artifacts
from attn_doctor.kernels.bundle.artifact import Artifact, ArtifactError
from attn_doctor.kernels.bundle.compatibility import Fit, Layer
from attn_doctor.kernels.bundle.import_entries import KERNELS, Imported, Taking
from attn_doctor.kernels.bundle.relocate import Moving
from attn_doctor.record import drift, store
from attn_doctor.record.lock import FOLDER, Lock
from attn_doctor.record.manifest import Manifest


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
            try:
                yield copy
            except ArtifactError as error:
                # The copy is gone by then; the user knows the file that was given.
                raise ArtifactError(str(error).replace(str(copy), str(path))) from None
    except OSError as error:
        name = error.filename or folder
        raise ArtifactError(f"{name}: {error.strerror or error}") from None


def unpack(
    copy: Path,
    artifact: Artifact,
    request: BuildRequest,
    watcher: Watcher,
    fits: Mapping[str, Fit],
    *,
    run: bool = True,
) -> Imported:
    """Prove what of the artifact fits, and take in what holds.

    `copy` lies alone in a folder of its own (`private`). `request` names the cache folder, the
    interpreter and the environment; its specs are not used. Unless `run`, nothing is run, and
    what is imported stays unverified. Raises `ArtifactError` for a changed artifact, `PoolError` if
    the interpreter cannot import torch.
    """
    folder = request.folder
    with Lock(folder, watcher.waiting) as lock:
        manifest = _living(store.load(folder) or store.empty(), artifact, fits)
        taking = Taking(artifact, request, fits, manifest, run=run)
        if not taking.wanted and not taking.warmups:
            return Imported(present=taking.present)
        room = copy.parent / "cache"
        room.mkdir()
        artifacts.extract(copy, artifact, room)
        done = taking.decided(room, watcher)
        lock.check()
        moving = Moving(room, folder, artifact)
        merged, done = _merged(manifest, done, moving, taking)
        if done.anything:
            store.flush(folder, moving.sizes)
            store.save(folder, merged)
    helpers = sum(name.startswith(f"{TRITON}/") for name in moving.sizes)
    return replace(done, files=len(moving.sizes), bytes=sum(moving.sizes.values()), helpers=helpers)


def _living(manifest: Manifest, artifact: Artifact, fits: Mapping[str, Fit]) -> Manifest:
    """The record without what no longer serves beside what comes in.

    A place has one set of surroundings, and with the new ones old entries would look as if they
    still fitted.
    """
    stale = {
        place
        for place, was in artifact.environments.items()
        if fits[place].layer in (Layer.EXACT, Layer.ABSENT)
        and (own := manifest.environments.get(place)) is not None
        and any(one.effect == drift.REBUILD for one in drift.changed_components(own, was))
    }
    if not stale:
        return manifest
    return replace(
        manifest,
        environments={
            place: one for place, one in manifest.environments.items() if place not in stale
        },
        entries={key: one for key, one in manifest.entries.items() if one.device_slot not in stale},
        warmups={key: one for key, one in manifest.warmups.items() if one.device_slot not in stale},
    )


def _merged(
    manifest: Manifest, done: Imported, moving: Moving, taking: Taking
) -> tuple[Manifest, Imported]:
    """Move the files, and the record with what came in."""
    whole = {**done.unverified, **done.verified}
    for entry in whole.values():
        moving.entry(entry)
    for entry in done.kernels.values():
        moving.entry(entry, only=KERNELS)
    for key, warmup in done.warmups.items():
        moving.warmup(key, warmup)
    if done.anything:
        moving.helpers()
    done = replace(
        done,
        verified={key: moving.sized(one) for key, one in done.verified.items()},
        unverified={key: moving.sized(one) for key, one in done.unverified.items()},
        warmups={key: moving.sized_warmup(one) for key, one in done.warmups.items()},
    )
    entries = dict(manifest.entries)
    entries.update(done.unverified)
    entries.update(done.verified)
    for key, entry in done.kernels.items():
        # A later build makes the graphs and with them the whole entry; it must not begin by
        # removing the kernels, so none of their files are named.
        if key not in entries or entries[key].state in ("cubins", "failed", "cleared"):
            entries[key] = replace(entry, build=None)
    entries = {key: taking.found(one) for key, one in entries.items()}
    surroundings = taking.surroundings(manifest, done)
    warmups = {**manifest.warmups, **done.warmups}
    return replace(manifest, environments=surroundings, entries=entries, warmups=warmups), done
