"""One process of the examined interpreter that runs jobs: commands go in, events come out.

What a job is, and what its events mean, is for the pool that it belongs to.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeAlias

from attn_doctor.processes import Running

#: Events of all processes of a pool: who sent it, and what it says.
Inbox: TypeAlias = "SimpleQueue[tuple[WorkerProcess, dict[str, Any]]]"


class WorkerProcess:
    """One `worker/server.py`, and a thread that puts its events into `inbox`.

    `argv`: the command that starts it, without mode and log. `mode`: `fork` forks a process for
    each job, `one` runs a single job.
    """

    def __init__(
        self, argv: Sequence[str], mode: str, log: Path, *, env: Mapping[str, str], inbox: Inbox
    ) -> None:
        self.mode, self.log = mode, log
        self.ready = self.ended = False
        self.standing = False
        self.noise: list[str] = []
        self._inbox = inbox
        command = [*argv, mode, str(log)]
        self.running = Running(command, env=env, cwd=str(log.parent), stdin=True, joined=True)
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, command: Mapping[str, Any]) -> None:
        """Pass a command on; one that died is noticed by its events ending."""
        pipe = self.running.stdin
        if pipe is None:
            return
        with suppress(OSError, ValueError):
            pipe.write(json.dumps(command).encode() + b"\n")
            pipe.flush()

    def _read(self) -> None:
        pipe = self.running.out
        with suppress(OSError, ValueError):
            for line in pipe or ():
                try:
                    event = json.loads(line)
                except ValueError:
                    # What a .pth file or a broken interpreter prints before our script begins.
                    self.noise.append(line.decode("utf-8", "replace").rstrip())
                    continue
                self._inbox.put((self, event))
        self._inbox.put((self, {"event": "gone"}))

    def close(self) -> None:
        """Let it end by itself, which it does when its input ends."""
        if self.running.stdin is not None:
            with suppress(OSError):
                self.running.stdin.close()

    def last_words(self, code: int | None) -> str:
        """How it ended, with the last that was printed before our script began."""
        words = f": {self.noise[-1]}" if self.noise else ""
        if code is not None and code < 0:
            with suppress(ValueError):
                return f"the interpreter was killed by {signal.Signals(-code).name}{words}"
        return f"the interpreter ended with exit code {code}{words}"
