"""One process of the examined interpreter that runs jobs: commands go in, events come out.

What a job is, and what its events mean, is for the pool that it belongs to.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attn_doctor.processes import Running

if TYPE_CHECKING:
    from attn_doctor.builder.pool import Pool

__all__ = ["Serving"]


class Serving:
    """One `serve.py`, and a thread that reads its events into the inbox of its pool.

    `mode`: `fork` for one that forks a process for each job, `one` for one that runs a single job.
    """

    def __init__(self, serve: Path, mode: str, pool: Pool, log: Path) -> None:
        self.mode, self.log = mode, log
        self.ready = self.ended = False
        self.standing = False
        self.noise: list[str] = []
        argv = [pool.python, str(serve), mode, str(log)]
        self.running = Running(argv, env=pool.env, cwd=str(log.parent), stdin=True, joined=True)
        self.pool = pool
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
                self.pool.inbox.put((self, event))
        self.pool.inbox.put((self, {"event": "gone"}))

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
