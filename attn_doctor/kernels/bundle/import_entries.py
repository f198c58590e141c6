"""Decides which entries of an artifact are imported, and in which state.

Complete entries, if every cache was hit and the numbers were right. Only Triton's kernels, if
graphs missed but nothing was compiled. No entry with wrong numbers. Entries that were not run are
unverified.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.kernels.builder.devices import TRITON
from attn_doctor.kernels.builder.plan import BuildRequest, mask_folder, mask_source, missing
from attn_doctor.kernels.builder.progress import Watcher
from attn_doctor.kernels.bundle.artifact import Artifact
from attn_doctor.kernels.bundle.compatibility import Compatibility, Layer
from attn_doctor.kernels.verify.entries import measured, run_in_fresh_processes, verified_in
from attn_doctor.record import key_parts, store
from attn_doctor.record.environment import environment_from_facts
from attn_doctor.record.manifest import (
    BuildEnvironment,
    Entry,
    Manifest,
    Warmup,
)

#: Files of Triton's kernels, which lie one folder to each.
KERNELS = "triton/"
#: The message of an entry of which only these were imported.
KERNELS_ONLY = "only its Triton kernels were imported"


class Imported(Struct, frozen=True, kw_only=True):
    """The result of an import."""

    verified: dict[str, Entry] = {}
    """Manifest key → imported entry, with the errors measured here."""
    unverified: dict[str, Entry] = {}
    """Manifest key → imported entry that was not run on its GPU."""
    kernels: dict[str, Entry] = {}
    """Manifest key → entry of which only Triton's kernels were imported; `message` says why."""
    warmups: dict[str, Warmup] = {}
    """Manifest key → warm-up whose files were imported; its program has to verify them."""
    refused: dict[str, Entry] = {}
    """Manifest key → entry that was not imported; `message` says why."""
    present: tuple[str, ...] = ()
    """Manifest keys that the cache folder already had."""
    files: int = 0
    bytes: int = 0
    helpers: int = 0
    """Files of Triton's own folder among them, which TRITON_HOME has to name."""

    @property
    def anything(self) -> bool:
        """Something was imported."""
        return bool(self.verified or self.unverified or self.kernels or self.warmups)


class Import:
    """Selects the entries of an artifact, runs them, and decides what to import."""

    def __init__(
        self,
        artifact: Artifact,
        request: BuildRequest,
        fits: Mapping[str, Compatibility],
        manifest: Manifest,
        *,
        run: bool,
    ) -> None:
        self._artifact, self._request, self._fits, self._run = artifact, request, fits, run
        layers = (Layer.EXACT, Layer.KERNELS) if run else (Layer.EXACT, Layer.KERNELS, Layer.ABSENT)
        fitting = {
            key: one
            for key, one in artifact.entries.items()
            if fits[one.device_slot].layer in layers
        }
        self.present = tuple(key for key in fitting if self._present(manifest, key))
        self.wanted = {key: one for key, one in fitting.items() if key not in self.present}
        self.warmups = {
            key: one
            for key, one in artifact.warmups.items()
            if fits[one.device_slot].layer in layers
        }

    def _present(self, manifest: Manifest, key: str) -> bool:
        """The folder has this kernel, complete and verified as far as possible here."""
        entry = self._artifact.entries[key]
        fit = self._fits[entry.device_slot]
        own = manifest.entries.get(key_parts.key(entry.spec, fit.device_slot_here))
        if own is None or own.build is None or own.state not in ("built", "unverified"):
            return False
        if own.state == "unverified" and self._run and fit.layer is Layer.EXACT:
            return False
        return not missing(self._request.folder, own.build.files)

    def decided(self, staging: Path, watcher: Watcher) -> Imported:
        """Decide on each entry. Runs those that can be run here, in `staging`."""
        found: dict[str, Entry] = {}
        unusable: dict[str, str] = {}
        if self._run:
            unusable = {key: why for key, one in self.wanted.items() if (why := self._mask(one))}
            found = self._run_all(staging, watcher, unusable)
        verified: dict[str, Entry] = {}
        unverified: dict[str, Entry] = {}
        kernels: dict[str, Entry] = {}
        refused: dict[str, Entry] = {}
        for key, packed in self.wanted.items():
            fit = self._fits[packed.device_slot]
            here = key_parts.key(packed.spec, fit.device_slot_here)
            alone = fit.layer is Layer.KERNELS
            why = unusable.get(key) or (fit.why if alone else "")
            ran = found.get(key)
            if ran is not None and ran.state in ("built", "unverified"):
                taken = verified if ran.state == "built" else unverified
                taken[here] = replace(_kept(packed, ran), device_slot=fit.device_slot_here)
            elif ran is not None and not _served(ran):
                refused[key] = ran
            elif ran is not None or alone or why:
                kernels[here] = self._kernels_only(packed, why or (ran.message if ran else ""), ran)
            else:
                unverified[here] = _unverified(packed)
        return Imported(
            verified=verified,
            unverified=unverified,
            kernels={key: one for key, one in kernels.items() if _cubins(one)},
            refused=refused,
            present=self.present,
            warmups=self._programs(),
        )

    def _run_all(
        self, staging: Path, watcher: Watcher, unusable: Mapping[str, str]
    ) -> dict[str, Entry]:
        """Run in fresh processes everything that can run, also entries with kernels only."""
        runnable = {key: one for key, one in self.wanted.items() if key not in unusable}
        if not runnable:
            return {}
        environments = self._artifact.environments
        manifest = replace(store.empty(), environments=environments, entries=runnable)
        store.save(staging, manifest)
        return run_in_fresh_processes(_inside(self._request, staging), runnable, watcher)

    def _mask(self, entry: Entry) -> str:
        """Why an entry with a mask of the user's own cannot be run here; empty if it can."""
        if not entry.mask_source:
            return ""
        found = mask_source(entry.spec, self._request.sys_path)
        if found is None:
            return f"the file of its mask {entry.spec.mask} is not here"
        same = found == entry.mask_source
        return "" if same else f"the file of its mask {entry.spec.mask} has other content here"

    def found(self, entry: Entry) -> Entry:
        """The entry with the folder in which its mask was found here."""
        if not entry.mask_source or entry.mask_folder:
            return entry
        return replace(entry, mask_folder=mask_folder(entry.spec.mask, self._request.sys_path))

    def _kernels_only(self, packed: Entry, why: str, found: Entry | None = None) -> Entry:
        """Return the entry as it is recorded if only its kernels can be used."""
        build = replace(packed.build, root="") if packed.build else None
        if build is not None and found is not None and found.build is not None:
            build = replace(
                build,
                reuse_seconds=found.build.reuse_seconds,
                errors=found.build.errors,
                compared=found.build.compared,
                hits=found.build.hits,
            )
        here = self._fits[packed.device_slot].device_slot_here
        return replace(
            packed, device_slot=here, state="cubins", build=build, message=f"{KERNELS_ONLY}: {why}"
        )

    def environments(self, manifest: Manifest, done: Imported) -> dict[str, BuildEnvironment]:
        """Return the build environment of every device slot, as verified where that was done."""
        packed = self._artifact.environments
        origin = {fit.device_slot_here: packed[place] for place, fit in self._fits.items()}
        verified = {one.device_slot for one in done.verified.values()}
        alone = {one.device_slot for one in done.kernels.values()}
        named = {one.device_slot for one in done.unverified.values()}
        named |= {one.device_slot for one in done.warmups.values()}
        found = dict(manifest.environments)
        for place in sorted(verified | alone | named):
            was = found.get(place, origin[place])
            now = environment_from_facts(
                self._request.facts, place.partition(" ")[0], self._request.environ, was
            )
            if place in verified:
                found[place] = verified_in(was, now)
            else:
                found.setdefault(place, now if place in alone - named else was)
        return found

    def _programs(self) -> dict[str, Warmup]:
        found = {}
        for key, one in self.warmups.items():
            fit = self._fits[one.device_slot]
            alone = fit.layer is Layer.KERNELS
            files = {name: size for name, size in one.files.items() if not alone or _kernel(name)}
            message = f"{KERNELS_ONLY}: {fit.why}" if alone else ""
            if files:
                found[key] = replace(
                    one,
                    device_slot=fit.device_slot_here,
                    files=files,
                    verified=one.verified and not alone,
                    unverified=not alone,
                    message=message,
                )
        return found


def _kernel(name: str) -> bool:
    return name.startswith(KERNELS)


def _cubins(entry: Entry) -> bool:
    return entry.build is not None and any(map(_kernel, entry.build.files))


def _served(found: Entry) -> bool:
    """Graphs missed but nothing was compiled: all kernels were found, and were right.

    An entry with a wrong result is never imported, whatever its compatibility.
    """
    ran = found.build.hits.get("compilers") if found.build else None
    return found.state == "not-reused" and ran == 0


def _unverified(packed: Entry) -> Entry:
    if packed.build is None:
        return packed
    return replace(packed, state="unverified", build=replace(packed.build, errors={}, compared={}))


def _kept(packed: Entry, found: Entry) -> Entry:
    """The entry as it is recorded here: files and keys as packed, errors and times as measured."""
    if packed.build is None or found.build is None:
        return packed
    build = measured(packed.build, found.build, verified=True)
    return replace(packed, state=found.state, build=build, message="")


def _inside(request: BuildRequest, staging: Path) -> BuildRequest:
    environ = {name: text for name, text in request.environ.items() if name != "TRITON_CACHE_DIR"}
    environ["TORCHINDUCTOR_CACHE_DIR"] = str(staging)
    if environ.get("TRITON_HOME", str(request.folder)) == str(request.folder):
        # Use Triton's own helpers from the artifact if it has them.
        if (staging / TRITON).is_dir():
            environ["TRITON_HOME"] = str(staging)
        else:
            environ.pop("TRITON_HOME", None)
    return replace(request, folder=staging, environ=environ)
