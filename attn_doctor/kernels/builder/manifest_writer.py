"""What a build writes down: the manifest of its folder, kept in step and saved after each change.

So whatever ends a build leaves a record of all that was finished. What torch tells of a device
comes in while others are at work already; until then the facts stand for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from msgspec.structs import replace

from attn_doctor._version import __version__
from attn_doctor.kernels.builder import items as plan
from attn_doctor.kernels.builder.items import PlannedBuild
from attn_doctor.kernels.builder.plan import BuildRequest, Plan, plan_build
from attn_doctor.record import key_parts, store
from attn_doctor.record.environment import slot_name
from attn_doctor.record.lock import Lock
from attn_doctor.record.manifest import BuildEnvironment, Entry, Manifest

#: The message of entries whose build has begun and not ended.
UNFINISHED = "not built: the build was ended before"


class Record:
    """The manifest of a request's folder while it is built."""

    def __init__(self, request: BuildRequest) -> None:
        self._request = request
        self.manifest: Manifest = store.load(request.folder) or store.empty()
        self.environments: dict[str, BuildEnvironment] = {}
        """Device → what torch told of it."""
        self.lock: Lock | None = None
        """Looked at before each writing, once it is held."""
        self._writers = ThreadPoolExecutor(4)
        self._written: dict[str, tuple[frozenset[str], Future[None]]] = {}

    def read(self) -> None:
        """Read it again, as another build may have changed it."""
        self.manifest = store.load(self._request.folder) or store.empty()

    def close(self) -> None:
        """Bring no more files to the disk."""
        self._writers.shutdown(wait=False, cancel_futures=True)

    # What it says

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Manifest key → entry."""
        return self.manifest.entries

    def environment_of(self, device: str) -> BuildEnvironment:
        """What torch told of a device, else what the facts tell."""
        return self.environments.get(device) or self._request.environment_of(device)

    def plan(self) -> Plan:
        """What has to be done, by all that is known so far."""
        names = {
            device: found.device
            for device, found in self.environments.items()
            if found.device and device != "cpu"
        }
        return plan_build(self._request, self.manifest, self.environments, names)

    def key(self, item: PlannedBuild) -> str:
        """The entry's key; the GPU's name may have become known only now."""
        found = self.environments.get(item.device)
        if found is None or item.device == "cpu" or not found.device:
            return item.key
        return key_parts.key(item.spec, slot_name(item.device, found.device))

    # What changes

    def begin(self, items: Iterable[PlannedBuild]) -> None:
        """Forget what is stale, and note what is wanted: should the build be ended, the next knows.

        What is yet to be verified keeps its entry.
        """
        gone = self._stale()
        kept = {name: one for name, one in self.entries.items() if name not in gone}
        wanted = {
            item.key: _unfinished(item)
            for item in items
            if _named(item.key) and item.state != "unverified"
        }
        warmups = {name: one for name, one in self.manifest.warmups.items() if name not in gone}
        self.manifest = replace(self.manifest, entries={**kept, **wanted}, warmups=warmups)
        for device in self._request.devices:
            self._place(device)
        self.save()

    def put(self, entries: Mapping[str, Entry]) -> None:
        """Take entries in, without saving."""
        self.manifest = replace(self.manifest, entries={**self.entries, **entries})

    def again(self, items: Sequence[PlannedBuild]) -> None:
        """Note that these have to be built anew."""
        self.put({item.key: _unfinished(item) for item in items})
        self.save()

    def enter(self, item: PlannedBuild, entry: Entry) -> None:
        """Write down what became of an item, its files being on the disk before."""
        if item.key in self._written and entry.build is not None:
            files, writing = self._written.pop(item.key)
            store.flush(self._request.folder, entry.build.files.keys() - files)
            writing.result()
        name = self.key(item)
        if _named(name):
            where = plan.mask_folder(item.spec.mask, self._request.sys_path)
            self.put({name: replace(entry, device_slot=name.partition("@")[2], mask_folder=where)})
        self._place(item.device)
        self.save()

    def flush(self, item: PlannedBuild, result: Mapping[str, Any]) -> None:
        """Bring the files to the disk while the proof runs: that takes longer than one thinks."""
        files = frozenset(result.get("files", ()))
        writing = self._writers.submit(store.flush, self._request.folder, files)
        self._written[item.key] = (files, writing)

    def save(self) -> None:
        """Write it. Raises `LockLostError` if another builder took over."""
        if self.lock is not None:
            self.lock.check()
        store.save(self._request.folder, self.manifest)

    def _stale(self) -> set[str]:
        """Keys of entries and warm-ups whose surroundings moved."""
        from attn_doctor.kernels.caches import stale as drift

        found: set[str] = set()
        for device, now in self.environments.items():
            place = slot_name(device, now.device or "")
            stale = drift.stale(self.manifest, place, now, str(self._request.folder))
            found |= stale.specs.keys() | stale.warmups.keys()
        return found

    def _place(self, device: str) -> None:
        """Note in what surroundings a device's kernels are built."""
        found = self.environment_of(device)
        place = slot_name(device, found.device or "")
        if not _named(place):
            return
        if self._request.target is not None:
            there = [entry for entry in self.entries.values() if entry.device_slot == place]
            was = self.manifest.environments.get(place)
            found = self._request.target.keeping(found, was, there)
        surroundings = {**self.manifest.environments, place: found}
        self.manifest = replace(self.manifest, environments=surroundings, attn_doctor=__version__)


def _named(place: str) -> bool:
    """The GPU of a place, or of an entry's key, is known by name."""
    return not place.endswith(" ")


def _unfinished(item: PlannedBuild) -> Entry:
    """The entry of a spec whose build is under way."""
    return Entry(spec=item.spec, device_slot=item.device_slot, state="failed", message=UNFINISHED)
