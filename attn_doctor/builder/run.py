"""One call of build-kernels: look what there is, clear what is stale, build, prove, write down.

Everything that changes the cache folder happens under its lock, and the manifest is written after
each spec, so that whatever ends this process leaves a record of all that was finished.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor import __version__
from attn_doctor.builder import plan, stamp
from attn_doctor.builder.clearing import Cleared, clear
from attn_doctor.builder.course import Course, Step, log_of
from attn_doctor.builder.lock import FOLDER, Lock, Owner
from attn_doctor.builder.manifest import Entry, Manifest, Surroundings
from attn_doctor.builder.outcome import Report, Result, explained
from attn_doctor.builder.plan import Item
from attn_doctor.builder.pool import Outcome, Pool
from attn_doctor.builder.spec import KernelSpec
from attn_doctor.builder.surroundings import place_of, place_with, seen
from attn_doctor.builder.timings import Timings
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts

__all__ = ["UNFINISHED", "Build", "Plan", "Request", "Watcher", "planned", "prove"]


#: Beside the manifest while a build is at work; one that is found there was ended.
MARK = "unfinished"
#: The message of entries whose build has begun and not ended.
UNFINISHED = "not built: the build was ended before"


class Request(Struct, frozen=True, kw_only=True):
    """What is wanted."""

    specs: tuple[KernelSpec, ...]
    devices: tuple[str, ...]
    facts: Facts
    folder: Path
    """The cache folder."""
    environ: dict[str, str]
    """Environment of the building processes."""
    sys_path: tuple[str, ...] = ()
    """Where the user's own masks are looked for."""
    only: frozenset[str] | None = None
    """Keys of manifest entries to which it is limited; None: every spec for every device."""
    jobs: int | None = None
    limit: float = 600.0
    """Seconds that building one spec may take, and proving it again."""
    force: bool = False

    @property
    def python(self) -> str:
        """The examined interpreter."""
        return self.facts.python.path or ""

    @property
    def logs(self) -> Path:
        """Where the children print to."""
        return self.folder / FOLDER / "logs"


class Plan(Struct, frozen=True, kw_only=True):
    """What a build would do."""

    items: tuple[Item, ...]
    cleared: tuple[Cleared, ...]
    """Files that would be removed first."""
    jobs: int
    limit: str
    moved: tuple[str, ...] = ()
    """What has changed since the stale entries were built, as sentences."""
    unknown: tuple[str, ...] = ()
    """Devices whose GPU only torch can name: their entries are looked up while building."""

    @property
    def todo(self) -> tuple[Item, ...]:
        """What has to be built, in the order of building."""
        return tuple(plan.longest_first(item for item in self.items if item.todo))

    @property
    def seconds(self) -> float:
        """How long building will take, roughly, torch's import and the proofs included."""
        todo = self.todo
        if not todo:
            return 0.0
        work = sum(item.seconds * 1.3 for item in todo)
        return 3.0 + max(work / self.jobs, *(item.seconds * 1.3 for item in todo))


class Watcher:
    """Is told what happens; a progress display overrides what it shows."""

    def __enter__(self) -> Watcher:  # noqa: PYI034 (Self is newer than Python 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        """The display ends."""

    def waiting(self, owner: Owner | None) -> None:
        """Another builder holds the lock."""

    def begin(self, plan: Plan) -> None:
        """The build begins; stale files are about to be removed."""

    def step(self, step: Step) -> None:
        """A spec has moved on."""

    def tick(self) -> None:
        """A moment has passed."""


def planned(
    request: Request,
    manifest: Manifest,
    surroundings: Mapping[str, Surroundings] | None = None,
    names: Mapping[str, str] | None = None,
) -> Plan:
    """What building `request` would do. Changes and runs nothing.

    `surroundings` by device, and `names` of their GPUs, are what torch itself told, where it was
    asked; without them the facts have to do.
    """
    from attn_doctor.caches import drift

    items: list[Item] = []
    cleared: dict[str, Cleared] = {}
    moved: list[str] = []
    unknown: list[str] = []
    for device in request.devices:
        name = (names or {}).get(device)
        place = place_with(device, name) if name else place_of(request.facts, device)
        if place is None:
            unknown.append(device)
            place = place_with(device, "")
        was = manifest.surroundings.get(place)
        now = (surroundings or {}).get(device)
        now = now or seen(request.facts, device, request.environ, was)
        stale = drift.stale(
            manifest, place, now, str(request.folder), jiterator=_jiterator(request)
        )
        moved += [one.sentence for one in stale.moved if one.sentence not in moved]
        for doomed in stale.files:
            path = str(Path(doomed.root, doomed.path))
            cleared[path] = Cleared(path=path, bytes=doomed.bytes, why=doomed.why)
        found = plan.items(
            request.specs,
            device,
            place,
            manifest,
            request.folder,
            stale=stale.specs,
            sys_path=request.sys_path,
            force=request.force,
        )
        items += [item for item in found if request.only is None or item.key in request.only]
    for path, old in _superseded(request.folder, manifest, items):
        cleared.setdefault(path, old)
    jobs, limit = plan.workers(request.facts, request.devices[0], request.jobs)
    todo = sum(item.todo for item in items)
    if request.jobs is None and todo and todo < jobs:
        jobs, limit = todo, "specs"
    return Plan(
        items=tuple(items),
        cleared=tuple(cleared.values()),
        jobs=jobs,
        limit=limit,
        moved=tuple(moved) if cleared or any(item.state == "stale" for item in items) else (),
        unknown=tuple(unknown),
    )


def _superseded(
    folder: Path, manifest: Manifest, items: Iterable[Item]
) -> Iterable[tuple[str, Cleared]]:
    """Files of entries that will be built anew, unless another entry that stays has them too."""
    anew = {item.key: item for item in items if item.todo and item.state != "stale"}
    stays: set[str] = set()
    for name, entry in manifest.entries.items():
        if name not in anew and entry.build is not None:
            stays |= entry.build.files.keys()
    for warmup in manifest.warmups.values():
        stays |= warmup.files.keys()
    for name, item in anew.items():
        found = manifest.entries.get(name)
        if found is None or found.build is None:
            continue
        files = sorted(found.build.files.keys() - stays)
        for one in _listed(folder, files, f"{item.spec.title}: {item.why}"):
            yield one.path, one


def _jiterator(request: Request) -> str:
    """The folder of torch's run-time compiled elementwise kernels."""
    found = [cache.path for cache in request.facts.caches or () if cache.kind == "jiterator"]
    return (found[0] or "") if found else ""


class Build:
    """One build under the lock of its folder."""

    def __init__(self, request: Request, watcher: Watcher) -> None:
        self._request, self._watcher = request, watcher
        self._manifest = stamp.load(request.folder) or stamp.empty()
        self._surroundings: dict[str, Surroundings] = {}
        self._results: dict[str, Result] = {}
        self._cleared: list[Cleared] = []
        self._kept: dict[str, str] = {}
        self.plan = planned(request, self._manifest)
        """What has to be done, by what is known so far."""
        self._lock: Lock | None = None
        self._begun = time.monotonic()
        self._timings = Timings(self._begun)
        self._start_seconds: float | None = None
        self._writers = ThreadPoolExecutor(4)
        self._written: dict[str, tuple[frozenset[str], Future[None]]] = {}
        self.notes: list[str] = []

    def run(self) -> None:
        """Build all that is wanted. `report` tells what was done, also after an interruption.

        Raises `PoolError` if the interpreter cannot import torch, and `LockLostError` if another
        builder took over.
        """
        request = self._request
        with Lock(request.folder, self._watcher.waiting) as lock:
            self._lock = lock
            request.logs.mkdir(parents=True, exist_ok=True)
            mark = request.folder / FOLDER / MARK
            if mark.exists():
                self._remove_damage()
            # Whoever held the lock before may have built just this.
            self._manifest = stamp.load(request.folder) or stamp.empty()
            self.plan = planned(request, self._manifest)
            if not self.plan.todo and not self.plan.unknown:
                return
            self._watcher.begin(self.plan)
            stamp.write(mark, b"")
            self._timings.last("prepared")
            try:
                with _pool(request, request.devices) as pool:
                    self._build(pool)
                    self._timings.last("all_done")
            finally:
                self._writers.shutdown(wait=False, cancel_futures=True)
            mark.unlink(missing_ok=True)
            self._timings.last("end")

    def report(self, seconds: float | None = None) -> Report:
        """What was done so far."""
        request = self._request
        now = self.plan
        results = [self._results.get(item.key) or self._as_was(item) for item in now.items]
        return Report(
            facts=request.facts,
            folder=str(request.folder),
            jobs=now.jobs,
            limit=now.limit,
            results=tuple(results),
            cleared=tuple(self._cleared),
            kept=self._kept,
            notes=tuple(self.notes),
            seconds=time.monotonic() - self._begun if seconds is None else seconds,
            start_seconds=self._start_seconds,
            phases=self._timings.phases,
            stages=self._timings.stages,
        )

    def _as_was(self, item: Item) -> Result:
        return Result(item=item, entry=None if item.todo else self._manifest.entries.get(item.key))

    def _build(self, pool: Pool) -> None:
        request, now = self._request, self.plan
        memory = {
            device: free
            for device in request.devices
            if (free := plan.free_gpu_mib(request.facts, device)) is not None
        }
        course = Course(
            pool,
            now.jobs,
            request.limit,
            sys_path=request.sys_path,
            memory=memory,
            tell=self._watcher.step,
            tick=self._watcher.tick,
            compiled=self._compiled,
            timings=self._timings,
        )
        for device in request.devices:
            self._ask(course, device)
        old = any(entry.place.split(" ")[0] in request.devices for entry in self._all_entries())
        if old or now.unknown:
            # Digests that only torch knows may have moved too: that decides what is to be done.
            course.until(lambda: len(self._surroundings) == len(request.devices))
            self._timings.last("waited_for_surroundings")
            self.plan = now = planned(request, self._manifest, self._surroundings, self._names())
        self._clear(now)
        self._timings.last("cleared")
        course.run([item for item in now.todo if not self._refused(item)], self._finished)
        self._start_seconds = pool.start_seconds
        if pool.ready_at is not None:
            self._timings.last("torch_imported", pool.ready_at)
        self._save()

    def _refused(self, item: Item) -> bool:
        """Say so, without compiling, if torch itself would refuse the spec."""
        from attn_doctor.builder.refusals import refusal

        facts = self._request.facts
        told = self._surroundings.get(item.device) or seen(facts, item.device, {})
        why = refusal(item.spec, facts.torch.version or "", item.device, told.sm)
        if why:
            place = item.key.partition("@")[2]
            entry = Entry(spec=item.spec, place=place, state="failed", message=why)
            self._finished(item, entry, retried=False)
            self._watcher.step(Step(item=item, phase="done", entry=entry))
        return bool(why)

    def _all_entries(self) -> Iterable[Entry]:
        return self._manifest.entries.values()

    def _names(self) -> dict[str, str]:
        return {
            device: found.device
            for device, found in self._surroundings.items()
            if found.device and device != "cpu"
        }

    def _ask(self, course: Course, device: str) -> None:
        """Ask torch for the surroundings that only it knows."""

        def answer(outcome: Outcome) -> None:
            told = (outcome.result or {}).get("surroundings")
            self._timings.last("surroundings_told")
            if told:
                self._surroundings[device] = _told(told)
            else:
                # The specs will fail for the same reason, and say it.
                self._surroundings[device] = seen(
                    self._request.facts, device, self._request.environ
                )

        log = self._request.logs / f"surroundings-{device.replace(':', '')}.log"
        log.unlink(missing_ok=True)
        course.ask({"action": "surroundings", "device": device}, log, answer)

    # Clearing

    def _remove_damage(self) -> None:
        """Remove half-written files, as a killed compiler leaves them: torch would load them.

        Every file is looked into for that, so it is done only after a build that was ended.
        """
        from attn_doctor.caches.damage import damage

        for one in damage("inductor", str(self._request.folder)):
            if not one.harmless:
                why = f"damaged: {one.what}"
                self._remove(_listed(self._request.folder, one.remove, why))

    def _clear(self, now: Plan) -> None:
        """Take out of the folder and of the manifest what will be built anew, or is stale."""
        self._remove(now.cleared)
        gone = self._stale_keys()
        manifest = self._manifest
        kept = {name: one for name, one in manifest.entries.items() if name not in gone}
        # Should this build be ended, the next one still knows what was wanted.
        wanted = {item.key: _unfinished(item) for item in now.todo if _named(item.key)}
        self._manifest = replace(
            manifest,
            entries={**kept, **wanted},
            warmups={name: one for name, one in manifest.warmups.items() if name not in gone},
        )
        for device in self._request.devices:
            found = self._surroundings.get(device)
            self._stamp_place(device, found or seen(self._request.facts, device, {}))
        self._save()

    def _stale_keys(self) -> set[str]:
        from attn_doctor.caches import drift

        found: set[str] = set()
        for device, now in self._surroundings.items():
            place = place_with(device, now.device or "")
            stale = drift.stale(self._manifest, place, now, str(self._request.folder))
            found |= stale.specs.keys() | stale.warmups.keys()
        return found

    def _remove(self, wanted: Iterable[Cleared]) -> None:
        roots = [str(self._request.folder), *filter(None, [_jiterator(self._request)])]
        done, kept = clear(wanted, roots)
        self._cleared += done
        self._kept.update(kept)

    # Writing down

    def _compiled(self, item: Item, result: Mapping[str, Any]) -> None:
        """Bring the files to the disk while the proof runs: that takes longer than one thinks."""
        files = frozenset(result.get("files", ()))
        writing = self._writers.submit(stamp.flush, self._request.folder, files)
        self._written[item.key] = (files, writing)

    def _finished(self, item: Item, entry: Entry, retried: bool) -> None:
        with self._timings.adding("writing_down"):
            self._record(item, entry, retried)

    def _record(self, item: Item, entry: Entry, retried: bool) -> None:
        match = None
        if entry.state == "failed":
            entry, match = self._cause(item, entry)
        log = log_of(self._request.logs, item, "build")
        name = self._key(item)
        self._results[item.key] = Result(
            item=item, entry=entry, match=match, log=str(log), retried=retried
        )
        if item.key in self._written and entry.build is not None:
            files, writing = self._written.pop(item.key)
            stamp.flush(self._request.folder, entry.build.files.keys() - files)
            writing.result()
        place = name.partition("@")[2]
        if _named(name):
            entries = {**self._manifest.entries, name: replace(entry, place=place)}
            self._manifest = replace(self._manifest, entries=entries)
        found = self._surroundings.get(item.device)
        self._stamp_place(
            item.device, found or seen(self._request.facts, item.device, self._request.environ)
        )
        self._save()

    def _cause(self, item: Item, entry: Entry) -> tuple[Entry, Any]:
        logs = [log_of(self._request.logs, item, action) for action in ("build", "prove")]
        try:
            found = explained(logs, entry.message, self._request.facts)
        except AttnDoctorError:
            # A rulebook that cannot be read is no reason to end a build.
            found = None
        if found is None:
            return entry, None
        return replace(entry, cause=found.matches[0].rule), found.matches[0]

    def _key(self, item: Item) -> str:
        """The entry's key; the GPU's name may have become known only now."""
        found = self._surroundings.get(item.device)
        if found is None or item.device == "cpu" or not found.device:
            return item.key
        return plan.key(item.spec, place_with(item.device, found.device))

    def _stamp_place(self, device: str, found: Surroundings) -> None:
        place = place_with(device, found.device or "")
        if not _named(place):
            return
        surroundings = {**self._manifest.surroundings, place: found}
        self._manifest = replace(self._manifest, surroundings=surroundings, attn_doctor=__version__)

    def _save(self) -> None:
        if self._lock is not None:
            self._lock.check()
        stamp.save(self._request.folder, self._manifest)


def _pool(request: Request, devices: Iterable[str]) -> Pool:
    cuda = any(device != "cpu" for device in devices)
    return Pool(request.python, request.environ, request.logs, cuda=cuda)


def _told(told: Mapping[str, Any]) -> Surroundings:
    import msgspec

    return msgspec.convert(dict(told), Surroundings, strict=False)


def _named(place: str) -> bool:
    """The GPU of a place, or of an entry's key, is known by name."""
    return not place.endswith(" ")


def _unfinished(item: Item) -> Entry:
    """The entry of a spec whose build is under way."""
    return Entry(
        spec=item.spec, place=item.key.partition("@")[2], state="failed", message=UNFINISHED
    )


def _listed(folder: Path, names: Iterable[str], why: str) -> Iterable[Cleared]:
    """Files below `folder` that are there."""
    for name in names:
        try:
            size = (folder / name).lstat().st_size
        except OSError:
            continue
        yield Cleared(path=str(folder / name), bytes=size, why=why)


def prove(
    request: Request, keys: Iterable[str], watcher: Watcher | None = None
) -> dict[str, Entry]:
    """Prove entries of the manifest in fresh processes, without building or writing anything.

    Returns manifest key → the entry as it is found now: state `built`, or what is wrong.
    Raises `PoolError` if the interpreter cannot import torch.
    """
    manifest = stamp.load(request.folder) or stamp.empty()
    found: dict[str, Entry] = {}
    wanted: list[tuple[Item, dict[str, Any]]] = []
    for name in keys:
        entry = manifest.entries[name]
        device = entry.place.partition(" ")[0]
        item = Item(spec=entry.spec, device=device, key=name, state="again")
        build = entry.build
        built = {} if build is None else {"keys": build.keys, "seconds": build.seconds}
        wanted.append((item, {**built, "mask_source": entry.mask_source}))
    if not wanted:
        return {}
    watcher = watcher or Watcher()
    request.logs.mkdir(parents=True, exist_ok=True)

    def finished(item: Item, entry: Entry, _: bool) -> None:
        found[item.key] = entry

    jobs, _ = plan.workers(request.facts, wanted[0][0].device, request.jobs)
    with _pool(request, [item.device for item, _ in wanted]) as pool:
        course = Course(
            pool,
            min(jobs, len(wanted)),
            request.limit,
            sys_path=request.sys_path,
            tell=watcher.step,
            tick=watcher.tick,
        )
        course.prove(wanted, finished)
    return found
