"""A job for a process of the examined interpreter, and how it ended."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from msgspec import Struct


class Task(Struct, frozen=True, kw_only=True):
    """One job for one process."""

    id: int
    job: dict[str, Any]
    log: Path
    """Where everything goes that the job prints."""
    limit: float
    """Seconds that it may take."""
    fresh: bool = False
    """In a process started by `python` itself, not a fork."""


class Outcome(Struct, frozen=True, kw_only=True):
    """How a job ended."""

    task: Task
    seconds: float
    result: dict[str, Any] | None = None
    """What the child answered; None if it died before it could."""
    signal: int = 0
    """The signal that killed it, if one did."""
    late: bool = False
    """It ran into its limit."""

    @property
    def death(self) -> str:
        """Why there is no result, in words."""
        if self.late:
            return f"gave no result within {self.task.limit:g} s"
        if self.signal:
            try:
                return f"was killed by {signal.Signals(self.signal).name}"
            except ValueError:
                return f"was killed by signal {self.signal}"
        return "ended without a result"
