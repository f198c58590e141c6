"""Unpacks a trusted artifact into a cache folder, after its kernels were verified here.

Everything happens in a folder of its own below the cache folder until the kernels were run in fresh
processes of the examined interpreter, hit every cache, and agreed with a float64 reference; only
then do the files move to where torch looks. What fails leaves nothing behind. Without the GPU
nothing can be run: then, if it is asked for, entries are taken in as `unverified`, never as built.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from attn_doctor import files
from attn_doctor.kernels.builder.devices import TRITON
from attn_doctor.kernels.builder.plan import BuildRequest
from attn_doctor.kernels.builder.progress import Watcher
from attn_doctor.kernels.bundle import artifact as artifacts
from attn_doctor.kernels.bundle.artifact import Artifact, ArtifactError
from attn_doctor.kernels.bundle.compatibility import Compatibility, Layer
from attn_doctor.kernels.bundle.import_entries import KERNELS, Import, Imported
from attn_doctor.ownership import require_cache
from attn_doctor.record import drift, store
from attn_doctor.record.key_parts import names_of_parts
from attn_doctor.record.lock import FOLDER, Lock
from attn_doctor.record.manifest import Entry, Manifest, Warmup


@contextmanager
def private(path: Path, folder: Path) -> Iterator[Path]:
    """Copy the artifact and its signature to a private folder, which is removed at the end.

    So the bytes that are read are the bytes that were checked.
    """
    incoming = folder / FOLDER / "incoming"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        require_cache(folder)
        files.make_folders(folder, (FOLDER, "incoming"))
        with tempfile.TemporaryDirectory(dir=incoming) as staging:
            copy = Path(staging) / path.name
            shutil.copyfile(path, copy)
            signature = path.with_name(f"{path.name}.sig")
            if signature.is_file():
                shutil.copyfile(signature, copy.with_name(signature.name))
            try:
                yield copy
            except ArtifactError as error:
                # The copy does not exist any more; the user knows the original file.
                raise ArtifactError(str(error).replace(str(copy), str(path))) from None
    except OSError as error:
        name = error.filename or folder
        raise ArtifactError(f"{name}: {error.strerror or error}") from None


def unpack(
    copy: Path,
    artifact: Artifact,
    request: BuildRequest,
    watcher: Watcher,
    fits: Mapping[str, Compatibility],
    *,
    run: bool = True,
) -> Imported:
    """Verify the compatible entries of the artifact, and import those that pass.

    `copy` is alone in its folder (`private`). `request` names the cache folder, the
    interpreter and the environment; its specs are not used. Unless `run`, nothing is run, and
    what is imported stays unverified. Raises `ArtifactError` for a changed artifact, `PoolError` if
    the interpreter cannot import torch.
    """
    folder = request.folder
    with Lock(folder, watcher.waiting) as lock:
        manifest = _without_stale(store.load(folder) or store.empty(), artifact, fits)
        imports = Import(artifact, request, fits, manifest, run=run)
        if not imports.wanted and not imports.warmups:
            return Imported(present=imports.present)
        staging = copy.parent / "cache"
        staging.mkdir()
        artifacts.extract(copy, artifact, staging)
        done = imports.decided(staging, watcher)
        lock.check()
        relocation = Relocation(staging, folder, artifact)
        merged, done = _merged(manifest, done, relocation, imports)
        if done.anything:
            store.flush(folder, relocation.sizes)
            store.save(folder, merged)
    helpers = sum(name.startswith(f"{TRITON}/") for name in relocation.sizes)
    return replace(
        done, files=len(relocation.sizes), bytes=sum(relocation.sizes.values()), helpers=helpers
    )


def _without_stale(
    manifest: Manifest, artifact: Artifact, fits: Mapping[str, Compatibility]
) -> Manifest:
    """The record without entries that are stale beside the imported ones.

    A device slot has one build environment. With the new one, old entries would seem valid.
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
    manifest: Manifest, done: Imported, relocation: Relocation, imports: Import
) -> tuple[Manifest, Imported]:
    """Move the files, and add the imported entries to the record."""
    whole = {**done.unverified, **done.verified}
    for entry in whole.values():
        relocation.entry(entry)
    for entry in done.kernels.values():
        relocation.entry(entry, only=KERNELS)
    for key, warmup in done.warmups.items():
        relocation.warmup(key, warmup)
    if done.anything:
        relocation.helpers()
    done = replace(
        done,
        verified={key: relocation.sized(one) for key, one in done.verified.items()},
        unverified={key: relocation.sized(one) for key, one in done.unverified.items()},
        warmups={key: relocation.sized_warmup(one) for key, one in done.warmups.items()},
    )
    entries = dict(manifest.entries)
    entries.update(done.unverified)
    entries.update(done.verified)
    for key, entry in done.kernels.items():
        # A later build adds the graphs and completes the entry. It must not begin by deleting
        # the kernels, so none of their files are recorded.
        if key not in entries or entries[key].state in ("cubins", "failed", "cleared"):
            entries[key] = replace(entry, build=None)
    entries = {key: imports.found(one) for key, one in entries.items()}
    environments = imports.environments(manifest, done)
    warmups = {**manifest.warmups, **done.warmups}
    return replace(manifest, environments=environments, entries=entries, warmups=warmups), done


class Relocation:
    """Moves files from the staging folder to the cache folder, each file once."""

    def __init__(self, staging: Path, folder: Path, artifact: Artifact) -> None:
        self._room, self._folder, self._artifact = staging, folder, artifact
        self.sizes: dict[str, int] = {}
        """Path below the cache folder → size of a moved file."""

    def entry(self, entry: Entry, only: str = "") -> None:
        """Move the files of an entry, those that begin with `only`, and its key parts."""
        if entry.build is None:
            return
        self._move(name for name in entry.build.files if name.startswith(only))
        if not only:
            self._move(names_of_parts(entry))

    def warmup(self, key: str, warmup: Warmup) -> None:
        """Move the files of a warm-up and its key parts."""
        self._move([*warmup.files, f"attn-doctor/keys/{key}.json"])

    def helpers(self) -> None:
        """Move the files of Triton's own folder: modules that belong to no kernel."""
        self._move(name for name in self._artifact.files if name.startswith(f"{TRITON}/"))

    def sized(self, entry: Entry) -> Entry:
        """Return the entry with the sizes of its files here: a longer path makes a file longer."""
        if entry.build is None:
            return entry
        files = {name: self.sizes.get(name) or size for name, size in entry.build.files.items()}
        build = replace(entry.build, files=files, root=self._foreign(entry.build.root))
        return replace(entry, build=build)

    def sized_warmup(self, warmup: Warmup) -> Warmup:
        """Return the warm-up with the sizes of its files here."""
        files = {name: self.sizes.get(name) or size for name, size in warmup.files.items()}
        return replace(warmup, files=files, root=self._foreign(warmup.root))

    def _foreign(self, root: str) -> str:
        return "" if root == str(self._folder) else root

    def _move(self, names: Iterable[str]) -> None:
        for name in sorted(names):
            packed = self._artifact.files.get(Path(name).as_posix())
            source, target = self._room / name, self._folder / name
            if name in self.sizes or packed is None or not source.is_file():
                continue
            files.make_folders(self._folder, Path(name).parent.parts)
            if packed.holds_path:
                data = artifacts.without_folder(
                    files.read_bytes(source, artifacts.LARGEST_FILE), self._room
                )
                source.write_bytes(artifacts.with_folder(data, self._folder))
            self.sizes[name] = source.stat().st_size
            os.replace(source, target)
