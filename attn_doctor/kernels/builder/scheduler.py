"""The course of a build: which job runs when, and what becomes of it.

As soon as a spec is built, a second process proves it, while others still compile; proofs go first,
so that what is finished is written down early. Specs that ran out of memory beside others are built
again, or verified again, alone at the end. What was compiled off the GPU and does not hold on it is
built on it after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.kernels.builder.entries import (
    entry_of,
    failure_of,
    memory_ran_out,
    succeeded,
)
from attn_doctor.kernels.builder.items import (
    CONTEXT_MIB,
    PlannedBuild,
    gpu_mib,
)
from attn_doctor.kernels.builder.off_gpu import suits
from attn_doctor.kernels.builder.timings import Timings
from attn_doctor.pool.pool import Pool
from attn_doctor.pool.task import Outcome, Task
from attn_doctor.record.key_parts import parts_name
from attn_doctor.record.manifest import Entry
from attn_doctor.record.spec import KernelSpec

#: Seconds between two looks at the clock, for time limits and the display.
TICK = 0.25


class Step(Struct, frozen=True, kw_only=True):
    """Something that has just happened to a spec."""

    item: PlannedBuild
    phase: str
    """`build`, `prove`, `done`"""
    entry: Entry | None = None
    """When it is done."""
    retried: bool = False


class _Work(Struct, frozen=True):
    item: PlannedBuild
    action: str
    built: dict[str, Any] | None = None
    """What the building process answered, for the proof."""
    alone: bool = False
    off_gpu: bool = False
    """It is, or was, compiled by a process without a context on the GPU."""


class Course:
    """Works through items with a pool.

    `compiled` gets what a building process answered, while its proof is still to come. `standby`:
    how many processes may wait with a GPU context of their own for jobs to come. `off_gpu`: a pool
    beside the other, which compiles without a context.
    """

    def __init__(
        self,
        pool: Pool,
        jobs: int,
        limit: float,
        *,
        sys_path: Sequence[str] = (),
        memory: Mapping[str, int] | None = None,
        tell: Callable[[Step], None] = lambda _: None,
        tick: Callable[[], None] = lambda: None,
        compiled: Callable[[PlannedBuild, Mapping[str, Any]], None] = lambda *_: None,
        timings: Timings | None = None,
        standby: int = 0,
        off_gpu: Pool | None = None,
    ) -> None:
        self._off_gpu = off_gpu
        self._doubted: list[tuple[PlannedBuild, Entry]] = []
        self._standby = standby
        self._timings = timings or Timings()
        self._pool, self._jobs, self._limit = pool, jobs, limit
        self._sys_path = list(sys_path)
        self._memory = dict(memory or {})
        self._tell, self._tick, self._compiled = tell, tick, compiled
        self._ids = 0
        self._active: dict[int, _Work] = {}
        self._others: dict[int, Callable[[Outcome], None]] = {}
        self._builds: list[_Work] = []
        self._proofs: list[_Work] = []
        self._alone: list[_Work] = []
        self._verified = False

    def ask(self, job: dict[str, Any], log: Path, answer: Callable[[Outcome], None]) -> None:
        """Start a job that is not a spec's; `answer` is called with its outcome."""
        self._ids += 1
        self._others[self._ids] = answer
        self._pool.start(Task(id=self._ids, job=job, log=log, limit=self._limit))

    def until(self, done: Callable[[], bool]) -> None:
        """Wait for jobs started by `ask`."""
        while not done() and self._others:
            self._hear()

    def run(
        self,
        items: Iterable[PlannedBuild],
        finished: Callable[[PlannedBuild, Entry, bool], None],
        doubted: Callable[[Sequence[tuple[PlannedBuild, Entry]]], None] = lambda _: None,
    ) -> None:
        """Build and prove items in their order; returns when all are done.

        `doubted` removes the files of what was compiled off the GPU and does not hold on it: a
        wrong kernel would be found in the cache again.
        """
        self._finished = finished
        self._builds += [
            _Work(item, "build", off_gpu=self._off_gpu is not None and suits(item.spec))
            for item in items
        ]
        self._work()
        if self._doubted:
            doubted(self._doubted)
            self._builds += [_Work(item, "build") for item, _ in self._doubted]
            self._doubted = []
            self._work()

    def _work(self) -> None:
        while self._builds or self._proofs or self._alone or self._active or self._others:
            self._fill()
            self._stand_by()
            self._hear()

    def prove(
        self,
        wanted: Iterable[tuple[PlannedBuild, dict[str, Any]]],
        finished: Callable[[PlannedBuild, Entry, bool], None],
    ) -> None:
        """Prove items that were built at another time; with each goes what its build answered."""
        self._proofs += [_Work(item, "prove", built) for item, built in wanted]
        self.run((), finished)

    # Starting

    def _fill(self) -> None:
        if self._off_gpu is None or self._off_gpu.broken:
            self._builds = [replace(work, off_gpu=False) for work in self._builds]
        while len(self._active) < self._jobs:
            work = self._next()
            if work is None:
                return
            self._start(work)

    def _next(self) -> _Work | None:
        for queue in (self._proofs, self._builds):
            for work in queue:
                if self._fits(work):
                    queue.remove(work)
                    return work
        if self._alone and not self._active and not self._builds and not self._proofs:
            return self._alone.pop(0)
        return None

    def _fits(self, work: _Work) -> bool:
        """The GPU has memory for one more; a spec too large for any sharing runs by itself."""
        if any(one.alone for one in self._active.values()):
            return False
        free = self._memory.get(work.item.device)
        if free is None or not self._active or self._needs_none(work):
            return True
        waiting = max(0, self._pool.warm(work.item.device) - 1) * CONTEXT_MIB
        return self._used(work.item.device) + waiting + gpu_mib(work.item.spec) <= free

    def _used(self, device: str) -> int:
        """MiB of GPU memory that the jobs under way may take."""
        return sum(
            gpu_mib(one.item.spec)
            for one in self._active.values()
            if one.item.device == device and not self._needs_none(one)
        )

    @staticmethod
    def _needs_none(work: _Work) -> bool:
        """It takes no memory of the GPU."""
        return work.off_gpu and work.action == "build"

    def _stand_by(self) -> None:
        """Have contexts made for what comes next, while others compile."""
        if not self._standby or not self._pool.settled:
            return
        coming = [work.item.device for work in (*self._proofs, *self._builds)]
        coming += [work.item.device for work in self._active.values() if work.action == "build"]
        for device in dict.fromkeys(coming):
            count = min(self._standby, coming.count(device))
            free = self._memory.get(device)
            if free is not None:
                count = min(count, (free - self._used(device)) // CONTEXT_MIB)
            if device != "cpu" and count > self._pool.warm(device):
                self._pool.warm_up(device, count)

    def _start(self, work: _Work) -> None:
        self._ids += 1
        self._active[self._ids] = work
        # One real process beside the forks: what forks share cannot hide a miss from it.
        fresh = work.action == "prove" and not self._verified
        self._verified = self._verified or fresh
        log = log_of(self._pool.logs, work.item, work.action)
        log.unlink(missing_ok=True)
        job = job_of(work.item.spec, work.item.device, work.action, self._sys_path)
        job["parts"] = parts_name(work.item.key)
        # The proof runs these same kernels, so what it computes is what they compute.
        job["compare"] = work.action == "prove"
        task = Task(id=self._ids, job=job, log=log, limit=self._limit, fresh=fresh)
        compilers = self._off_gpu if self._needs_none(work) else None
        (compilers or self._pool).start(task)
        self._timings.first(f"first_{work.action}_asked")
        self._tell(Step(item=work.item, phase=work.action))

    # Hearing

    def _hear(self) -> None:
        ended = []
        for outcome in self._pool.wait(TICK):
            if outcome.task.id in self._others:
                self._others.pop(outcome.task.id)(outcome)
                continue
            work = self._active.pop(outcome.task.id)
            self._timings.ended(work.item.key, work.action, outcome.seconds, outcome.result or {})
            ended.append((work, outcome))
            if self._needs_none(work) and _refused(outcome):
                # A setting forbids it, or torch wants to time something: so it will be with others.
                self._off_gpu = None
        # What may go on goes on first: writing down takes the disk a while.
        for work, outcome in ended:
            if self._goes_on(work, outcome):
                proof = _Work(work.item, "prove", outcome.result, work.alone, work.off_gpu)
                self._proofs.append(proof)
        if ended:
            self._fill()
        for work, outcome in ended:
            self._came_of(work, outcome, beside=len(ended) > 1)
        self._tick()

    def _came_of(self, work: _Work, outcome: Outcome, beside: bool) -> None:
        beside = beside or bool(self._active or self._alone)
        if self._goes_on(work, outcome):
            self._compiled(work.item, outcome.result or {})
        elif beside and not work.alone and memory_ran_out(outcome):
            # A proof that is tried again is still of what was compiled off the GPU.
            off_gpu = work.off_gpu and work.action == "prove"
            self._alone.append(replace(work, alone=True, off_gpu=off_gpu))
        elif work.action == "build":
            self._not_built(work, outcome)
        else:
            self._done(work, entry_of(work.item, work.built or {}, outcome))

    @staticmethod
    def _goes_on(work: _Work, outcome: Outcome) -> bool:
        return work.action == "build" and succeeded(outcome)

    def _not_built(self, work: _Work, outcome: Outcome) -> None:
        if work.off_gpu:
            self._builds.append(replace(work, off_gpu=False))
        else:
            self._done(work, failure_of(work.item, outcome))

    def _done(self, work: _Work, entry: Entry) -> None:
        if work.off_gpu and entry.state != "built":
            self._doubted.append((work.item, entry))
            return
        self._finished(work.item, entry, work.alone)
        self._tell(Step(item=work.item, phase="done", entry=entry, retried=work.alone))


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


def log_of(logs: Path, item: PlannedBuild, action: str) -> Path:
    """Where the process of a spec prints to."""
    return logs / f"{item.spec.id}-{item.device.replace(':', '')}-{action}.log"


def _refused(outcome: Outcome) -> bool:
    """It cannot be compiled without a GPU."""
    failure = (outcome.result or {}).get("failure") or {}
    return bool(failure.get("type") == "Refused")
