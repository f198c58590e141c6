"""Programs that are run on purpose: compilers, installers, the examined interpreter.

For everything that builds, repairs or proves. `check` never comes here: its questions go through
`attn_doctor.host`. Every program is an argv list in a session of its own, with closed input and a
time limit; at the limit, on Ctrl-C and on any other exception its whole group is killed, so that no
grandchild (a compiler of a compiler) outlives us. It cannot reach processes that made a session of
their own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from msgspec import Struct

#: Bytes of output that are kept, from the beginning and from the end.
KEPT = 1 << 20
#: Seconds that a killed group is waited for.
GRACE = 2.0


class Ended(Struct, frozen=True, kw_only=True):
    """How a program ended."""

    argv: tuple[str, ...]
    code: int | None
    """Exit code, negative for a signal; None if it could not be started or never ended."""
    out: str = ""
    err: str = ""
    """Empty if it was joined with `out`."""
    seconds: float = 0.0
    late: bool = False
    """It ran into the limit and was killed."""
    failure: str = ""
    """Why it could not be started."""

    @property
    def ok(self) -> bool:
        """It ran to its end with code 0."""
        return self.code == 0 and not self.late

    @property
    def told(self) -> str:
        """In words: `exit code 1`, `killed by SIGSEGV`, `no answer within 30 s` or the like."""
        if self.failure:
            return self.failure
        if self.late:
            return f"no answer within {self.seconds:.0f} s"
        if self.code is not None and self.code < 0:
            try:
                return f"killed by {signal.Signals(-self.code).name}"
            except ValueError:
                return f"killed by signal {-self.code}"
        return f"exit code {self.code}"


class Running:
    """A program at work. Use it in a `with` block: leaving that kills what still runs.

    `out` and `err` are binary pipes, unless `log` was given: then both go to that open file.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bool = False,
        joined: bool = False,
        log: IO[bytes] | None = None,
        keep: Sequence[int] = (),
        attached: bool = False,
        to: int | None = None,
    ) -> None:
        """Start `argv`. Raises `OSError` if that fails. `keep`: descriptors that it inherits.

        `attached`: as a shell starts a program, with our input, our output (or the descriptor `to`)
        and our terminal, so that Ctrl-C reaches it too; only its errors come through `err`.
        """
        pipe = subprocess.PIPE
        self.argv = tuple(argv)
        self.start = time.monotonic()
        windows = os.name == "nt"
        flags = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) if windows else 0
        self._attached = attached
        self._child = subprocess.Popen(
            self.argv,
            stdin=pipe if stdin else None if attached else subprocess.DEVNULL,
            stdout=to if attached else log or pipe,
            stderr=subprocess.STDOUT if joined or log else pipe,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=not windows and not attached,
            pass_fds=() if windows else tuple(keep),
            creationflags=0 if attached else flags,
        )
        self.pid = self._child.pid
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
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> int | None:
        """Kill it with all of its group, and wait a moment. Returns the exit code, if it ended."""
        if os.name == "nt" or self._attached:
            # Attached, its group is our own.
            if self.poll() is None:
                _kill_tree(self.pid)
        else:
            with suppress(OSError):  # all gone
                # Also when the leader has ended: others of the group may not have.
                os.killpg(self.pid, signal.SIGKILL)
        return self.wait(GRACE)


def run(
    argv: Sequence[str],
    seconds: float,
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stdin: bytes | None = None,
    joined: bool = False,
    on_line: Callable[[str], None] | None = None,
) -> Ended:
    """Run `argv` to its end, or to the limit of `seconds`. Never raises `OSError`.

    `on_line` gets each line of the output as it comes, from another thread. `joined` puts standard
    error into `out`, in order.
    """
    try:
        running = Running(argv, env=env, cwd=cwd, stdin=stdin is not None, joined=joined)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return Ended(argv=tuple(argv), code=None, failure=f"{argv[0]} cannot be run: {reason}")
    with running:
        drains = [_Drain(pipe, on_line) for pipe in (running.out, running.err) if pipe]
        if stdin is not None:
            threading.Thread(target=_feed, args=(running.stdin, stdin), daemon=True).start()
        code = running.wait(seconds)
        late = code is None
        if late:
            code = running.kill()
        took = time.monotonic() - running.start
        for drain in drains:
            drain.join(GRACE)  # a grandchild may still hold the pipe
        texts = [drain.text() for drain in drains] + [""]
        return Ended(
            argv=running.argv, code=code, out=texts[0], err=texts[1], seconds=took, late=late
        )


def _feed(pipe: IO[bytes] | None, data: bytes) -> None:
    if pipe is None:
        return
    try:
        with pipe:
            pipe.write(data)
    except OSError:
        pass  # it did not want its input


def _kill_tree(pid: int) -> None:
    """Where there is no group that can be killed, as on Windows, the children are looked up."""
    import psutil

    try:
        leader = psutil.Process(pid)
        for process in [*leader.children(recursive=True), leader]:
            process.kill()
    except psutil.Error:
        pass


class _Drain(threading.Thread):
    """Reads a pipe to its end, so that the writer never blocks; keeps its beginning and its end."""

    def __init__(self, pipe: IO[bytes], on_line: Callable[[str], None] | None) -> None:
        super().__init__(daemon=True)
        self._pipe, self._on_line = pipe, on_line
        self._head, self._tail, self._open = bytearray(), bytearray(), bytearray()
        self._dropped = 0
        self.start()

    def run(self) -> None:
        try:
            while chunk := os.read(self._pipe.fileno(), 1 << 16):
                self._keep(chunk)
                self._lines(chunk)
        except (OSError, ValueError):
            pass  # closed while a grandchild still held it
        if self._open and self._on_line:
            self._on_line(self._open.decode("utf-8", "replace"))

    def _keep(self, chunk: bytes) -> None:
        room = max(0, KEPT - len(self._head))
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * KEPT:
            self._dropped += len(self._tail) - KEPT
            del self._tail[:-KEPT]

    def _lines(self, chunk: bytes) -> None:
        if self._on_line is None:
            return
        # Progress bars rewrite their line: a carriage return ends one as well.
        *done, rest = (bytes(self._open) + chunk).replace(b"\r", b"\n").split(b"\n")
        self._open = bytearray(rest[-KEPT:])
        for line in done:
            if line:
                self._on_line(line.decode("utf-8", "replace"))

    def text(self) -> str:
        """What was read, with a line for what was dropped in between."""
        gap = f"\n… {self._dropped} bytes left out …\n".encode() if self._dropped else b""
        return (bytes(self._head) + gap + bytes(self._tail)).decode("utf-8", "replace")
