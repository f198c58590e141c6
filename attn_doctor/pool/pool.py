"""Processes of the examined interpreter that build and prove, and what became of each job.

One process imports torch and forks another for every job (`child/serve.py`); where that cannot be,
every job gets an interpreter of its own. Either way a job that crashes, hangs or is killed costs
that job alone. The pool knows nothing of specs: a job is a dictionary that the child understands.
"""

from __future__ import annotations

import os
import queue
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from attn_doctor import worker
from attn_doctor.pool.process import Inbox, WorkerProcess
from attn_doctor.pool.task import Outcome, Task

SERVE = Path(worker.__file__).parent / "server.py"
#: Seconds until torch is imported; from a slow network file system that takes minutes.
PATIENCE = 600.0
_SLOW = f"torch was not imported within {PATIENCE:g} s"
#: Seconds that a killed job is waited for: one stuck in the GPU driver never ends.
GRACE = 10.0
#: How often the process that forks may die before the build is given up.
RESTARTS = 3


class PoolError(Exception):
    """The examined interpreter could not even import torch; `log` holds what it printed."""

    def __init__(self, message: str, log: Path) -> None:
        super().__init__(message)
        self.message, self.log = message, log


class _Active(Struct):
    """A task under way."""

    task: Task
    process: WorkerProcess
    pid: int = 0
    """Of the fork, once it is known."""
    start: float = 0.0
    """When it began, 0 before."""
    killed: float = 0.0
    """When it was killed for being late, 0 if it was not."""
    begun: bool = False
    """It has its context on the device."""


class Pool:
    """Runs tasks side by side; use it in a `with` block: leaving that kills whatever still runs.

    `env` holds the cache folders and every other variable of the children. `cuda`: jobs use a GPU,
    which not every process that can be forked allows. `beside`: another pool, whose `wait` then
    also returns what ended here; this one gets no tasks that have to be fresh, and breaks where it
    cannot fork.
    """

    def __init__(
        self,
        python: str,
        env: Mapping[str, str],
        logs: Path,
        *,
        cuda: bool = True,
        beside: Pool | None = None,
    ) -> None:
        self._cuda = cuda
        self.python, self.env, self.logs = python, dict(env), logs
        self.inbox: Inbox = beside.inbox if beside is not None else queue.SimpleQueue()
        self._beside = beside
        self._others: list[Pool] = []
        self.start_seconds: float | None = None
        """How long importing torch took, once it is known."""
        self.ready_at: float | None = None
        """When that was, by the monotonic clock."""
        self.broken = ""
        """Why a pool beside another one takes no tasks any more."""
        self._active: dict[int, _Active] = {}
        self._processes: list[WorkerProcess] = []
        self._idle: list[WorkerProcess] = []
        self._server: WorkerProcess | None = None
        #: Device → processes that wait there for a job.
        self._standing: dict[str, int] = {}
        self._begun = time.monotonic()
        self._deaths = 0

    def __enter__(self) -> Pool:  # noqa: PYI034 (Self is newer than Python 3.10)
        if hasattr(os, "fork") and os.uname().sysname == "Linux":
            self._server = self._process("fork")
        # One interpreter for a proof without forks. It imports torch beside the server, so that
        # nothing waits for it later.
        if self._beside is None:
            self._idle.append(self._process("one"))
        else:
            self._beside._others.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._beside is not None and self in self._beside._others:
            self._beside._others.remove(self)
            self.broken = self.broken or "it was ended"
        for process in self._processes:
            process.close()
        end = time.monotonic() + 1.0
        for process in self._processes:
            process.running.wait(max(0.0, end - time.monotonic()))
        for active in self._active.values():
            if active.pid:
                with suppress(OSError):
                    os.killpg(active.pid, signal.SIGKILL)
        for process in self._processes:
            process.running.__exit__()

    def start(self, task: Task) -> None:
        """Let a task begin as soon as torch is imported."""
        if task.fresh or self._server is None:
            process = self._idle.pop() if self._idle else self._process("one")
        else:
            process = self._server
            device = task.job.get("device") or ""
            self._standing[device] = max(0, self.standing(device) - 1)
        self._active[task.id] = _Active(task, process)
        process.send({"id": task.id, "job": task.job, "log": str(task.log)})
        if process.mode == "one" and process.ready:
            self._active[task.id].start = time.monotonic()

    @property
    def settled(self) -> bool:
        """Every fork has its context: making more would keep none of them waiting."""
        forks = [one for one in self._active.values() if one.process is self._server]
        return self.ready_at is not None and all(one.begun for one in forks)

    def standing(self, device: str) -> int:
        """How many processes wait with a context on `device`."""
        return self._standing.get(device, 0)

    def stand_by(self, device: str, count: int) -> None:
        """Let `count` processes in all wait with a context on `device` for tasks to come.

        Contexts are made one after another by the driver, so they are made while others compile.
        """
        for process in self._idle:
            if not process.standing:
                process.standing = True
                process.send({"standby": device})
        if self._server is not None:
            for _ in range(count - self.standing(device)):
                self._server.send({"standby": device})
            self._standing[device] = max(count, self.standing(device))

    def wait(self, seconds: float) -> list[Outcome]:
        """Outcomes of tasks that ended, waiting at most `seconds` for the first.

        Raises `PoolError` if the interpreter cannot import torch.
        """
        outcomes: list[Outcome] = []
        with suppress(queue.Empty):
            process, event = self.inbox.get(timeout=max(0.0, seconds))
            while True:
                outcomes += self._owner(process)._heard(process, event)
                process, event = self.inbox.get_nowait()
        for pool in (self, *self._others):
            outcomes += pool._late()
        return outcomes

    def _owner(self, process: WorkerProcess) -> Pool:
        """The pool that started a process: this one, or one beside it."""
        return next((pool for pool in self._others if process in pool._processes), self)

    def _heard(self, process: WorkerProcess, event: dict[str, Any]) -> list[Outcome]:
        """What an event brings. A pool beside another one breaks without taking that one along."""
        if self.broken:
            return []
        try:
            return self._take(process, event)
        except PoolError as error:
            if self._beside is None:
                raise
            self.broken = error.message
        for one in self._processes:
            one.close()
        lost, self._active = list(self._active.values()), {}
        return [Outcome(task=active.task, seconds=0.0) for active in lost]

    def _process(self, mode: str) -> WorkerProcess:
        name = "beside-" if self._beside is not None else ""
        log = self.logs / f"{name}{mode}-{len(self._processes)}.log"
        process = WorkerProcess(
            (self.python, str(SERVE)), mode, log, env=self.env, inbox=self.inbox
        )
        self._processes.append(process)
        return process

    def _take(self, process: WorkerProcess, event: dict[str, Any]) -> list[Outcome]:
        kind = event.get("event")
        if kind == "ready":
            process.ready = True
            self._ready(process, event)
        elif kind == "broken":
            raise PoolError(str(event["message"]), process.log)
        elif kind == "started":
            active = self._active.get(event["id"])
            if active is not None:
                active.pid, active.start = event["pid"], time.monotonic()
        elif kind == "begun":
            active = self._active.get(event["id"])
            if active is not None:
                active.begun = True
        elif kind == "ended":
            return self._ended(event)
        elif kind == "gone":
            return self._gone(process)
        return []

    def _ready(self, process: WorkerProcess, event: dict[str, Any]) -> None:
        if process is self._server:
            self.ready_at = time.monotonic()
            self.start_seconds = self.ready_at - self._begun
            forks = event["fork"] and (event["cuda"] or not self._cuda)
            if not forks and self._beside is not None:
                raise PoolError("an import has touched the GPU", process.log)
            if not forks:
                # CUDA was touched by an import: from now on an interpreter for every job.
                self._server = None
                process.close()
                for active in [one for one in self._active.values() if one.process is process]:
                    self.start(active.task)
        for active in self._active.values():
            if active.process is process and process.mode == "one":
                active.start = time.monotonic()

    def _ended(self, event: dict[str, Any]) -> list[Outcome]:
        active = self._active.pop(event["id"], None)
        if active is None:
            return []
        status = int(event["status"])
        return [
            Outcome(
                task=active.task,
                seconds=float(event["seconds"]),
                result=event["result"],
                signal=-status if status < 0 else 0,
                late=bool(active.killed),
            )
        ]

    def _gone(self, process: WorkerProcess) -> list[Outcome]:
        """A process ended: as it should, or taking its tasks with it."""
        process.ended = True
        code = process.running.wait(GRACE)
        if process in self._idle:
            self._idle.remove(process)
        lost = [one for one in self._active.values() if one.process is process]
        if process is self._server:
            self._deaths += 1
            if not process.ready or self._deaths > (0 if self._beside else RESTARTS):
                raise PoolError(process.last_words(code), process.log)
            self._server = self._process("fork")
            self._standing.clear()
        elif lost and not process.ready:
            raise PoolError(process.last_words(code), process.log)
        outcomes = []
        for active in lost:
            if active.pid:
                with suppress(OSError):
                    os.killpg(active.pid, signal.SIGKILL)
            del self._active[active.task.id]
            seconds = time.monotonic() - active.start if active.start else 0.0
            late, number = bool(active.killed), -code if code is not None and code < 0 else 0
            outcomes.append(Outcome(task=active.task, seconds=seconds, signal=number, late=late))
        return outcomes

    def _late(self) -> list[Outcome]:
        """Kill what has run into its limit; give up what does not die."""
        now = time.monotonic()
        outcomes = []
        for active in list(self._active.values()):
            if not active.process.ready and now - active.process.running.start > PATIENCE:
                if self._beside is not None:
                    return self._heard(active.process, {"event": "broken", "message": _SLOW})
                raise PoolError(_SLOW, active.process.log)
            if not active.start or now < active.start + active.task.limit:
                continue
            if not active.killed:
                active.killed = now
                self._kill(active)
            elif now > active.killed + GRACE:
                del self._active[active.task.id]
                outcomes.append(Outcome(task=active.task, seconds=now - active.start, late=True))
        return outcomes

    def _kill(self, active: _Active) -> None:
        if active.process.mode == "one":
            active.process.running.kill()
        else:
            active.process.send({"kill": active.task.id})
