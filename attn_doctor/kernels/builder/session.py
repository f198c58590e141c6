"""One call of build-kernels: look what there is, clear what is stale, build, prove, write down.

Everything that changes the cache folder happens under its lock, and the manifest is written after
each spec, so that whatever ends this process leaves a record of all that was finished.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError
from attn_doctor.files import write_atomic
from attn_doctor.kernels.builder import items as plan
from attn_doctor.kernels.builder import off_gpu
from attn_doctor.kernels.builder.cross_build_residue import leavings, without_choices
from attn_doctor.kernels.builder.devices import DeviceError
from attn_doctor.kernels.builder.items import PlannedBuild
from attn_doctor.kernels.builder.manifest_writer import Record
from attn_doctor.kernels.builder.plan import (
    BuildRequest,
    Plan,
    jiterator,
    superseded,
)
from attn_doctor.kernels.builder.report import Report, Result, explained
from attn_doctor.kernels.builder.scheduler import Course, Step, log_of
from attn_doctor.kernels.builder.timings import Timings
from attn_doctor.kernels.builder.verification import claim, pool_of
from attn_doctor.kernels.builder.watcher import Watcher
from attn_doctor.kernels.caches.deletion import Deletions
from attn_doctor.pool.pool import Pool
from attn_doctor.pool.task import Outcome
from attn_doctor.record.lock import FOLDER, Lock
from attn_doctor.record.manifest import BuildEnvironment, Entry

#: Beside the manifest while a build is at work; one that is found there was ended.
MARK = "unfinished"
_NO_STUB_GPU = "the stub GPU was not loaded, so nothing is known of this kernel"


class Build:
    """One build under the lock of its folder."""

    def __init__(self, request: BuildRequest, watcher: Watcher) -> None:
        self._request, self._watcher = request, watcher
        self._record = Record(request)
        self._results: dict[str, Result] = {}
        self._deletions = Deletions(str(request.folder), jiterator(request))
        self.plan = self._record.plan()
        """What has to be done, by what is known so far."""
        self._begun = time.monotonic()
        self._timings = Timings(self._begun)
        self._start_seconds: float | None = None
        self.notes: list[str] = []
        self._leavings: set[str] = set()
        """Choices of tiles and locks that were there before, and are not ours."""

    def run(self) -> None:
        """Build all that is wanted. `report` tells what was done, also after an interruption.

        Raises `PoolError` if the interpreter cannot import torch, and `LockLostError` if another
        builder took over.
        """
        request = self._request
        with Lock(request.folder, self._watcher.waiting) as lock:
            self._record.lock = lock
            request.logs.mkdir(parents=True, exist_ok=True)
            mark = request.folder / FOLDER / MARK
            if mark.exists():
                self._deletions.delete_damaged()
            # Whoever held the lock before may have built just this.
            self._record.read()
            self.plan = self._record.plan()
            if not self.plan.todo and not self.plan.unknown:
                return
            self._watcher.begin(self.plan)
            if request.target is not None:
                self._leavings = {
                    Path(one.path).relative_to(request.folder).as_posix()
                    for one in leavings(request.folder)
                }
            write_atomic(mark, b"")
            self._timings.last("prepared")
            try:
                with pool_of(request, request.devices) as pool, self._compilers(pool) as compilers:
                    self._build(pool, compilers)
                    self._timings.last("all_done")
            finally:
                self._record.close()
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
            cleared=tuple(self._deletions.cleared),
            kept=self._deletions.kept,
            notes=tuple(self.notes),
            seconds=time.monotonic() - self._begun if seconds is None else seconds,
            start_seconds=self._start_seconds,
            phases=self._timings.phases,
            stages=self._timings.stages,
            targets=(request.target,) if request.target is not None else (),
        )

    def _as_was(self, item: PlannedBuild) -> Result:
        return Result(item=item, entry=None if item.todo else self._record.entries.get(item.key))

    @contextmanager
    def _compilers(self, pool: Pool) -> Iterator[Pool | None]:
        """A pool that compiles without contexts on the GPU, where that is worth it and possible."""
        request = self._request
        if not off_gpu.worth(request, self.plan):
            yield None
            return
        log = request.logs / "off-gpu.log"
        log.unlink(missing_ok=True)
        try:
            environ = off_gpu.environment(request)
        except (AttnDoctorError, DeviceError, OSError) as error:
            # A detour that is not to be had is no reason to end a build.
            log.write_text(f"{error}\n", "utf-8")
            yield None
            return
        with Pool(request.python, environ, request.logs, fallback=pool) as beside:
            self._timings.last("compilers_started")
            yield beside

    def _build(self, pool: Pool, compilers: Pool | None) -> None:
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
            tell=self._tell,
            tick=self._watcher.tick,
            compiled=self._record.flush,
            timings=self._timings,
            # A context of a stub GPU costs nothing to make.
            standby=0 if now.limit in ("memory", "GPU memory") or request.target else now.jobs,
            off_gpu=compilers,
        )
        for device in request.devices:
            self._ask(course, device)
        old = any(entry.device_slot.split(" ")[0] in request.devices for entry in self._entries())
        if old or now.unknown or request.target is not None:
            # Digests that only torch knows may have moved too: that decides what is to be done.
            course.until(lambda: len(self._record.environments) == len(request.devices))
            self._timings.last("waited_for_surroundings")
            self.plan = now = self._record.plan()
        self._deletions.delete(now.cleared)
        self._record.begin(now.todo)
        self._timings.last("cleared")
        doubted = self._verified_first(course, now)
        wanted = [item for item in now.todo if item.state != "unverified" or item.key in doubted]
        course.run(
            [item for item in wanted if not self._refused(item)], self._finished, self._doubted
        )
        self._start_seconds = pool.start_seconds
        if pool.ready_at is not None:
            self._timings.last("torch_imported", pool.ready_at)
        if request.target is not None:
            self._tidy()
        self._record.save()

    def _verified_first(self, course: Course, now: Plan) -> set[str]:
        """Prove what was built without this GPU. Returns the keys of what does not hold.

        Its files go before it is built: a wrong kernel would be found in the cache again.
        """
        doubted: dict[str, PlannedBuild] = {}

        def finished(item: PlannedBuild, entry: Entry, retried: bool) -> None:
            if entry.state == "built":
                self._finished(item, entry, retried)
            else:
                doubted[item.key] = item

        entries = self._record.entries
        claims = [item for item in now.todo if item.state == "unverified"]
        course.prove([(item, claim(entries[item.key])) for item in claims], finished)
        if doubted:
            self._anew(doubted.values())
        return set(doubted)

    def _doubted(self, found: Sequence[tuple[PlannedBuild, Entry]]) -> None:
        """Remove what was compiled off the GPU and does not hold on it."""
        key = self._record.key
        self._record.put({key(item): entry for item, entry in found})
        self._anew([replace(item, key=key(item)) for item, _ in found])

    def _anew(self, items: Iterable[PlannedBuild]) -> None:
        """Remove the files of what did not hold on the GPU; others may need some of them."""
        why = "it did not hold on this GPU"
        anew = [replace(item, state="again", why=why) for item in items]
        manifest = self._record.manifest
        self._deletions.delete(one for _, one in superseded(self._request.folder, manifest, anew))
        self._record.again(anew)

    def _tidy(self) -> None:
        """Remove what a build without a GPU leaves and a machine with one must not find."""
        kept = {
            name
            for entry in self._entries()
            if entry.state == "built" and entry.build is not None
            for name in entry.build.files
        }
        self._deletions.delete(leavings(self._request.folder, self._leavings | kept))

    def _tell(self, step: Step) -> None:
        """Pass a step on, with the entry as it was written down."""
        result = self._results.get(step.item.key) if step.entry is not None else None
        self._watcher.step(step if result is None else replace(step, entry=result.entry))

    def _refused(self, item: PlannedBuild) -> bool:
        """Say so, without compiling, if torch itself would refuse the spec."""
        from attn_doctor.kernels.builder.refusals import refusal

        facts = self._request.facts
        sm = self._record.environment_of(item.device).sm
        why = refusal(item.spec, facts.torch.version or "", item.device, sm)
        if why:
            entry = Entry(spec=item.spec, device_slot=item.device_slot, state="failed", message=why)
            self._finished(item, entry, retried=False)
            self._watcher.step(Step(item=item, phase="done", entry=entry))
        return bool(why)

    def _entries(self) -> Iterable[Entry]:
        return self._record.entries.values()

    def _ask(self, course: Course, device: str) -> None:
        """Ask torch for the surroundings that only it knows."""

        def answer(outcome: Outcome) -> None:
            told = (outcome.result or {}).get("environment")
            self._timings.last("surroundings_told")
            # Without an answer the specs will fail for the same reason, and say it.
            request = self._request
            found = self._there(_told(told)) if told else request.environment_of(device)
            self._record.environments[device] = found

        log = self._request.logs / f"surroundings-{device.replace(':', '')}.log"
        log.unlink(missing_ok=True)
        course.ask({"action": "environment", "device": device}, log, answer)

    def _there(self, found: BuildEnvironment) -> BuildEnvironment:
        """What torch told, as it is where the GPU is."""
        target = self._request.target
        if target is None:
            return found
        remark = target.remark(found)
        self.notes += [remark] if remark and remark not in self.notes else []
        return target.told(found)

    # Writing down

    def _finished(self, item: PlannedBuild, entry: Entry, retried: bool) -> None:
        with self._timings.adding("writing_down"):
            self._write_down(item, entry, retried)

    def _write_down(self, item: PlannedBuild, entry: Entry, retried: bool) -> None:
        match = None
        # What could not be built has no proof; what torch refuses has no log at all.
        log = log_of(self._request.logs, item, "build" if entry.build is None else "prove")
        if entry.state == "built" and self._request.target is not None:
            entry = replace(entry, state="failed", build=None, message=_NO_STUB_GPU)
        if self._request.target is not None:
            entry = without_choices(entry)
        if entry.state == "failed":
            entry, match = self._cause(item, entry)
        printed = str(log) if log.exists() else ""
        self._results[item.key] = Result(
            item=item, entry=entry, match=match, log=printed, retried=retried
        )
        self._record.enter(item, entry)

    def _cause(self, item: PlannedBuild, entry: Entry) -> tuple[Entry, Any]:
        logs = [log_of(self._request.logs, item, action) for action in ("build", "prove")]
        try:
            found = explained(logs, entry.message, self._request.facts)
        except AttnDoctorError:
            # A rulebook that cannot be read is no reason to end a build.
            found = None
        if found is None:
            return entry, None
        return replace(entry, cause=found.matches[0].rule), found.matches[0]


def _told(told: Mapping[str, Any]) -> BuildEnvironment:
    import msgspec

    return msgspec.convert(dict(told), BuildEnvironment, strict=False)
