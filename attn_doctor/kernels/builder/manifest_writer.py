"""Writes the manifest of a folder while it is built, and makes its entries from process results.

It is saved after each change, so that whatever ends a build leaves a record of all that was
finished. An entry states what its processes answered. Of a process that died without an answer,
only the last line of its log says why.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from msgspec.structs import replace

from attn_doctor._version import __version__
from attn_doctor.kernels.builder.plan import (
    BuildRequest,
    Plan,
    PlannedBuild,
    mask_folder,
    plan_build,
)
from attn_doctor.pool.task import Outcome
from attn_doctor.record import key_parts, store
from attn_doctor.record.environment import slot_name
from attn_doctor.record.lock import Lock
from attn_doctor.record.manifest import Build, BuildEnvironment, Entry, EntryState, Manifest
from attn_doctor.redact import presentable

#: The message of entries whose build has begun and not ended.
UNFINISHED = "not built: the build was interrupted before"
#: What a failure says when memory, of the GPU or the machine, ran out. Not `out of resource:
#: shared memory`, which building alone does not cure.
_MEMORY = ("CUDA out of memory", "OutOfMemoryError: CUDA", "out of memory", "MemoryError")
_NOT_MEMORY = ("out of resource", "shared memory")
_KILLED = 9
#: Characters of a log's last line that are shown.
_SHOWN = 200


class ManifestWriter:
    """The manifest of a request's folder while it is built."""

    def __init__(self, request: BuildRequest) -> None:
        self._request = request
        self.manifest: Manifest = store.load(request.folder) or store.empty()
        self.environments: dict[str, BuildEnvironment] = {}
        """Device → what torch reported of it; the facts serve until then."""
        self.lock: Lock | None = None
        """Checked before each writing, once it is held."""
        self._flushers = ThreadPoolExecutor(4)
        self._flushed: dict[str, tuple[frozenset[str], Future[None]]] = {}

    def reload(self) -> bool:
        """Read the manifest again. Returns whether another build has changed it."""
        before = self.manifest
        self.manifest = store.load(self._request.folder) or store.empty()
        return self.manifest != before

    def close(self) -> None:
        """Stop writing files to the disk in the background."""
        self._flushers.shutdown(wait=False, cancel_futures=True)

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Manifest key → entry."""
        return self.manifest.entries

    def environment_of(self, device: str) -> BuildEnvironment:
        """What torch reported of a device, else what the facts know."""
        return self.environments.get(device) or self._request.environment_of(device)

    def plan(self) -> Plan:
        """Plan the build by all that is known now."""
        return plan_build(self._request, self.manifest, self.environments)

    def key(self, kernel: PlannedBuild) -> str:
        """The entry's key; the GPU's name may have become known after planning."""
        environment = self.environments.get(kernel.device)
        if environment is None or kernel.device == "cpu" or not environment.device:
            return kernel.key
        return key_parts.key(kernel.spec, slot_name(kernel.device, environment.device))

    def begin(self, kernels: Iterable[PlannedBuild]) -> None:
        """Remove stale entries and note what will be built, for the case of an interruption.

        Kernels that only have to be verified keep their entries.
        """
        gone = self._stale_keys()
        kept = {name: entry for name, entry in self.entries.items() if name not in gone}
        begun = {
            kernel.key: _unfinished(kernel)
            for kernel in kernels
            if _named(kernel.key) and kernel.state != "unverified"
        }
        warmups = {name: one for name, one in self.manifest.warmups.items() if name not in gone}
        self.manifest = replace(self.manifest, entries={**kept, **begun}, warmups=warmups)
        for device in self._request.devices:
            self._enter_environment(device)
        self.save()

    def finish(self) -> None:
        """Save, with what torch reported of the devices: that may come after the last kernel."""
        for device in self._request.devices:
            self._enter_environment(device)
        self.save()

    def put(self, entries: Mapping[str, Entry]) -> None:
        """Replace entries, without saving."""
        self.manifest = replace(self.manifest, entries={**self.entries, **entries})

    def mark_unfinished(self, kernels: Sequence[PlannedBuild]) -> None:
        """Note that these have to be built again."""
        self.put({kernel.key: _unfinished(kernel) for kernel in kernels})
        self.save()

    def enter(self, kernel: PlannedBuild, entry: Entry) -> None:
        """Write down the entry of a finished kernel, after its files have reached the disk."""
        if kernel.key in self._flushed and entry.build is not None:
            files, writing = self._flushed.pop(kernel.key)
            store.flush(self._request.folder, entry.build.files.keys() - files)
            writing.result()
        name = self.key(kernel)
        if _named(name):
            folder = mask_folder(kernel.spec.mask, self._request.sys_path)
            slot = name.partition("@")[2]
            self.put({name: replace(entry, device_slot=slot, mask_folder=folder)})
        self._enter_environment(kernel.device)
        self.save()

    def flush(self, kernel: PlannedBuild, result: Mapping[str, Any]) -> None:
        """Write a kernel's files to the disk while its verification runs, which saves time."""
        files = frozenset(result.get("files", ()))
        writing = self._flushers.submit(store.flush, self._request.folder, files)
        self._flushed[kernel.key] = (files, writing)

    def save(self) -> None:
        """Write the manifest. Raises `LockLostError` if another builder took over."""
        if self.lock is not None:
            self.lock.check()
        store.save(self._request.folder, self.manifest)

    def _stale_keys(self) -> set[str]:
        """Keys of entries and warm-ups whose build environment changed."""
        from attn_doctor.kernels.caches.stale_builds import stale

        keys: set[str] = set()
        for device, now in self.environments.items():
            slot = slot_name(device, now.device or "")
            found = stale(self.manifest, slot, now, str(self._request.folder))
            keys |= found.specs.keys() | found.warmups.keys()
        return keys

    def _enter_environment(self, device: str) -> None:
        """Note in which environment a device's kernels are built."""
        environment = self.environment_of(device)
        slot = slot_name(device, environment.device or "")
        if not _named(slot):
            return
        if self._request.target is not None:
            there = [entry for entry in self.entries.values() if entry.device_slot == slot]
            was = self.manifest.environments.get(slot)
            environment = self._request.target.keeping(environment, was, there)
        environments = {**self.manifest.environments, slot: environment}
        self.manifest = replace(self.manifest, environments=environments, attn_doctor=__version__)


def _named(slot: str) -> bool:
    """Whether the GPU of a device slot, or of an entry's key, is known by name."""
    return not slot.endswith(" ")


def _unfinished(kernel: PlannedBuild) -> Entry:
    return _failed(kernel, UNFINISHED)


def _failed(kernel: PlannedBuild, message: str) -> Entry:
    return Entry(
        spec=kernel.spec,
        device_slot=kernel.device_slot,
        state="failed",
        message=presentable(message),
    )


# Entries


def verified_entry(kernel: PlannedBuild, built: Mapping[str, Any], verified: Outcome) -> Entry:
    """The entry of a kernel that was built, after its verification."""
    result = verified.result or {}
    failure = result.get("failure") or {}
    ok = succeeded(verified)
    state: EntryState = "failed"
    if ok:
        # Without a GPU nothing is computed that could be compared with float64.
        state = "unverified" if result.get("unverified") else "built"
    elif failure.get("type") == "NotReused":
        state = "not-reused"
    message = "" if ok else str(failure.get("message") or f"the verification {_death(verified)}")
    hits = dict(result.get("counters") or {})
    if result.get("compilers") is not None:
        hits["compilers"] = int(result["compilers"])
    return Entry(
        spec=kernel.spec,
        device_slot=kernel.device_slot,
        state=state,
        mask_source=str(built.get("mask_source") or ""),
        message=presentable(message),
        build=Build(
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            seconds=float(built.get("seconds", 0.0)),
            reuse_seconds=result.get("seconds"),
            errors={**built.get("errors", {}), **(result.get("errors") or {})},
            compared=dict(result.get("compared") or built.get("compared") or {}),
            keys=dict(built.get("keys", {})),
            files={**built.get("files", {}), **(result.get("files") or {})},
            verified=ok,
            hits=hits,
            limits=list(dict.fromkeys([*built.get("limits", ()), *result.get("limits", ())])),
        ),
    )


def failed_entry(kernel: PlannedBuild, outcome: Outcome) -> Entry:
    """The entry of a kernel that could not be built."""
    failure = (outcome.result or {}).get("failure") or {}
    return _failed(kernel, str(failure.get("message") or "") or _death(outcome))


def _death(outcome: Outcome) -> str:
    """Why there is no answer, with the last line that was printed."""
    if outcome.timed_out:
        return outcome.reason
    if outcome.signal == _KILLED:
        return f"{outcome.reason}, as the system does when memory runs out"
    try:
        printed = outcome.output().strip()
    except OSError:
        printed = ""
    last = presentable(printed.rpartition("\n")[2])[:_SHOWN]
    return f"{outcome.reason}: {last}" if last and not outcome.signal else outcome.reason


def succeeded(outcome: Outcome) -> bool:
    """Whether the process answered that all went well."""
    return bool(outcome.result and outcome.result.get("ok"))


def memory_ran_out(outcome: Outcome) -> bool:
    """Whether it failed because memory ran out, of the GPU or of the machine."""
    if outcome.result is None:
        return outcome.signal == _KILLED and not outcome.timed_out
    text = str((outcome.result.get("failure") or {}).get("message", ""))
    if any(words in text for words in _NOT_MEMORY):
        return False
    return any(words in text for words in _MEMORY)
