"""Keeps one job within its time and its memory, from outside."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from attn_doctor.backends.live.child_process import kill_tree, memory_of

#: Seconds between two looks at a job's memory.
LOOK = 0.05
#: Seconds that a killed job is waited for, and that a server may take to begin one.
_GRACE = 5.0


class Watch:
    """Looks at a job's time and memory, and kills it at either limit."""

    def __init__(self, end: float, memory_mib: int) -> None:
        self.pid = 0
        self.most = 0
        self.killed = ""
        self._end, self._limit, self._looked = end, memory_mib, 0.0

    def hopeless(self) -> bool:
        """Look once. True if it was killed and does not die, or never began."""
        now = time.monotonic()
        if self.killed or not self.pid:
            return now > self._end + _GRACE
        if now - self._looked >= LOOK:
            self._looked = now
            held = memory_of(self.pid) >> 20
            self.most = max(self.most, held)
            self.killed = "memory" if held > self._limit else ""
        if not self.killed and now > self._end:
            self.killed = "late"
        if self.killed:
            kill_tree(self.pid)
            self._end = now
        return False

    def how(self, said: Sequence[dict[str, Any]]) -> str:
        """How it ended, now that it has."""
        if self.killed:
            return self.killed
        return "done" if any(one["event"] == "done" for one in said) else "died"
