"""One worker process of the examined interpreter: commands go in, events come out.

What a job is, and what its events mean, is for the pool that the process belongs to.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeAlias

from attn_doctor import worker
from attn_doctor.json_files import JsonError, decode
from attn_doctor.processes import Running, signal_name
from attn_doctor.worker.wire import TOKEN

_log = logging.getLogger(__name__)

#: Events of all processes of a pool: who sent it, and what it says.
Inbox: TypeAlias = "SimpleQueue[tuple[WorkerProcess, dict[str, Any]]]"
#: Lines of output before the first event that are kept.
_NOISE = 200


class WorkerProcess:
    """One `worker/server.py`, and a thread that puts its events into `inbox`.

    Raises `OSError` if it cannot be started. `options` are those of `worker/server.py`; `forks`:
    it forks a process for each job, otherwise it runs a single one.
    """

    def __init__(
        self,
        python: str,
        options: Mapping[str, Any],
        *,
        forks: bool,
        env: Mapping[str, str],
        inbox: Inbox,
    ) -> None:
        self.forks, self.log = forks, Path(options["log"])
        self.ready = self.ended = self.warm = False
        self.events: list[dict[str, Any]] = []
        """What it reported before it was ready."""
        self._noise: list[str] = []
        self._inbox = inbox
        self._token = secrets.token_hex(8)
        kind = "fork" if forks else "single"
        text = json.dumps({**options, "kind": kind})
        self.running = Running(
            worker.command(python, "server", text),
            env={**env, TOKEN: self._token},
            cwd=str(self.log.parent),
            stdin=True,
            joined=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, command: Mapping[str, Any]) -> None:
        """Send a command. If the process has died, the end of its events says so."""
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
                event = self._event(line)
                if event is not None:
                    self._inbox.put((self, event))
                elif line.strip():
                    # What a .pth file or a broken interpreter prints before our script begins.
                    self._noise.append(line.decode("utf-8", "replace").rstrip())
                    del self._noise[:-_NOISE]
        self._inbox.put((self, {"event": "gone"}))

    def _event(self, line: bytes) -> dict[str, Any] | None:
        try:
            event = decode(line)
        except JsonError:
            return None
        if not isinstance(event, dict) or event.pop("token", None) != self._token:
            return None
        return event

    def close(self) -> None:
        """Let it end by itself, which it does when its input ends."""
        if self.running.stdin is not None:
            with suppress(OSError):
                self.running.stdin.close()

    @property
    def printed(self) -> str:
        """What it printed before it wrote to its log."""
        return "\n".join(self._noise)

    def last_words(self, code: int | None) -> str:
        """How it ended, with the last line that it printed before our script began."""
        words = f": {self._noise[-1]}" if self._noise else ""
        if code is not None and code < 0:
            return f"the interpreter was killed by {signal_name(-code)}{words}"
        return f"the interpreter ended with exit code {code}{words}"
