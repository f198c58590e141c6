"""Runs in the examined interpreter: imports torch once, then forks a process for every job.

    python serve.py fork LOG      many jobs, each in a fork of its own
    python serve.py one LOG       one job in this very process; where fork is not safe or not there

Commands come as JSON lines on standard input, events go as JSON lines to what was standard output;
all that torch and compilers print goes to LOG, or to the log of the job. Only the standard library
and torch are there; Python 3.9 and newer. When standard input ends, whoever started this has gone:
every job is killed and this process ends, so that nothing compiles for nobody.

Why a fork counts as a fresh process: before the fork nothing was compiled or even traced. There is
no CUDA context, Dynamo's, AOTAutograd's and Inductor's caches in memory are empty, no Triton kernel
exists; only modules are loaded, which are the same in every process, and the digests of torch's and
Triton's sources are taken. What a job finds in a cache it finds on disk. `_forkable` looks whether
it is so, and the first spec of every build is proven in a process started by `python` all the same.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib.util
import json
import os
import select
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
#: Standard input, as long as somebody reads our events.
COMMANDS = 0
#: Inductor asks at its import whether there is a GPU. Through CUDA, that would spoil every fork;
#: with this variable torch asks NVML instead, which leaves CUDA alone.
NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"
#: How many processes make their GPU context at the same time, and how many seconds they wait for
#: their turn. Of sixteen on an H200, all at once took 2.4 s each; one after another 0.2 to 0.3 s
#: each, 3.9 s in all, and their compilations were over 0.7 s earlier.
LANES, PATIENCE = 3, 10.0

Event = dict[str, Any]


def main(argv: list[str]) -> int:
    """Serve until the commands end."""
    mode, log = argv
    out = os.dup(1)
    _print_to(log)
    tell = _teller(out)
    faulthandler.enable()
    start = time.monotonic()
    guard = _Guard()
    asked = os.environ.get(NVML)
    if mode == "fork":
        os.environ[NVML] = "1"
    try:
        work = _load_work()
        prepare = getattr(work, "prepare", None)
        if prepare is not None:
            prepare()
    except BaseException as error:
        import traceback

        traceback.print_exc()
        tell({"event": "broken", "message": f"{type(error).__name__}: {error}"})
        return 1
    ready = {"event": "ready", "pid": os.getpid(), "seconds": time.monotonic() - start}
    if mode == "one":
        return _one(work, tell, ready)
    _hash_sources()
    # The server looks itself; and a process that is forked must have one thread alone.
    guard.leave()
    # The jobs are to see the user's own environment.
    os.environ.pop(NVML)
    if asked is not None:
        os.environ[NVML] = asked
    return _Server(work, tell, {**ready, **_forkable()}).run()


def _load_work() -> Any:
    """The module beside this one. Our folder goes to the end of the path, where it hides nothing.

    A module `work` of the user's own must stay reachable, so ours is loaded from its file.
    """
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or os.sep) != HERE]
    sys.path.append(HERE)
    spec = importlib.util.spec_from_file_location("work", os.path.join(HERE, "work.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"work.py is missing in {HERE}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["work"] = module
    spec.loader.exec_module(module)
    return module


def _hash_sources() -> None:
    """Let torch and Triton take the digests of their own sources, which all keys hold, only once.

    It costs a second in every process; the digest is the same in all of them.
    """
    for module, name in (
        ("torch._inductor.codecache", "torch_key"),
        ("triton.runtime.cache", "triton_key"),
        ("triton.compiler.compiler", "triton_key"),
    ):
        function = getattr(sys.modules.get(module), name, None)
        try:
            if function is not None:
                function()
        except Exception as error:
            sys.stderr.write(f"{module}.{name}: {error}\n")


def _forkable() -> Event:
    """Whether forks are as fresh as the top of this file says (`fork`), and may use CUDA (`cuda`).

    A fork of a process that has asked CUDA anything knows that it may not, so one is asked.
    """
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None and any(sum(one.values()) for one in dynamo.counters.values()):
        return {"fork": False, "cuda": False}
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            torch = sys.modules.get("torch")
            spoiled = getattr(torch._C, "_cuda_isInBadFork", None) if torch is not None else None
            code = int(bool(spoiled is not None and spoiled()))
        finally:
            os._exit(code)
    return {"fork": True, "cuda": os.waitpid(pid, 0)[1] == 0}


class _Guard:
    """A thread that ends this process once nobody reads our events any more.

    Importing torch takes a while, and so does a job; nobody listens to the commands meanwhile.
    """

    def __init__(self) -> None:
        self._leave, self._told = os.pipe()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if hasattr(select, "poll"):
            self._thread.start()

    def leave(self) -> None:
        """Stop watching."""
        os.write(self._told, b"x")
        self._thread.join()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(COMMANDS, 0)  # hanging up is always told, and nothing is read
        poll.register(self._leave, select.POLLIN)
        if any(number == self._leave for number, _ in poll.poll()):
            return
        _kill_group(os.getpgrp())
        os._exit(1)


# One job in this process


def _one(work: Any, tell: Callable[[Event], None], ready: Event) -> int:
    tell(ready)
    command = {"standby": ""}
    while "standby" in command:
        if command["standby"]:
            with suppress(Exception):  # the job will fail at the same, and say it
                work.standby(command["standby"])
        line = _read_line()
        if not line:
            return 0
        command = json.loads(line)
    _print_to(command["log"])
    start = time.monotonic()
    result = work.work(command["job"])
    tell(
        {
            "event": "ended",
            "id": command["id"],
            "status": 0,
            "seconds": time.monotonic() - start,
            "result": result,
        }
    )
    sys.stdout.flush()
    os._exit(0)


def _read_line(pipe: int = COMMANDS) -> bytes:
    """One line of commands, read byte by byte so that what follows stays in the pipe."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(pipe, 1)
        if not byte:
            return b""
        line += byte
    return line


# Many jobs, a fork each


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


class _Server:
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
                        _kill(job.pid)
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
                _kill_group(job.pid)  # a compiler that outlives it
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
            _kill_group(job.pid, signal.SIGTERM)
        if self._jobs:
            time.sleep(0.2)
        for pid in [job.pid for job in self._jobs.values()] + self._waiting():
            _kill(pid)
        return 0

    def _waiting(self) -> list[int]:
        return [fork.pid for forks in self._standing.values() for fork in forks]


def _ordered(fork: _Fork, line: bytes) -> bool:
    """Tell a fork what to do; False if it died while it waited."""
    try:
        _write(fork.commands, line)
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
        _die_with(server)
        if device:
            _stand_by(work, device, turns)
        line = _read_line(orders)
        if line:
            command = json.loads(line)
            _print_to(command["log"])
            faulthandler.enable()  # a crash in a library then leaves its place in the log
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            waited = 0.0 if device else _stand_by(work, command["job"].get("device") or "", turns)
            # White space before the answer says that the job has its context and goes on.
            result = work.work(command["job"], begun=lambda: _write(writer, b"\n"))
            if "context_seconds" in result:
                result["context_seconds"] += waited
            sys.stdout.flush()
            sys.stderr.flush()
            _write(writer, json.dumps(result).encode())
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


def _die_with(server: int) -> None:
    """Ask Linux to kill this process when the server dies, however that happens."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    death_signal = 1  # PR_SET_PDEATHSIG, linux/prctl.h
    ctypes.CDLL(None).prctl(death_signal, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != server:
        os._exit(1)


def _kill(pid: int) -> None:
    """Kill a child that was not yet waited for, and its group if it has made one."""
    _kill_group(pid)
    os.kill(pid, signal.SIGKILL)


def _kill_group(pid: int, number: int = 9) -> None:
    with suppress(OSError):  # all gone, or not yet made
        os.killpg(pid, number)


def _write(pipe: int, data: bytes) -> None:
    while data:
        data = data[os.write(pipe, data) :]


def _print_to(log: str) -> None:
    """Let standard output and error, also those of libraries and programs, go to a file."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def _teller(out: int) -> Callable[[Event], None]:
    """Writes events to what was standard output."""
    lock = threading.Lock()

    def tell(event: Event) -> None:
        line = json.dumps(event).encode() + b"\n"
        with lock:
            _write(out, line)

    return tell


if __name__ == "__main__":
    ended = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Taking torch apart would take a while, and whoever started this waits for it.
    os._exit(ended)
