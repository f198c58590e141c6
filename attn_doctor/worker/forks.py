"""Many jobs, each in a fork of a process that has imported torch and done nothing else.

A fork that waits for a job can make its context on the GPU meanwhile. What forks share is said at
the top of `server.py`. That a fork is killed with its server, only Linux promises.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import select
import signal
import sys
import tempfile
import time
from contextlib import suppress
from typing import Any

from attn_doctor.worker.wire import (
    Emit,
    die_with,
    emitter,
    kill,
    kill_group,
    print_to,
    read_line,
    write,
)

#: How many processes make their GPU context at the same time, and how many seconds they wait for
#: their turn. Of sixteen on an H200, all at once took 2.4 s each; one after another 0.2 to 0.3 s
#: each, 3.9 s in all, and their compilations were over 0.7 s earlier.
LANES, PATIENCE = 3, 10.0


def run_one(jobs: Any, command: dict[str, Any], emit: Emit) -> dict[str, Any]:
    """Run the job of a command in this process, with its output in its log."""
    print_to(command["log"])
    faulthandler.enable()  # a crash in a library then leaves its place in the log
    result: dict[str, Any] = jobs.run_job(command["job"], emit)
    sys.stdout.flush()
    sys.stderr.flush()
    return result


class _Fork:
    """A fork: `commands` is written to, `pipe` is read from."""

    def __init__(self, pid: int, commands: int, pipe: int) -> None:
        self.pid, self.commands, self.pipe = pid, commands, pipe


class _Job:
    """A fork that runs a job."""

    def __init__(self, command: dict[str, Any], fork: _Fork) -> None:
        self.id, self.pid, self.pipe = command["id"], fork.pid, fork.pipe
        self.wait_for_exit = command.get("wait_for_exit", False)
        self.start = time.monotonic()
        self.unread = b""
        self.result: Any = None


class ForkServer:
    """Starts forks at command, forwards their events, and reports how they ended."""

    def __init__(self, jobs: Any, commands: int, emit: Emit, ready: dict[str, Any]) -> None:
        self._module, self._input, self._emit, self._ready = jobs, commands, emit, ready
        self._jobs: dict[int, _Job] = {}
        #: Device → forks that have a context on it, or are making one, and wait for a job.
        self._warm: dict[str, list[_Fork]] = {}
        #: Processes that have sent their result and are still releasing their memory.
        self._leaving: list[int] = []
        self._unread = b""
        #: Locked by the forks that make a context for later; one that dies releases it.
        self._turns = _nameless_file()
        self._poll = select.poll()
        self._poll.register(self._input, select.POLLIN | select.POLLHUP)

    def run(self) -> int:
        """Serve until the commands end, and end every fork then."""
        # The collector ignores the objects of this process from now on, so that forks share memory.
        gc.collect()
        gc.freeze()
        self._emit("ready", **self._ready)
        while True:
            # A child may die while a grandchild holds its pipe open: look at intervals as well.
            for number, _ in self._poll.poll(100 if self._jobs or self._leaving else None):
                if number == self._input:
                    if not self._read_commands():
                        return self._end()
                else:
                    self._read_events(self._jobs[number])
            self._reap()

    def _read_commands(self) -> bool:
        data = os.read(self._input, 1 << 16)
        if not data:
            return False
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            if "warm_up" in command:
                device = command["warm_up"]
                self._warm.setdefault(device, []).append(self._fork(device))
            else:
                self._start(command)
        return True

    def _start(self, command: dict[str, Any]) -> None:
        line = json.dumps(command).encode() + b"\n"
        warm = self._warm.get(command["job"].get("device") or "", [])
        fork = warm.pop(0) if warm else self._fork("")
        while not _send(fork, line):
            os.waitpid(fork.pid, 0)
            os.close(fork.pipe)
            fork = warm.pop(0) if warm else self._fork("")
        os.set_blocking(fork.pipe, False)
        job = _Job(command, fork)
        self._jobs[fork.pipe] = job
        self._poll.register(fork.pipe, select.POLLIN | select.POLLHUP)
        self._emit("started", id=job.id, pid=fork.pid)

    def _fork(self, device: str) -> _Fork:
        """A process that makes a context on `device`, if one is named, and waits for a job."""
        orders, commands = os.pipe()
        reader, writer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(commands)
            os.close(self._input)
            _run_fork(self._module, device, orders, writer, self._turns, server)
        os.close(orders)
        os.close(writer)
        return _Fork(pid, commands, reader)

    def _read_events(self, job: _Job) -> None:
        """Forward what has come. A result at the end of the pipe ends the job."""
        if not self._drain(job):
            return
        if job.result is not None and not job.wait_for_exit:
            # Releasing a GPU context takes a while, and the next job need not wait for it.
            self._leaving.append(job.pid)
            self._ended(job, 0)
        else:
            self._poll.unregister(job.pipe)

    def _drain(self, job: _Job) -> bool:
        """Forward the events in the pipe, and keep the result. True at the end of the pipe."""
        while True:
            try:
                data = os.read(job.pipe, 1 << 16)
            except BlockingIOError:
                return False
            if not data:
                return True
            *lines, job.unread = (job.unread + data).split(b"\n")
            for line in lines:
                with suppress(ValueError):
                    event = json.loads(line)
                    if event["event"] == "result":
                        job.result = event["result"]
                    else:
                        self._emit(**event, id=job.id)

    def _reap(self) -> None:
        self._leaving = [pid for pid in self._leaving if not os.waitpid(pid, os.WNOHANG)[0]]
        for job in list(self._jobs.values()):
            pid, status = os.waitpid(job.pid, os.WNOHANG)
            if pid:
                self._drain(job)
                killed = os.WIFSIGNALED(status)
                code = -os.WTERMSIG(status) if killed else os.WEXITSTATUS(status)
                kill_group(job.pid)  # a compiler that outlives it
                self._ended(job, code)

    def _ended(self, job: _Job, code: int) -> None:
        with suppress(KeyError):
            self._poll.unregister(job.pipe)
        os.close(job.pipe)
        del self._jobs[job.pipe]
        seconds = time.monotonic() - job.start
        self._emit("ended", id=job.id, code=code, seconds=seconds, result=job.result)

    def _end(self) -> int:
        # First a signal that compilers obey: they remove the file that they are writing.
        for job in self._jobs.values():
            kill_group(job.pid, signal.SIGTERM)
        if self._jobs:
            time.sleep(0.2)
        waiting = [fork.pid for forks in self._warm.values() for fork in forks]
        for pid in [job.pid for job in self._jobs.values()] + waiting:
            kill(pid)
        return 0


def _send(fork: _Fork, line: bytes) -> bool:
    """Send a fork its command; False if it died while it waited."""
    try:
        write(fork.commands, line)
    except OSError:
        return False
    finally:
        os.close(fork.commands)
    return True


def _run_fork(jobs: Any, device: str, orders: int, writer: int, turns: int, server: int) -> None:
    """Do what a fork does, from its start to its end. Never returns."""
    code = 1
    try:
        os.setsid()
        die_with(server)
        if device:
            _warm_up(jobs, device, turns)
        line = read_line(orders)
        if line:
            command = json.loads(line)
            print_to(command["log"])
            job_device = command["job"].get("device") or ""
            waited = 0.0 if device else _warm_up(jobs, job_device, turns)
            emit = emitter(writer)
            result = run_one(jobs, command, emit)
            if "context_seconds" in result:
                result["context_seconds"] += waited
            emit("result", result=result)
            # Closed here, because at exit it stays open until memory and GPU are released.
            os.close(writer)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        # Without the handlers that the server would run at its exit.
        os._exit(code)


def _nameless_file() -> int:
    """A file without a name, for its locks; -1 where none can be made."""
    try:
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())
    except OSError:
        return -1


def _warm_up(jobs: Any, device: str, turns: int) -> float:
    """Make a context on a device, few at a time; returns the seconds that it took.

    The driver makes one after another anyway; so those that come first can compile meanwhile. One
    that hangs in the driver keeps the others waiting no longer than `PATIENCE`.
    """
    import fcntl

    start = time.monotonic()
    lane = os.getpid() % LANES
    while turns >= 0 and time.monotonic() < start + PATIENCE:
        try:
            fcntl.lockf(turns, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, lane)
            break
        except OSError:
            time.sleep(0.01)
    with suppress(Exception):  # the job will fail for the same reason, and say so
        jobs.warm_up(device)
    if turns >= 0:
        fcntl.lockf(turns, fcntl.LOCK_UN, 1, lane)
    return time.monotonic() - start
