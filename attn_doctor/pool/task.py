"""A job for a worker process, and how it ended."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec import Struct

from attn_doctor.files import open_binary
from attn_doctor.processes import signal_name


class Task(Struct, frozen=True, kw_only=True):
    """One job for one process."""

    id: int
    job: dict[str, Any]
    log: Path
    """Where everything goes that the job prints."""
    limit: float
    """Seconds that it may take."""
    memory_mib: int | None = None
    """Memory of the machine that it may hold, with all that it starts; None: without a limit."""
    fresh: bool = False
    """In a process started by `python` itself, not a fork."""
    wait_for_exit: bool = False
    """Its outcome comes when its process has ended, so that the next job has the GPU for itself.
    Otherwise it comes with the result, while memory is still being released."""


class Ending(str, Enum):
    """How a job ended."""

    DONE = "done"
    """It gave a result."""
    DIED = "died"
    """Its process ended without a result."""
    TIMED_OUT = "timed out"
    """It was killed at its time limit."""
    OUT_OF_MEMORY = "out of memory"
    """It was killed at its memory limit."""


class Outcome(Struct, frozen=True, kw_only=True):
    """How a job ended, and what it reported."""

    task: Task
    seconds: float
    result: dict[str, Any] | None = None
    """What the job answered; None if it died before it could."""
    ending: Ending = Ending.DONE
    code: int | None = None
    """Exit code of its process, negative for a signal; None if it is not known."""
    events: tuple[dict[str, Any], ...] = ()
    """What it reported while it ran, in order; `event` is the kind."""
    most_mib: int = 0
    """Most memory that it was seen to hold, if that is limited."""
    left_behind: int | None = None
    """The process id, if the process could not be killed."""
    printed: str = ""
    """What the process printed before it wrote to a log."""

    @property
    def signal(self) -> int:
        """The signal that ended the process; 0 if none did."""
        return -self.code if self.code is not None and self.code < 0 else 0

    @property
    def timed_out(self) -> bool:
        """It was killed at its time limit."""
        return self.ending is Ending.TIMED_OUT

    @property
    def reason(self) -> str:
        """Why there is no result, in words."""
        if self.timed_out:
            return f"gave no result within {self.task.limit:g} s"
        if self.ending is Ending.OUT_OF_MEMORY:
            return f"held more than {self.task.memory_mib} MiB of memory"
        if self.signal:
            return f"was killed by {signal_name(self.signal)}"
        return "ended without a result"

    def of(self, event: str) -> list[dict[str, Any]]:
        """What it reported of one kind."""
        return [reported for reported in self.events if reported["event"] == event]

    def output(self, size: int = 1 << 16) -> str:
        """The end of what it printed: at most `size` bytes of its log."""
        try:
            with open_binary(self.task.log) as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - size))
                return file.read().decode("utf-8", "replace") or self.printed
        except OSError:
            return self.printed
