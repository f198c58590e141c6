"""Worker processes of the examined interpreter, and the outcomes of the jobs that they run.

One process imports torch and forks another for every job (`worker/server.py`); where a fork cannot
be used, every job gets an interpreter of its own. Either way a job that crashes, hangs, takes too
much memory or is killed costs that job alone. The pool knows nothing of kernels and backends: a job
is a dictionary that the module `jobs` in the worker understands.
"""

from __future__ import annotations

import logging
import os
import queue
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from attn_doctor.pool.process import Inbox, WorkerProcess
from attn_doctor.pool.task import Ending, Outcome, Task
from attn_doctor.processes import kill_tree, memory_of
from attn_doctor.worker.wire import kill_group

_log = logging.getLogger(__name__)

#: Seconds until torch is imported; from a slow network file system that takes minutes.
PATIENCE = 600.0
#: Seconds that a killed job is waited for: one that hangs in the GPU driver never ends.
GRACE = 10.0
#: Seconds between two looks at the memory of a job.
LOOK = 0.05
#: How often the process that forks may die before the pool gives up.
RESTARTS = 3
#: The id of the pseudo task in the outcome of a start that failed.
_START = 0


class PoolError(Exception):
    """The examined interpreter could not even import torch. `outcome` says how that ended."""

    def __init__(self, message: str, outcome: Outcome) -> None:
        super().__init__(message)
        self.message, self.outcome, self.log = message, outcome, outcome.task.log


class _Active(Struct):
    """A task that was started and has not ended."""

    task: Task
    process: WorkerProcess
    pid: int = 0
    """Of the process that runs it, once it is known."""
    start: float = 0.0
    """When it began, 0 before."""
    killed: Ending | None = None
    """At which limit it was killed, if it was."""
    killed_at: float = 0.0
    begun: bool = False
    """It has its context on the device."""
    events: list[dict[str, Any]] = []
    looked_at: float = 0.0
    """When its memory was looked at."""
    most_mib: int = 0

    def outcome(self, seconds: float, **fields: Any) -> Outcome:
        """How it ended."""
        ending = self.killed or (Ending.DIED if fields.get("result") is None else Ending.DONE)
        return Outcome(
            task=self.task,
            seconds=seconds,
            ending=ending,
            events=tuple(self.events),
            most_mib=self.most_mib,
            **fields,
        )


class Pool:
    """Runs tasks side by side. Use it in a `with` block: leaving the block kills what still runs.

    `env` holds the cache folders and every other variable of the workers. `jobs`: the module of
    `attn_doctor.worker` that runs the jobs; `modules`: what it imports first, within `patience`
    seconds. `cuda`: jobs use a GPU, which not every process that can be forked allows. `spares`:
    interpreters that are kept ready for jobs that cannot run in a fork; 0: none may be, because the
    GPU takes one process at a time. `fresh`: some tasks are fresh, so that a spare is wanted from
    the start. `fallback`: another pool, whose `wait` then also returns what ended here. This pool
    then gets no tasks that have to be fresh, and breaks where it cannot fork.
    """

    def __init__(
        self,
        python: str,
        env: Mapping[str, str],
        logs: Path,
        *,
        jobs: str = "kernels.job",
        modules: Sequence[str] = (),
        patience: float = PATIENCE,
        cuda: bool = True,
        spares: int = 1,
        fresh: bool = True,
        fallback: Pool | None = None,
    ) -> None:
        self.python, self.env, self.logs = python, dict(env), logs
        self._options = {
            "jobs": jobs, "modules": [*modules], "patience": patience, "cuda": cuda,
        }  # fmt: skip
        named = [jobs.partition(".")[0], *(["fallback"] if fallback else []), *modules]
        #: The start of the names of its logs; a file's name has at most 255 characters.
        self._name = "-".join(named)[:100]
        self._patience, self._spares = patience, spares
        self._fresh = fresh and fallback is None
        self.inbox: Inbox = fallback.inbox if fallback is not None else queue.SimpleQueue()
        self._fallback = fallback
        #: Pools that have this one as their fallback.
        self._dependents: list[Pool] = []
        self.hello: dict[str, Any] = {}
        """What the first interpreter that was ready said of itself; empty before."""
        self.start_seconds: float | None = None
        """How long importing torch took, once it is known."""
        self.modules = 0
        """How many modules the process that forks has loaded so far."""
        self.ready_at: float | None = None
        """When that was, by the monotonic clock."""
        self.broken = ""
        """Why a pool with a fallback takes no tasks any more."""
        self.left_behind: list[int] = []
        """Processes that could not be killed."""
        self._active: dict[int, _Active] = {}
        self._processes: list[WorkerProcess] = []
        self._idle: list[WorkerProcess] = []
        self._server: WorkerProcess | None = None
        #: Device → processes that wait there for a job.
        self._warm: dict[str, int] = {}
        self._begun = time.monotonic()
        self._deaths = 0

    def __enter__(self) -> Pool:  # noqa: PYI034 (Self is newer than Python 3.10)
        if hasattr(os, "fork") and os.uname().sysname == "Linux":
            self._server = self._process(forks=True)
        # It imports torch beside the server, so that no job waits for it later.
        if self._fresh or self._server is None:
            self._idle.append(self._process(forks=False))
        if self._fallback is not None:
            self._fallback._dependents.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes. Those that cannot be killed are in `left_behind` afterwards."""
        if self._fallback is not None and self in self._fallback._dependents:
            self._fallback._dependents.remove(self)
            self.broken = self.broken or "it was ended"
        for process in self._processes:
            process.close()
        end = time.monotonic() + 1.0
        for process in self._processes:
            process.running.wait(max(0.0, end - time.monotonic()))
        for active in self._active.values():
            if active.pid:
                kill_group(active.pid)
        for process in self._processes:
            self._end(process)
        self._processes, self._active = [], {}

    def _end(self, process: WorkerProcess) -> None:
        process.running.__exit__()
        if process.running.poll() is None:
            self.left_behind.append(process.running.pid)

    def start(self, task: Task) -> None:
        """Start a task. It begins as soon as torch is imported."""
        if task.fresh or self._server is None:
            process = self._idle.pop(0) if self._idle else self._process(forks=False)
            if self._server is None and self._spares:
                # Others will need one as well: it imports while this job runs.
                while len(self._idle) < self._spares:
                    self._idle.append(self._process(forks=False))
        else:
            process = self._server
            device = task.job.get("device") or ""
            self._warm[device] = max(0, self.warm(device) - 1)
        active = self._active[task.id] = _Active(task, process)
        process.send(
            {
                "id": task.id,
                "job": task.job,
                "log": str(task.log),
                "wait_for_exit": task.wait_for_exit,
            }
        )
        if not process.forks:
            self._started(active)

    @staticmethod
    def _started(active: _Active) -> None:
        """Count the time of a task that has an interpreter of its own from when that is ready."""
        active.pid = active.process.running.pid
        if active.process.ready:
            active.start = time.monotonic()

    @property
    def settled(self) -> bool:
        """Every fork has its context: making more would keep none of them waiting."""
        forks = [active for active in self._active.values() if active.process is self._server]
        return self.ready_at is not None and all(active.begun for active in forks)

    def warm(self, device: str) -> int:
        """How many processes wait with a context on `device`."""
        return self._warm.get(device, 0)

    def warm_up(self, device: str, count: int) -> None:
        """Let `count` processes in all wait with a context on `device` for tasks to come.

        Contexts are made one after another by the driver, so they are made while others compile.
        """
        for process in self._idle:
            if not process.warm:
                process.warm = True
                process.send({"warm_up": device})
        if self._server is not None:
            for _ in range(count - self.warm(device)):
                self._server.send({"warm_up": device})
            self._warm[device] = max(count, self.warm(device))

    def wait(self, seconds: float) -> list[Outcome]:
        """Outcomes of tasks that ended, waiting at most `seconds` for the first event.

        Raises `PoolError` if the interpreter cannot import torch.
        """
        if any(active.task.memory_mib is not None for active in self._active.values()):
            seconds = min(seconds, LOOK)
        outcomes: list[Outcome] = []
        with suppress(queue.Empty):
            process, event = self.inbox.get(timeout=max(0.0, seconds))
            while True:
                outcomes += self._owner(process)._on_event(process, event)
                process, event = self.inbox.get_nowait()
        for pool in (self, *self._dependents):
            outcomes += pool._enforce_limits()
        return outcomes

    def _owner(self, process: WorkerProcess) -> Pool:
        """The pool that started a process: this one, or one that falls back to it."""
        return next((pool for pool in self._dependents if process in pool._processes), self)

    def _on_event(self, process: WorkerProcess, event: dict[str, Any]) -> list[Outcome]:
        """Handle an event. A pool with a fallback breaks alone."""
        if self.broken:
            return []
        try:
            return self._handle(process, event)
        except PoolError as error:
            return self._break(error)

    def _break(self, error: PoolError) -> list[Outcome]:
        """Give up all tasks, so that the fallback can run them; raises `error` without one."""
        if self._fallback is None:
            raise error
        self.broken = error.message
        for process in self._processes:
            process.close()
        lost, self._active = list(self._active.values()), {}
        return [active.outcome(0.0) for active in lost]

    def _process(self, *, forks: bool) -> WorkerProcess:
        kind = "fork" if forks else "single"
        log = self.logs / f"{self._name}-{kind}-{len(self._processes)}.log"
        options = {**self._options, "log": str(log)}
        try:
            process = WorkerProcess(
                self.python, options, forks=forks, env=self.env, inbox=self.inbox
            )
        except OSError as error:
            message = f"{self.python} cannot be started: {error.strerror or error}"
            failed = {"event": "failed", "stage": "start", "message": message}
            task = Task(id=_START, job={}, log=log, limit=self._patience)
            raise PoolError(message, Outcome(task=task, seconds=0.0, events=(failed,))) from None
        self._processes.append(process)
        return process

    def _failed_start(
        self, process: WorkerProcess, message: str, ending: Ending, **fields: Any
    ) -> PoolError:
        """The error for an interpreter that cannot import what it should."""
        events = (*process.events, *fields.pop("events", ()))
        outcome = Outcome(
            task=Task(id=_START, job={}, log=process.log, limit=self._patience),
            seconds=time.monotonic() - process.running.start,
            ending=ending,
            events=events,
            printed=process.printed,
            **fields,
        )
        _log.debug("%s: %s", process.log, message)
        return PoolError(message, outcome)

    def _handle(self, process: WorkerProcess, event: dict[str, Any]) -> list[Outcome]:
        kind = event["event"]
        if kind == "ready":
            self._on_ready(process, event)
        elif kind == "broken":
            message = f"{event['type']}: {event['message']}"
            failed = {**event, "event": "failed", "stage": "import"}
            raise self._failed_start(process, message, Ending.DONE, events=(failed,))
        elif kind == "gone":
            return self._on_gone(process)
        elif "id" not in event:
            self._on_start(process, event)
        elif (active := self._active.get(event["id"])) is None:
            pass  # it was given up
        elif kind == "ended":
            return self._on_ended(active, event)
        elif kind == "started":
            active.pid, active.start = event["pid"], time.monotonic()
        elif kind == "begun":
            active.begun = True
        else:
            active.events.append(event)
        return []

    def _on_start(self, process: WorkerProcess, event: dict[str, Any]) -> None:
        """Note what a process reports while it imports."""
        if event["event"] != "importing":
            process.events.append(event)
        elif process is self._server:
            self.modules = int(event["modules"])

    def _on_ready(self, process: WorkerProcess, event: dict[str, Any]) -> None:
        process.ready = True
        self.hello = self.hello or event
        _log.debug(
            "%s: ready after %.1f s, forks: %s", process.log, event["seconds"], event["fork"]
        )
        if process is self._server:
            self.ready_at = time.monotonic()
            self.start_seconds = self.ready_at - self._begun
            if not event["fork"]:
                self._cannot_fork(process)
        for active in self._active.values():
            if active.process is process and not process.forks:
                self._started(active)
        if process in self._idle and not self._spares:
            # It may have opened the GPU, which takes one process at a time.
            self._idle.remove(process)
            self._processes.remove(process)
            self._end(process)

    def _cannot_fork(self, process: WorkerProcess) -> None:
        """An import has used CUDA: the server runs one job itself, and others do the rest."""
        if self._fallback is not None:
            message = "an imported package has used the GPU"
            raise self._failed_start(process, message, Ending.DONE)
        process.forks, self._server = False, None
        sent = [active for active in self._active.values() if active.process is process]
        if not sent:
            self._idle.insert(0, process)
        for active in sent[1:]:
            self.start(active.task)

    def _on_ended(self, active: _Active, event: dict[str, Any]) -> list[Outcome]:
        del self._active[active.task.id]
        if active.task.wait_for_exit and not active.process.forks:
            active.process.running.wait(GRACE)
        code, result = int(event["code"]), event["result"]
        return [active.outcome(float(event["seconds"]), code=code, result=result)]

    def _on_gone(self, process: WorkerProcess) -> list[Outcome]:
        """A process ended: after its work, or with tasks that are lost."""
        process.ended = True
        code = process.running.wait(GRACE)
        process.running.kill()  # what it started and left running
        if process in self._idle:
            self._idle.remove(process)
        lost = [active for active in self._active.values() if active.process is process]
        gave_up = process is self._server and self._deaths >= (0 if self._fallback else RESTARTS)
        if gave_up or (not process.ready and (lost or process is self._server or not self.hello)):
            message = process.last_words(code)
            raise self._failed_start(process, message, Ending.DIED, code=code)
        if process is self._server:
            self._deaths += 1
            self._server = self._process(forks=True)
            self._warm.clear()
        outcomes = []
        for active in lost:
            if active.pid:
                kill_group(active.pid)
            del self._active[active.task.id]
            seconds = time.monotonic() - active.start if active.start else 0.0
            outcomes.append(active.outcome(seconds, code=code))
        return outcomes

    def _enforce_limits(self) -> list[Outcome]:
        """Kill what has reached its limit; give up what does not die."""
        now = time.monotonic()
        try:
            self._check_imports(now)
        except PoolError as error:
            return self._break(error)
        outcomes = []
        for active in list(self._active.values()):
            if not active.start:
                continue
            if active.killed is None:
                active.killed = self._reached(active, now)
                if active.killed is not None:
                    active.killed_at = now
                    _log.debug("job %d: %s", active.task.id, active.killed.value)
                    kill_tree(active.pid)
            elif now > active.killed_at + GRACE:
                del self._active[active.task.id]
                self.left_behind.append(active.pid)
                outcomes.append(active.outcome(now - active.start, left_behind=active.pid))
        return outcomes

    def _check_imports(self, now: float) -> None:
        """Raise `PoolError` if an interpreter that is needed has not imported torch in time."""
        needed = {id(active.process) for active in self._active.values()}
        for process in self._processes:
            if process.ready or process.ended or (self.hello and id(process) not in needed):
                continue
            if now > process.running.start + self._patience:
                left = None if process.running.kill() is not None else process.running.pid
                message = f"torch was not imported within {self._patience:g} s"
                raise self._failed_start(process, message, Ending.TIMED_OUT, left_behind=left)

    @staticmethod
    def _reached(active: _Active, now: float) -> Ending | None:
        """The limit that a job has reached, if any."""
        most = active.task.memory_mib
        if most is not None and now >= active.looked_at + LOOK:
            active.looked_at = now
            held = memory_of(active.pid) >> 20
            active.most_mib = max(active.most_mib, held)
            if held > most:
                return Ending.OUT_OF_MEMORY
        return Ending.TIMED_OUT if now >= active.start + active.task.limit else None
