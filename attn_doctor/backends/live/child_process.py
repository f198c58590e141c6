"""A child process that speaks JSON lines and may crash, hang or eat memory without harm to us.

What it says arrives through a thread, so that nothing here ever blocks on it; whatever is no JSON
object with the agreed token is dropped, because a child may be made to print anything. Memory is
watched from outside: a limit that the kernel puts on addresses (`RLIMIT_AS`) is of no use where
CUDA reserves more of them than the machine has memory.
"""

from __future__ import annotations

import json
import os
import queue
import secrets
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from attn_doctor.processes import Running

#: Bytes of one line beyond which it cannot be an answer.
_LONGEST = 1 << 20


class Child:
    """A program that is sent JSON lines and answers with JSON lines.

    Raises `OSError` if it cannot be started. Left alone it ends with its standard input.
    """

    def __init__(self, argv: Sequence[str], *, folder: str, env: Mapping[str, str]) -> None:
        self._token = secrets.token_hex(8)
        self._said: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        env = {**env, "ATTN_DOCTOR_TOKEN": self._token}
        self._running = Running(argv, env=env, cwd=folder, stdin=True)
        self.pid = self._running.pid
        self.gone = False
        """It will not say anything more."""
        self._errors = bytearray()
        self._start(self._listen, self._running.out)
        self._start(self._keep, self._running.err)

    def send(self, message: Mapping[str, Any]) -> bool:
        """Send one message; false if the process does not take any."""
        pipe = self._running.stdin
        if pipe is None:
            return False
        try:
            pipe.write(json.dumps(message).encode() + b"\n")
            pipe.flush()
        except (OSError, ValueError):
            return False
        return True

    def next(self, seconds: float) -> dict[str, Any] | None:
        """What it says next, or None if it says nothing within `seconds`, or nothing more."""
        if self.gone:
            return None
        try:
            said = self._said.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        self.gone = said is None
        return said

    def status(self, seconds: float = 2.0) -> int | None:
        """Its exit code, negative for a signal; None if it does not end within `seconds`."""
        return self._running.wait(seconds)

    def stop(self) -> bool:
        """Kill it and all that it started. False if it does not die and is left behind."""
        kill_tree(self.pid)
        self._running.__exit__()
        return self._running.poll() is not None

    @property
    def errors(self) -> str:
        """What it printed on standard error before it turned that to its log."""
        return bytes(self._errors).decode("utf-8", "replace")

    def _start(self, target: Any, pipe: IO[bytes] | None) -> None:
        if pipe is not None:
            threading.Thread(target=target, args=(pipe,), daemon=True).start()

    def _listen(self, pipe: IO[bytes]) -> None:
        with suppress(OSError, ValueError):
            while line := pipe.readline(_LONGEST):
                said = _answer(line, self._token)
                if said is not None:
                    self._said.put(said)
        self._said.put(None)

    def _keep(self, pipe: IO[bytes]) -> None:
        with suppress(OSError, ValueError):
            while chunk := os.read(pipe.fileno(), 1 << 16):
                self._errors += chunk[: _LONGEST - len(self._errors)]


def _answer(line: bytes, token: str) -> dict[str, Any] | None:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or said.pop("token", None) != token:
        return None
    return said if isinstance(said.get("event"), str) else None


def kill_tree(pid: int) -> None:
    """Kill the group that `pid` leads, and what it started in sessions of their own."""
    import psutil

    started: list[Any] = []
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        started = [*process.children(recursive=True), process]
    if os.name != "nt":
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
    for one in started:
        with suppress(psutil.Error):
            one.kill()


def memory_of(pid: int) -> int:
    """Bytes of memory that `pid` and all that it started hold; 0 if that cannot be told."""
    import psutil

    total = 0
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        total = process.memory_info().rss
        for one in process.children(recursive=True):
            with suppress(psutil.Error):
                total += one.memory_info().rss
    return total
