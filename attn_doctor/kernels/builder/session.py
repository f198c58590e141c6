"""One build of a cache folder: plan, clear what is stale, build, verify, write down, report.

Everything that changes the folder happens under its lock. The manifest is written after each
kernel, so that whatever ends this process leaves a record of all that was finished.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError
from attn_doctor.files import write_atomic
from attn_doctor.kernels.builder import off_gpu
from attn_doctor.kernels.builder.devices import DeviceError
from attn_doctor.kernels.builder.manifest_writer import ManifestWriter
from attn_doctor.kernels.builder.plan import (
    BuildRequest,
    Plan,
    PlannedBuild,
    block_processes,
    free_gpu_mib,
    superseded,
)
from attn_doctor.kernels.builder.progress import Step, Timings, Watcher
from attn_doctor.kernels.builder.report import Report, Result, explained
from attn_doctor.kernels.builder.scheduler import Answer, Scheduler, log_of
from attn_doctor.kernels.builder.spec_refusals import refusal
from attn_doctor.kernels.builder.target import (
    cross_build_residue,
    relative_names,
    without_choices,
)
from attn_doctor.kernels.builder.verification import pool_of, recorded_result
from attn_doctor.kernels.caches.deletion import Deletions
from attn_doctor.pool.pool import Pool
from attn_doctor.record.lock import FOLDER, Lock
from attn_doctor.record.manifest import BuildEnvironment, Entry
from attn_doctor.redact import redact_all

_log = logging.getLogger(__name__)

#: A file beside the manifest while a build runs; if it exists before, that build was interrupted.
MARK = "unfinished"
_NO_STUB_GPU = "the stub GPU was not loaded, so nothing is known of this kernel"


class BuildSession:
    """One build under the lock of its folder. `plan`: one that was made of `request` just now."""

    def __init__(self, request: BuildRequest, watcher: Watcher, plan: Plan | None = None) -> None:
        self._request, self._watcher = request, watcher
        self._writer = ManifestWriter(request)
        self._results: dict[str, Result] = {}
        self.plan = plan or self._writer.plan()
        """What has to be done, by what is known now."""
        self._timings = Timings()
        self._start_seconds: float | None = None
        self.notes: list[str] = []
        self._deletions = Deletions(str(request.folder), request.jiterator)
        self._foreign_residue: set[str] = set()
        """Choices of tiles and locks that existed before, and are not ours."""

    def run(self) -> None:
        """Build all that is requested. `report` says what was done, also after an interruption.

        Raises `PoolError` if the interpreter cannot import torch, and `LockLostError` if another
        builder took over.
        """
        request, folder = self._request, self._request.folder
        with Lock(folder, self._watcher.waiting) as lock:
            self._writer.lock = lock
            request.logs.mkdir(parents=True, exist_ok=True)
            mark = folder / FOLDER / MARK
            if mark.exists():
                self._deletions.delete_damaged()
            # Another builder that held the lock before may have built the same.
            if self._writer.reload() or self._deletions.cleared:
                self.plan = self._writer.plan()
            if not self.plan.todo and not self.plan.unknown:
                return
            self._watcher.begin(self.plan)
            if request.target is not None:
                self._foreign_residue = relative_names(cross_build_residue(folder), folder)
            write_atomic(mark, b"")
            self._timings.last("prepared")
            try:
                wanted = [kernel.spec for kernel in self.plan.todo]
                with (
                    pool_of(request, request.devices, wanted) as pool,
                    self._compilers(pool) as compilers,
                ):
                    self._build(pool, compilers)
                    self._timings.last("all_done")
            finally:
                self._writer.close()
            mark.unlink(missing_ok=True)
            self._timings.last("end")

    def report(self) -> Report:
        """What was done up to now."""
        request, plan = self._request, self.plan
        return Report(
            facts=request.facts,
            folder=str(request.folder),
            jobs=plan.jobs,
            limit=plan.limit,
            results=tuple(
                self._results.get(kernel.key) or self._unchanged(kernel) for kernel in plan.kernels
            ),
            cleared=tuple(self._deletions.cleared),
            kept=self._deletions.kept,
            notes=tuple(self.notes),
            seconds=self._timings.seconds(),
            start_seconds=self._start_seconds,
            phases=self._timings.phases,
            stages=self._timings.stages,
            targets=plan.targets,
        )

    def _unchanged(self, kernel: PlannedBuild) -> Result:
        entry = None if kernel.todo else self._writer.entries.get(kernel.key)
        return Result(kernel=kernel, entry=entry)

    @contextmanager
    def _compilers(self, pool: Pool) -> Iterator[Pool | None]:
        """A pool that compiles without contexts on the GPU, where that saves time and can be."""
        request = self._request
        if not off_gpu.worth(request, self.plan):
            yield None
            return
        log = request.logs / "off-gpu.log"
        log.unlink(missing_ok=True)
        try:
            environ = off_gpu.environment(request)
        except (AttnDoctorError, DeviceError, OSError) as error:
            # The build goes on without this shortcut.
            _log.debug("no compiling off the GPU: %s", error)
            log.write_text(f"{error}\n", "utf-8")
            yield None
            return
        with Pool(request.python, environ, request.logs, fallback=pool) as compilers:
            self._timings.last("compilers_started")
            yield compilers

    def _build(self, pool: Pool, compilers: Pool | None) -> None:
        request, plan = self._request, self.plan
        free = {device: free_gpu_mib(request.facts, device) for device in request.devices}
        scheduler = Scheduler(
            pool,
            plan.jobs,
            request.limit,
            sys_path=request.sys_path,
            memory={device: mib for device, mib in free.items() if mib is not None},
            timings=self._timings,
            # A context on a stub GPU takes no time to make.
            warm=0 if plan.limit in ("memory", "GPU memory") or request.target else plan.jobs,
            off_gpu=compilers,
            processes=block_processes(request.facts, plan, request.jobs),
        )
        for device in request.devices:
            log = request.logs / f"environment-{device.replace(':', '')}.log"
            log.unlink(missing_ok=True)
            scheduler.ask(device, log)
        slots = {entry.device_slot.split(" ")[0] for entry in self._writer.entries.values()}
        if slots.intersection(request.devices) or plan.unknown or request.target is not None:
            # Digests that only torch knows may have changed too: they decide what is to be done.
            self._work(scheduler)
            self._timings.last("waited_for_environment")
            self.plan = plan = self._writer.plan()
        self._deletions.delete(plan.cleared)
        self._writer.begin(plan.todo)
        self._timings.last("cleared")
        entries = self._writer.entries
        waiting = [kernel for kernel in plan.todo if kernel.state == "unverified"]
        scheduler.add_verifications(
            [(kernel, recorded_result(entries[kernel.key])) for kernel in waiting], off_gpu=True
        )
        rejected = self._work(scheduler) if waiting else ()
        again = {kernel.key for kernel in rejected}
        builds = [
            kernel for kernel in plan.todo if kernel.state != "unverified" or kernel.key in again
        ]
        scheduler.add_builds(kernel for kernel in builds if not self._refused(kernel))
        rejected = self._work(scheduler)
        if rejected:
            scheduler.add_builds(rejected, on_gpu=True)
            self._work(scheduler)
        if pool.ready_at is not None:
            self._timings.last("torch_imported", pool.ready_at)
        if request.target is not None:
            self._remove_residue()
        self._writer.finish()

    def _work(self, scheduler: Scheduler) -> Sequence[PlannedBuild]:
        """Work through what is queued. Returns the kernels that were rejected on the GPU."""
        rejected: list[Step] = []
        for happened in scheduler.run():
            for step in happened:
                if isinstance(step, Answer):
                    self._environment(step)
                elif step.phase == "compiled":
                    self._writer.flush(step.kernel, step.result)
                elif step.phase == "rejected":
                    rejected.append(step)
                elif step.phase == "done":
                    self._finish(step)
                else:
                    self._watcher.step(step)
            if self._start_seconds is None:
                self._start_seconds = scheduler.start_seconds
                if self._start_seconds is None:
                    self._watcher.importing(scheduler.modules)
                else:
                    self._watcher.imported(self._start_seconds)
            self._watcher.tick()
        self._discard(rejected)
        return [step.kernel for step in rejected]

    def _discard(self, rejected: Iterable[Step]) -> None:
        """Remove the files of kernels that failed on the GPU: they would be found in the cache.

        Files that another kernel needs stay.
        """
        key = self._writer.key
        entries = {key(step.kernel): step.entry for step in rejected if step.entry is not None}
        if not entries:
            return
        self._writer.put(entries)
        why = "it failed its verification on this GPU"
        again = [
            replace(step.kernel, key=key(step.kernel), state="again", why=why) for step in rejected
        ]
        self._deletions.delete(superseded(self._request.folder, self._writer.manifest, again))
        self._writer.mark_unfinished(again)

    def _remove_residue(self) -> None:
        """Remove what a build without a GPU leaves and a machine with one must not find."""
        kept = {
            name
            for entry in self._writer.entries.values()
            if entry.state == "built" and entry.build is not None
            for name in entry.build.files
        }
        self._deletions.delete(
            cross_build_residue(self._request.folder, self._foreign_residue | kept)
        )

    def _refused(self, kernel: PlannedBuild) -> bool:
        """Whether torch itself would refuse the kernel; it is then finished without compiling."""
        sm = self._writer.environment_of(kernel.device).sm
        torch = self._request.facts.torch.version or ""
        why = refusal(kernel.spec, torch, kernel.device, sm)
        if why:
            entry = Entry(
                spec=kernel.spec, device_slot=kernel.device_slot, state="failed", message=why
            )
            self._finish(Step(kernel=kernel, phase="done", entry=entry))
        return bool(why)

    def _environment(self, answer: Answer) -> None:
        """Take in what torch reported of a device."""
        reported = (answer.outcome.result or {}).get("environment")
        self._timings.last("environment_reported")
        request, device = self._request, answer.device
        if not reported:
            # The kernels will fail for the same reason, and their entries say it.
            self._writer.environments[device] = request.environment_of(device)
            return
        environment = msgspec.convert(redact_all(reported), BuildEnvironment, strict=False)
        if request.target is not None:
            remark = request.target.remark(environment)
            self.notes += [remark] if remark and remark not in self.notes else []
            environment = request.target.as_there(environment)
        self._writer.environments[device] = environment

    def _finish(self, step: Step) -> None:
        """Write down a finished kernel, and notify the watcher of the entry as it is recorded."""
        if step.entry is not None:
            with self._timings.adding("writing_down"):
                step = replace(step, entry=self._write_down(step, step.entry))
        self._watcher.step(step)

    def _write_down(self, step: Step, entry: Entry) -> Entry:
        kernel, match = step.kernel, None
        logs = self._request.logs
        # What could not be built has no verification; what torch refuses has no log at all.
        log = log_of(logs, kernel, "build" if entry.build is None else "verify")
        if self._request.target is not None:
            if entry.state == "built":
                entry = replace(entry, state="failed", build=None, message=_NO_STUB_GPU)
            entry = without_choices(entry)
        if entry.state == "failed":
            match = self._cause(kernel, entry)
            entry = replace(entry, cause=match.rule) if match is not None else entry
        self._results[kernel.key] = Result(
            kernel=kernel,
            entry=entry,
            match=match,
            log=str(log) if log.exists() else "",
            retried=step.retried,
        )
        self._writer.enter(kernel, entry)
        return entry

    def _cause(self, kernel: PlannedBuild, entry: Entry) -> Any:
        """The rule that explains a failure best; None if none does."""
        logs = [log_of(self._request.logs, kernel, action) for action in ("build", "verify")]
        try:
            found = explained(logs, entry.message, self._request.facts)
        except AttnDoctorError as error:
            # The build goes on without an explanation.
            _log.debug("the rules cannot be read: %s", error)
            return None
        return found.matches[0] if found is not None else None
