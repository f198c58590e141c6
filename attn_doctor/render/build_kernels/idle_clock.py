"""A clock that stands still while other programs of the machine have its processors."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator

#: Seconds between two looks at the processes.
_EVERY = 0.5
#: Seconds over which the current load is measured.
_WINDOW = 15.0
#: Threads that ran for a smaller share of a moment waited for something else than a processor.
_BUSY = 0.05


class IdleClock:
    """Seconds that this process and its descendants would have taken on an idle machine.

    Linux counts for each thread how long it ran and how long it waited for a processor. Where
    these numbers are missing, this is an ordinary clock.
    """

    def __init__(self) -> None:
        self._threads = dict(_threads(os.getpid()))
        #: Time and the clock's seconds at each look, for the window.
        self._looks = deque([(time.monotonic(), 0.0)])
        self._share = 1.0

    def now(self) -> float:
        """Seconds since it was made."""
        now = time.monotonic()
        last, seconds = self._looks[-1]
        if now - last >= _EVERY:
            self._share = self._look(now - last)
            self._looks.append((now, seconds + (now - last) * self._share))
            while len(self._looks) > 2 and self._looks[1][0] < now - _WINDOW:
                self._looks.popleft()
        last, seconds = self._looks[-1]
        return seconds + (now - last) * self._share

    def slowdown(self) -> float:
        """How many times as long as on an idle machine everything takes now."""
        (first, before), (last, after) = self._looks[0], self._looks[-1]
        # A second at full speed beside it: one look says little.
        return (last - first + 1) / (after - before + 1)

    def _look(self, seconds: float) -> float:
        """The share of the time in which the threads ran of that in which they could have run."""
        seen = dict(_threads(os.getpid()))
        before = [self._threads.get(thread, (0.0, 0.0)) for thread in seen]
        pairs = list(zip(seen.values(), before, strict=True))
        ran = sum(max(now[0] - then[0], 0.0) for now, then in pairs)
        waited = sum(max(now[1] - then[1], 0.0) for now, then in pairs)
        self._threads = seen
        if ran <= _BUSY * seconds:
            return 1.0
        # Threads that had every processor waited for each other alone.
        return ran / min(ran + waited, max(ran, _processors() * seconds))


def _processors() -> int:
    """How many processors this process may use."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def _threads(pid: int) -> Iterator[tuple[str, tuple[float, float]]]:
    """Of each thread of a process and its descendants: seconds that it ran, and that it waited."""
    todo = [str(pid)]
    while todo:
        folder = f"/proc/{todo.pop()}/task"
        try:
            for thread in os.listdir(folder):
                with open(f"{folder}/{thread}/schedstat", encoding="ascii") as file:
                    ran, waited, *_ = file.read().split()
                yield thread, (int(ran) / 1e9, int(waited) / 1e9)
                with open(f"{folder}/{thread}/children", encoding="ascii") as file:
                    todo += file.read().split()
        except (OSError, ValueError):
            continue  # it has ended, or this system does not count
