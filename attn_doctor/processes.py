"""Run programs: with a time limit, in a session of their own, and with nothing left over.

`check` asks its questions through `attn_doctor.host`, which uses `run`; everything that builds,
repairs or verifies uses this module directly. Every program is an argv list, never a shell, with
closed input. At the limit, on Ctrl-C and on any other exception its whole group is killed, so that
no grandchild (a compiler of a compiler) outlives us. A process that made a session of its own is
out of reach of that; `kill_tree` finds it.

A killed process is waited for briefly and then abandoned: one that is stuck in the kernel (a hung
GPU driver, an NFS server that does not answer) ignores SIGKILL, and waiting would hang us as well.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import IO, Any

from msgspec import Struct

from attn_doctor.errors import OwnershipError
from attn_doctor.logger import Logger
from attn_doctor.worker import ownership

_log = Logger(__name__)

#: Bytes of output that are kept, from the beginning and from the end.
KEPT = 1 << 20
#: Characters of one argument that the log shows.
_SHOWN = 200
#: `signal.SIGKILL`; the import would take a millisecond.
_SIGKILL = 9
#: Seconds that a killed group is waited for.
GRACE = 2.0
#: How many times as long as its limit something may take while it is busy.
SLOWED = 5
#: Seconds between two looks at whether it is busy, and the processor time in them that says so.
#: Windows counts that time in pieces of 15.6 ms, so that a slowed program seems idle for longer.
STEP, BUSY = 2.0 if sys.platform == "win32" else 0.25, 0.0005


class Ended(Struct, frozen=True, kw_only=True):
    """How a program ended."""

    argv: tuple[str, ...]
    code: int | None
    """Exit code, negative for a signal; None if it could not be started or never ended."""
    out: str = ""
    err: str = ""
    """Empty if it was joined with `out`."""
    seconds: float = 0.0
    timed_out: bool = False
    """It reached the limit and was killed."""
    pid: int | None = None
    """None if it could not be started."""
    error: OSError | ValueError | None = None
    """Why it could not be started."""

    @property
    def ok(self) -> bool:
        """It ran to its end with code 0."""
        return self.code == 0 and not self.timed_out

    @property
    def abandoned(self) -> bool:
        """It did not end when it was killed, and is left behind."""
        return self.timed_out and self.code is None

    @property
    def status(self) -> str:
        """In words: `exit code 1`, `killed by SIGSEGV`, `no answer within 30 s` or the like."""
        if self.error is not None:
            reason = getattr(self.error, "strerror", None) or str(self.error)
            return f"{self.argv[0]} cannot be run: {reason}"
        if self.timed_out:
            return f"no answer within {self.seconds:.0f} s"
        if self.code is not None and self.code < 0:
            return f"killed by {signal_name(-self.code)}"
        return f"exit code {self.code}"


def shown(argv: Sequence[str]) -> str:
    """A command line for the log; of an argument that is a program, the beginning."""
    import shlex

    parts = [one if len(one) <= _SHOWN else f"{one[:_SHOWN]}…" for one in argv]
    return shlex.join(parts)


def signal_name(number: int) -> str:
    """The name of a signal, such as `SIGSEGV`; `signal 99` if it has no name here."""
    import signal  # most programs end by themselves

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Running:
    """A running program. Use it in a `with` block: leaving the block kills what still runs.

    `out` and `err` are binary pipes, or None if the stream goes elsewhere.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bool = False,
        joined: bool = False,
        inherit: Sequence[int] = (),
        attached: bool = False,
        output: int | None = None,
        as_owner: bool = False,
    ) -> None:
        """Start `argv`. Raises `OSError` if that fails. `inherit`: descriptors that it gets too.

        `as_owner`: root starts a program of another user as that user. Otherwise root refuses it
        with `OwnershipError`, and it always refuses a program that several users can change.

        `output`: the descriptor that standard output goes to. `joined`: standard error goes there
        too. `attached`: start it as a shell does, with our input, output and terminal, so that
        Ctrl-C reaches it too.
        """
        pipe = subprocess.PIPE
        self.argv = tuple(argv)
        self.start = time.monotonic()
        windows = os.name == "nt"
        flags = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) if windows else 0
        self._attached = attached
        user = _runner(self.argv, env, as_owner=as_owner)
        if user is not None:
            own = {"HOME": user.home, "USER": user.name, "LOGNAME": user.name}
            env = {**(os.environ if env is None else env), **own}
        self._child = subprocess.Popen(
            self.argv,
            stdin=pipe if stdin else None if attached else subprocess.DEVNULL,
            stdout=output if output is not None else None if attached else pipe,
            stderr=subprocess.STDOUT if joined else pipe,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=not windows and not attached,
            pass_fds=() if windows else tuple(inherit),
            creationflags=0 if attached else flags,
            **({} if user is None else _identity(user)),
        )
        self.pid = self._child.pid
        if _log.wanted:
            _log.debug("started process %d: %s", self.pid, shown(self.argv))
        self.stdin, self.out, self.err = self._child.stdin, self._child.stdout, self._child.stderr

    def __enter__(self) -> Running:  # noqa: PYI034 (Self is newer than Python 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self.stdin, self.out, self.err):
            if pipe is not None:
                with suppress(OSError):  # what was buffered for a program that has gone
                    pipe.close()

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        return self._child.poll()

    def wait(self, seconds: float | None = None) -> int | None:
        """Its exit code, or None if it still runs after `seconds`."""
        try:
            if seconds is not None and self._ends_within(seconds):
                seconds = 0
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def _ends_within(self, seconds: float) -> bool:
        """Wait without the ever longer sleeps of `Popen.wait`, where the system can.

        False if it still runs, or if this system has no descriptors of processes.
        """
        open_handle = getattr(os, "pidfd_open", None)
        if open_handle is None or self._child.returncode is not None:
            return False
        try:
            handle = open_handle(self.pid)
        except OSError:
            return False
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        try:
            poll.poll(seconds * 1000)
        finally:
            os.close(handle)
        return True

    def kill(self, grace: float = GRACE) -> int | None:
        """Kill it with its group, and wait `grace` seconds. Returns the exit code, if it ended."""
        if os.name == "nt" or self._attached:
            # The group of an attached program is our own.
            if self.poll() is None:
                kill_tree(self.pid, group=False)
        else:
            with suppress(OSError):  # the whole group has ended
                # Also if the leader has ended: others of the group may still run.
                os.killpg(self.pid, _SIGKILL)
        return self.wait(grace)


def _runner(
    argv: Sequence[str], env: Mapping[str, str] | None, *, as_owner: bool
) -> ownership.User | None:
    """The user as whom root starts a program; None: as itself. Raises `OwnershipError`.

    An installer such as uv starts the interpreter that its `--python` names.
    """
    if os.name == "nt" or os.geteuid() != 0:
        return None
    named = [after for word, after in pairwise(argv) if word == "--python"]
    users = [_runner_of(one, env, as_owner=as_owner and not named) for one in (argv[0], *named)]
    return users[0]


def _runner_of(
    program: str, env: Mapping[str, str] | None, *, as_owner: bool
) -> ownership.User | None:
    if not os.path.dirname(program):
        import shutil

        search = (os.environ if env is None else env).get("PATH")
        program = shutil.which(program, path=search) or program
    accept = f"add `--allow-foreign {program}`"
    try:
        user = ownership.runner(program)
    except PermissionError as error:
        raise OwnershipError(f"{program} is not run: {error.strerror}; or {accept}") from None
    if user is not None and not as_owner:
        raise OwnershipError(
            f"{program} is not run: it belongs to {user.name}, and this is root; run attn-doctor as"
            f" that user with `runuser -u {user.name} -- attn-doctor …`, or {accept}"
        )
    return user


def _identity(user: ownership.User) -> dict[str, Any]:
    """The arguments of `Popen` that give up root's rights."""
    return {"user": user.uid, "group": user.gid, "extra_groups": user.groups}


def run(
    argv: Sequence[str],
    seconds: float,
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stdin: IO[bytes] | None = None,
    joined: bool = False,
    on_line: Callable[[str], None] | None = None,
    head: int = KEPT,
    tail: int = KEPT,
    grace: float = GRACE,
    as_owner: bool = False,
    by_work: bool = False,
    meanwhile: Callable[[], None] | None = None,
    begun: Running | None = None,
) -> Ended:
    """Run `argv` to its end, or to the limit of `seconds`. Never raises `OSError`.

    Raises `OwnershipError` for a program of another user where this is root.

    `stdin`: what the program reads; it stays open. `on_line` gets each line of the output at once,
    from another thread. `joined` puts standard error into `out`, in order. `head`, `tail`: bytes of
    output that are kept from the beginning and from the end. `grace`: seconds to wait for a killed
    process, and for the output of one that has ended while a grandchild still holds the pipe.
    `as_owner`: as for `Running`. `by_work`: on a loaded machine it may take up to `SLOWED` times as
    long, while it is busy and has not used `seconds` of processor time. `meanwhile`: called once
    while it runs. `begun`: this program, if it was started already.
    """
    try:
        running = begun or Running(
            argv, env=env, cwd=cwd, stdin=stdin is not None, joined=joined, as_owner=as_owner
        )
    except (OSError, ValueError) as error:
        return Ended(argv=tuple(argv), code=None, error=error)
    with running:
        drains = [_Drain(pipe, on_line, head, tail) for pipe in (running.out, running.err) if pipe]
        if stdin is not None:
            threading.Thread(target=_feed, args=(running.stdin, stdin), daemon=True).start()
        if meanwhile is not None:
            meanwhile()
        with awaited(running.pid):
            code = running.wait(seconds)
            if code is None and by_work:
                code = _busy_until(running, seconds)
        timed_out = code is None
        if timed_out:
            code = running.kill(grace)
        took = time.monotonic() - running.start
        for drain in drains if code is not None else ():
            drain.join(grace)
        texts = [drain.text() for drain in drains] + [""]
        _log.debug("process %d: code %s after %.2f s", running.pid, code, took)
        return Ended(
            argv=running.argv,
            code=code,
            out=texts[0],
            err=texts[1],
            seconds=took,
            timed_out=timed_out,
            pid=running.pid,
        )


#: Processes that are waited for.
_awaited: set[int] = set()


@contextmanager
def awaited(pid: int) -> Iterator[None]:
    """Count the time of a process as this one's `work` in the `with` block, which waits for it."""
    _awaited.add(pid)
    try:
        yield
    finally:
        _awaited.discard(pid)


def work() -> float:
    """Seconds of processor time that this process and its programs have used so far."""
    times = os.times()
    ended = times.children_user + times.children_system
    return time.process_time() + ended + sum(map(_time_of, [*_awaited]))


def _busy_until(running: Running, seconds: float) -> int | None:
    """Wait for a program while it is busy. Returns its exit code, or None."""
    end = running.start + SLOWED * seconds
    used = _time_of(running.pid)
    while used < seconds and time.monotonic() < end:
        code = running.wait(STEP)
        before, used = used, _time_of(running.pid)
        if code is not None or used - before < BUSY:
            return code
    return None


def _time_of(pid: int) -> float:
    """Seconds of processor time that a process has used; 0 if that is not known.

    Elsewhere than on Linux with its children: `python.exe` of a virtual environment on Windows only
    starts the Python that it was made with, and waits for it.
    """
    with suppress(OSError, OverflowError):
        if sys.platform == "linux":
            # What clock_getcpuclockid returns. The times in /proc are multiples of 10 ms.
            return time.clock_gettime(~pid << 3 | 2)
    import psutil

    used = 0.0
    with suppress(psutil.Error, OSError):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            times = one.cpu_times()
            used += times.user + times.system
    return used


def _feed(pipe: IO[bytes] | None, source: IO[bytes]) -> None:
    if pipe is None:
        return
    try:
        with pipe:
            while data := source.read(1 << 16):
                pipe.write(data)
    except (OSError, ValueError):
        pass  # the program does not read its input, or ended before all of it


def kill_tree(pid: int, *, group: bool = True) -> None:
    """Kill a process and all that it started, also in sessions of their own.

    `group`: kill the process group that `pid` leads as well.
    """
    import psutil

    started: list[psutil.Process] = []
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        started = [*process.children(recursive=True), process]
    if group and os.name != "nt":
        with suppress(OSError):
            os.killpg(pid, _SIGKILL)
    for process in started:
        with suppress(psutil.Error):
            process.kill()


def memory_of(pid: int) -> int:
    """Bytes of memory that a process and all that it started hold; 0 if that is not known."""
    import psutil

    total = 0
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        total = process.memory_info().rss
        for child in process.children(recursive=True):
            with suppress(psutil.Error):
                total += child.memory_info().rss
    return total


class _Drain(threading.Thread):
    """Reads a pipe to its end, so that the writer never blocks; keeps its beginning and its end."""

    def __init__(
        self, pipe: IO[bytes], on_line: Callable[[str], None] | None, head: int, tail: int
    ) -> None:
        super().__init__(daemon=True)
        self._pipe, self._on_line = pipe, on_line
        self._limits = head, tail
        self._head, self._tail, self._line = bytearray(), bytearray(), bytearray()
        self._dropped = 0
        self._failure: MemoryError | None = None
        self.start()

    def run(self) -> None:
        try:
            while chunk := os.read(self._pipe.fileno(), 1 << 16):
                self._keep(chunk)
                self._lines(chunk)
        except (OSError, ValueError):
            pass  # closed while a grandchild still held it
        except MemoryError as error:
            self._failure = error
        if self._line and self._on_line:
            self._on_line(self._line.decode("utf-8", "replace"))

    def _keep(self, chunk: bytes) -> None:
        head, tail = self._limits
        free = max(0, head - len(self._head))
        self._head += chunk[:free]
        self._tail += chunk[free:]
        if len(self._tail) > 2 * tail:
            self._dropped += len(self._tail) - tail
            del self._tail[: len(self._tail) - tail]

    def _lines(self, chunk: bytes) -> None:
        if self._on_line is None:
            return
        # Progress bars rewrite their line: a carriage return ends a line as well.
        *done, rest = (bytes(self._line) + chunk).replace(b"\r", b"\n").split(b"\n")
        self._line = bytearray(rest[-KEPT:])
        for line in done:
            if line:
                self._on_line(line.decode("utf-8", "replace"))

    def text(self) -> str:
        """What was read. Where a tail is kept, a line says how much was dropped before it.

        Raises `MemoryError` if too little memory was left to read it.
        """
        if self._failure is not None:
            raise self._failure
        dropped = self._dropped if self._limits[1] else 0
        gap = f"\n… {dropped} bytes left out …\n".encode() if dropped else b""
        return (bytes(self._head) + gap + bytes(self._tail)).decode("utf-8", "replace")
