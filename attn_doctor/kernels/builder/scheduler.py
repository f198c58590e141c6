"""Decides which job runs when, starts it in a pool of processes, and yields what happened.

As soon as a kernel is built, a second process verifies it while others still compile.
Verifications go first, so that what is finished is written down early. Kernels that ran out of
memory beside others are built or verified again, alone at the end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.kernels.builder.manifest_writer import (
    failed_entry,
    memory_ran_out,
    succeeded,
    verified_entry,
)
from attn_doctor.kernels.builder.off_gpu import suits
from attn_doctor.kernels.builder.plan import CONTEXT_MIB, PlannedBuild, gpu_mib
from attn_doctor.kernels.builder.progress import Step, Timings
from attn_doctor.pool.pool import Pool
from attn_doctor.pool.task import Outcome, Task
from attn_doctor.record.key_parts import parts_name
from attn_doctor.record.manifest import Entry
from attn_doctor.record.spec import KernelSpec

_log = logging.getLogger(__name__)

#: Seconds between two looks at the clock, for time limits and the display.
TICK = 0.25

Action = Literal["build", "verify"]


class KernelTask(Task, frozen=True, kw_only=True):
    """A process that builds or verifies one kernel."""

    kernel: PlannedBuild
    action: Action
    built: dict[str, Any] = {}  # noqa: RUF012 (msgspec copies it)
    """What the building process answered, for the verification."""
    alone: bool = False
    """It runs while no other does, because memory ran out before."""
    off_gpu: bool = False
    """The kernel is or was compiled without a context on the GPU."""

    @property
    def needs_gpu(self) -> bool:
        """Whether it takes memory of the GPU."""
        return self.action == "verify" or not self.off_gpu


class Answer(Struct, frozen=True, kw_only=True):
    """The outcome of a question about a device."""

    device: str
    outcome: Outcome


class Scheduler:
    """Runs the tasks of many kernels in a pool.

    `memory`: device → MiB of GPU memory that may be used. `warm`: how many processes may wait with
    a GPU context of their own for the next job. `off_gpu`: a second pool that compiles without a
    context. `processes`: how many may compile the kernels of one block.
    """

    def __init__(
        self,
        pool: Pool,
        jobs: int,
        limit: float,
        *,
        sys_path: Sequence[str] = (),
        memory: Mapping[str, int] | None = None,
        timings: Timings | None = None,
        warm: int = 0,
        off_gpu: Pool | None = None,
        processes: int = 1,
    ) -> None:
        self._pool, self._jobs, self._limit = pool, jobs, limit
        self._processes = processes
        self._sys_path = list(sys_path)
        self._memory = dict(memory or {})
        self._timings = timings or Timings()
        self._warm, self._off_gpu = warm, off_gpu
        self._ids = 0
        self._questions = 0
        self._active: dict[int, KernelTask] = {}
        self._builds: list[KernelTask] = []
        self._verifications: list[KernelTask] = []
        self._alone: list[KernelTask] = []
        self._verified_fresh = False

    def ask(self, device: str, log: Path) -> None:
        """Ask torch for the build environment of a device. The `Answer` comes from `run`."""
        self._ids += 1
        self._questions += 1
        job = {"action": "environment", "device": device}
        self._pool.start(Task(id=self._ids, job=job, log=log, limit=self._limit))

    def add_builds(self, kernels: Iterable[PlannedBuild], *, on_gpu: bool = False) -> None:
        """Queue kernels to be built and verified, in this order. `on_gpu`: not off the GPU."""
        able = self._off_gpu is not None and not on_gpu
        self._builds += [
            self._task(kernel, "build", off_gpu=able and suits(kernel.spec)) for kernel in kernels
        ]

    def add_verifications(
        self, recorded: Iterable[tuple[PlannedBuild, dict[str, Any]]], *, off_gpu: bool = False
    ) -> None:
        """Queue kernels that were built before, each with what its build answered then.

        `off_gpu`: they were built without the GPU, and are rejected if they fail.
        """
        self._verifications += [
            self._task(kernel, "verify", built=built, off_gpu=off_gpu) for kernel, built in recorded
        ]

    @property
    def start_seconds(self) -> float | None:
        """How long importing torch took, once it is known."""
        return self._pool.start_seconds

    @property
    def modules(self) -> int:
        """How many modules are loaded so far, while torch is imported."""
        return self._pool.modules

    def run(self) -> Iterator[list[Step | Answer]]:
        """Work through all that is queued; yield what happened, at least every `TICK` seconds."""
        while self._builds or self._verifications or self._alone or self._active or self._questions:
            started = self._fill()
            self._keep_warm()
            if started:
                yield started
            yield self._wait()

    # Starting

    def _task(self, kernel: PlannedBuild, action: Action, **more: Any) -> KernelTask:
        self._ids += 1
        job = job_of(kernel.spec, kernel.device, action, self._sys_path)
        job["parts"] = parts_name(kernel.key)
        # The verification runs these same kernels, so what it computes is what they compute.
        job["compare"] = action == "verify"
        if kernel.spec.block and action == "build":
            job["processes"] = self._processes
        log = log_of(self._pool.logs, kernel, action)
        return KernelTask(
            id=self._ids, job=job, log=log, limit=self._limit, kernel=kernel, action=action, **more
        )

    def _fill(self) -> list[Step | Answer]:
        """Start as many tasks as may run now."""
        if self._off_gpu is None or self._off_gpu.broken:
            self._builds = [replace(task, off_gpu=False) for task in self._builds]
        started: list[Step | Answer] = []
        while len(self._active) < self._jobs and (task := self._next()) is not None:
            started.append(self._start(task))
        return started

    def _next(self) -> KernelTask | None:
        for queue in (self._verifications, self._builds):
            for task in queue:
                if self._fits(task):
                    queue.remove(task)
                    return task
        if self._alone and not self._active and not self._builds and not self._verifications:
            return self._alone.pop(0)
        return None

    def _fits(self, task: KernelTask) -> bool:
        """Whether the GPU has memory for one more; a kernel too large to share runs by itself."""
        if any(active.alone for active in self._active.values()):
            return False
        device = task.kernel.device
        free = self._memory.get(device)
        if free is None or not self._active or not task.needs_gpu:
            return True
        waiting = max(0, self._pool.warm(device) - 1) * CONTEXT_MIB
        return self._used(device) + waiting + gpu_mib(task.kernel.spec) <= free

    def _used(self, device: str) -> int:
        """MiB of GPU memory that the active tasks may take."""
        return sum(
            gpu_mib(task.kernel.spec)
            for task in self._active.values()
            if task.kernel.device == device and task.needs_gpu
        )

    def _keep_warm(self) -> None:
        """Have contexts made for what comes next, while others compile."""
        if not self._warm or not self._pool.settled:
            return
        coming = [task.kernel.device for task in (*self._verifications, *self._builds)]
        coming += [task.kernel.device for task in self._active.values() if task.action == "build"]
        for device in dict.fromkeys(coming):
            count = min(self._warm, coming.count(device))
            free = self._memory.get(device)
            if free is not None:
                count = min(count, (free - self._used(device)) // CONTEXT_MIB)
            if device != "cpu" and count > self._pool.warm(device):
                self._pool.warm_up(device, count)

    def _start(self, task: KernelTask) -> Step:
        # One real process beside the forks: what forks share cannot hide a miss from it.
        if task.action == "verify" and not self._verified_fresh:
            self._verified_fresh = True
            task = replace(task, fresh=True)
        self._active[task.id] = task
        task.log.unlink(missing_ok=True)
        compilers = None if task.needs_gpu else self._off_gpu
        _log.debug("%s %s on %s", task.action, task.kernel.spec.title, task.kernel.device)
        (compilers or self._pool).start(task)
        self._timings.first(f"first_{task.action}_started")
        return Step(kernel=task.kernel, phase=task.action)

    # Outcomes

    def _wait(self) -> list[Step | Answer]:
        """Wait for outcomes, and start what they allow."""
        happened: list[Step | Answer] = []
        ended: list[tuple[KernelTask, Outcome]] = []
        for outcome in self._pool.wait(TICK):
            task = self._active.pop(outcome.task.id, None)
            if task is None:
                self._questions -= 1
                happened.append(Answer(device=outcome.task.job["device"], outcome=outcome))
                continue
            result = outcome.result or {}
            self._timings.ended(task.kernel.key, task.action, outcome.seconds, result)
            ended.append((task, outcome))
            if not task.needs_gpu and (result.get("failure") or {}).get("type") == "Refused":
                # A setting forbids it, or torch wants to time something: others would fail too.
                _log.debug("compiling off the GPU was refused; the rest compiles on it")
                self._off_gpu = None
        # Verifications are started before anything is written down, which takes the disk a while.
        for task, outcome in ended:
            if task.action == "build" and succeeded(outcome):
                more = {"alone": task.alone, "off_gpu": task.off_gpu}
                built = outcome.result or {}
                self._verifications.append(self._task(task.kernel, "verify", built=built, **more))
        if ended:
            happened += self._fill()
        for task, outcome in ended:
            step = self._step(task, outcome, beside=len(ended) > 1)
            happened += [step] if step is not None else []
        return happened

    def _step(self, task: KernelTask, outcome: Outcome, *, beside: bool) -> Step | None:
        """What an outcome means for its kernel; None if a part of it is repeated."""
        if task.action == "build" and succeeded(outcome):
            return Step(kernel=task.kernel, phase="compiled", result=outcome.result or {})
        beside = beside or bool(self._active or self._alone)
        if beside and not task.alone and memory_ran_out(outcome):
            # A verification that is repeated is still of what was compiled off the GPU.
            off_gpu = task.off_gpu and task.action == "verify"
            more = {"built": task.built, "alone": True, "off_gpu": off_gpu}
            self._alone.append(self._task(task.kernel, task.action, **more))
            return None
        if task.action == "build" and task.off_gpu:
            self._builds.append(self._task(task.kernel, "build", alone=task.alone))
            return None
        entry: Entry
        if task.action == "build":
            entry = failed_entry(task.kernel, outcome)
        else:
            entry = verified_entry(task.kernel, task.built, outcome)
        rejected = task.off_gpu and entry.state != "built"
        return Step(
            kernel=task.kernel,
            phase="rejected" if rejected else "done",
            entry=entry,
            retried=task.alone,
        )


def job_of(
    spec: KernelSpec, device: str, action: str, sys_path: Sequence[str] = ()
) -> dict[str, Any]:
    """A job for `worker/kernels/job.py`."""
    block: dict[str, Any] = {}
    if spec.block:
        from attn_doctor.kernels.builder import presets

        block = {"block": presets.recipe(spec.block)}
    return {
        **block,
        "action": action,
        "spec": msgspec.to_builtins(spec),
        "spec_id": spec.id,
        "device": device,
        "sys_path": list(sys_path),
    }


def log_of(logs: Path, kernel: PlannedBuild, action: Action) -> Path:
    """The file that a process of this kernel prints to."""
    return logs / f"{kernel.spec.id}-{kernel.device.replace(':', '')}-{action}.log"
