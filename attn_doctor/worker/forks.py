"""Many jobs, each in a fork of a process that has imported torch and done nothing else.

A fork that waits for a job may make its context on the GPU meanwhile. What a fork shares with the
others is said at the top of `server.py`; that it is killed with its server, only Linux promises.
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
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from attn_doctor.worker.wire import (
    COMMANDS,
    Event,
    die_with,
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


class _Fork:
    """A fork: `commands` is written to, `pipe` is read from."""

    def __init__(self, pid: int, commands: int, pipe: int) -> None:
        self.pid, self.commands, self.pipe = pid, commands, pipe


class _Job:
    """A fork at work."""

    def __init__(self, id: int, fork: _Fork) -> None:
        self.id, self.pid, self.pipe = id, fork.pid, fork.pipe
        self.start = time.monotonic()
        self.answer = b""
        self.begun = False


class Server:
    """Starts forks as told, collects their answers, reports how they ended."""

    def __init__(self, work: Any, tell: Callable[[Event], None], ready: Event) -> None:
        self._work, self._tell, self._ready = work, tell, ready
        self._jobs: dict[int, _Job] = {}
        #: Device → forks that have a context on it, or are making one, and wait for a job.
        self._standing: dict[str, list[_Fork]] = {}
        #: Processes that have answered and are still giving back their memory.
        self._leaving: list[int] = []
        self._input = b""
        #: Locked by whichever fork makes a context for later; one that dies lets go of it.
        self._turns = _no_file()
        self._poll = select.poll()
        self._poll.register(COMMANDS, select.POLLIN | select.POLLHUP)

    def run(self) -> int:
        """Serve until the commands end, and take every fork along then."""
        # Objects that live for ever are not looked at again, so that forks share their memory.
        gc.collect()
        gc.freeze()
        self._tell(self._ready)
        while True:
            # A child may die while a grandchild holds its pipe open: look now and then as well.
            for number, _ in self._poll.poll(100 if self._jobs or self._leaving else None):
                if number == COMMANDS:
                    if not self._commands():
                        return self._end()
                else:
                    self._hear(self._jobs[number])
            self._reap()

    def _commands(self) -> bool:
        data = os.read(COMMANDS, 1 << 16)
        if not data:
            return False
        *lines, self._input = (self._input + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            if "kill" in command:
                for job in self._jobs.values():
                    if job.id == command["kill"]:
                        kill(job.pid)
            elif "standby" in command:
                device = command["standby"]
                self._standing.setdefault(device, []).append(self._fork(device))
            else:
                self._start(command)
        return True

    def _start(self, command: dict[str, Any]) -> None:
        line = json.dumps(command).encode() + b"\n"
        standing = self._standing.get(command["job"].get("device") or "", [])
        fork = standing.pop(0) if standing else self._fork("")
        while not _ordered(fork, line):
            os.waitpid(fork.pid, 0)
            os.close(fork.pipe)
            fork = standing.pop(0) if standing else self._fork("")
        os.set_blocking(fork.pipe, False)
        job = _Job(command["id"], fork)
        self._jobs[fork.pipe] = job
        self._poll.register(fork.pipe, select.POLLIN | select.POLLHUP)
        self._tell({"event": "started", "id": job.id, "pid": fork.pid})

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
            _child(self._work, device, orders, writer, self._turns, server)
        os.close(orders)
        os.close(writer)
        return _Fork(pid, commands, reader)

    def _hear(self, job: _Job) -> None:
        """Read what has come. A whole answer at the end of the pipe ends the job."""
        ended = _drained(job)
        if job.answer and not job.begun:
            job.begun = True
            self._tell({"event": "begun", "id": job.id})
        if not ended:
            return
        result = _parsed(job.answer)
        if result is not None:
            # Giving back a GPU context takes a while; nobody has to wait for that.
            self._leaving.append(job.pid)
            self._ended(job, 0, result)
        else:
            self._poll.unregister(job.pipe)

    def _reap(self) -> None:
        self._leaving = [pid for pid in self._leaving if not os.waitpid(pid, os.WNOHANG)[0]]
        for job in list(self._jobs.values()):
            pid, status = os.waitpid(job.pid, os.WNOHANG)
            if pid:
                _drained(job)
                dead = os.WIFSIGNALED(status)
                code = -os.WTERMSIG(status) if dead else os.WEXITSTATUS(status)
                kill_group(job.pid)  # a compiler that outlives it
                self._ended(job, code, _parsed(job.answer))

    def _ended(self, job: _Job, code: int, result: Any) -> None:
        with suppress(KeyError):
            self._poll.unregister(job.pipe)
        os.close(job.pipe)
        del self._jobs[job.pipe]
        seconds = time.monotonic() - job.start
        self._tell(
            {"event": "ended", "id": job.id, "status": code, "seconds": seconds, "result": result}
        )

    def _end(self) -> int:
        # First a word that compilers heed: they remove the file they are half through with.
        for job in self._jobs.values():
            kill_group(job.pid, signal.SIGTERM)
        if self._jobs:
            time.sleep(0.2)
        for pid in [job.pid for job in self._jobs.values()] + self._waiting():
            kill(pid)
        return 0

    def _waiting(self) -> list[int]:
        return [fork.pid for forks in self._standing.values() for fork in forks]


def _ordered(fork: _Fork, line: bytes) -> bool:
    """Tell a fork what to do; False if it died while it waited."""
    try:
        write(fork.commands, line)
    except OSError:
        return False
    finally:
        os.close(fork.commands)
    return True


def _drained(job: _Job) -> bool:
    """Read what the pipe holds. True at its end."""
    try:
        while True:
            data = os.read(job.pipe, 1 << 16)
            if not data:
                return True
            job.answer += data
    except BlockingIOError:
        return False


def _parsed(answer: bytes) -> Any:
    try:
        return json.loads(answer)
    except ValueError:
        return None


def _child(work: Any, device: str, orders: int, writer: int, turns: int, server: int) -> None:
    """The life of a fork. Never returns."""
    code = 1
    try:
        os.setsid()
        die_with(server)
        if device:
            _stand_by(work, device, turns)
        line = read_line(orders)
        if line:
            command = json.loads(line)
            print_to(command["log"])
            faulthandler.enable()  # a crash in a library then leaves its place in the log
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            waited = 0.0 if device else _stand_by(work, command["job"].get("device") or "", turns)
            # White space before the answer says that the job has its context and goes on.
            result = work.work(command["job"], begun=lambda: write(writer, b"\n"))
            if "context_seconds" in result:
                result["context_seconds"] += waited
            sys.stdout.flush()
            sys.stderr.flush()
            write(writer, json.dumps(result).encode())
            # Here, as at the exit it would stay open until memory and GPU are given back.
            os.close(writer)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        # Without the handlers that the server would run at its exit.
        os._exit(code)


def _no_file() -> int:
    """A file without a name, for its locks; -1 where none can be made."""
    try:
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())
    except OSError:
        return -1


def _stand_by(work: Any, device: str, turns: int) -> float:
    """Make a context on a device, few at a time; the seconds that took.

    The driver makes one after another anyway; so those that come first can compile meanwhile. One
    that is stuck in the driver keeps the others waiting no longer than `PATIENCE`.
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
    with suppress(Exception):  # the job will fail at the same, and say it
        work.standby(device)
    if turns >= 0:
        fcntl.lockf(turns, fcntl.LOCK_UN, 1, lane)
    return time.monotonic() - start
