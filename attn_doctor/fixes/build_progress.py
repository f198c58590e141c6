"""Reads the progress of a build, and the time that it still takes, from its output.

ninja counts its own steps (`[3/12]`). A package with several extensions starts several ninjas, one
after another; then, and without such counts, only the estimate can be compared with the clock.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

#: `  [12/85] /usr/local/cuda/bin/nvcc …`, as ninja prints it, also below pip's own indentation.
_NINJA = re.compile(r"(?:^|\s)\[(\d+)/(\d+)\]\s")


class Progress:
    """The progress of one step."""

    def __init__(
        self, minutes: tuple[float, float] | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._start = clock()
        self._estimate = minutes
        self._counted: tuple[int, int, float] | None = None
        self._rounds = 0

    def line(self, text: str) -> None:
        """Read one line of output."""
        match = _NINJA.search(text)
        if match is None:
            return
        done, total = int(match[1]), int(match[2])
        if self._counted is None or done < self._counted[0] or total != self._counted[1]:
            self._rounds += 1
            self._round_start = self._clock()
        self._counted = (done, total, self._clock())

    @property
    def elapsed(self) -> float:
        """Seconds since the step began."""
        return self._clock() - self._start

    @property
    def left(self) -> tuple[float, float] | None:
        """Seconds that it may still take, from and to; None if unknown."""
        if self._counted is not None and self._rounds == 1 and self._counted[0] > 0:
            done, total, seen = self._counted
            # A step takes as long as those before it; the current one began when it was counted.
            each = (seen - self._start_of_counting()) / done
            rest = max(0.0, each * (total - done) - (self._clock() - seen))
            return rest * 0.8, rest * 1.3
        if self._estimate is None:
            return None
        low, high = (60 * one - self.elapsed for one in self._estimate)
        return (max(0.0, low), high) if high > 0 else None

    def _start_of_counting(self) -> float:
        return min(self._round_start, self._start) if self._rounds == 1 else self._round_start

    @property
    def text(self) -> str:
        """In words: `step 3 of 12, about 4 min left`."""
        words = []
        if self._counted is not None:
            words.append(f"step {self._counted[0]} of {self._counted[1]}")
        left = self.left
        if left is not None:
            words.append(f"{span(left)} left")
        elif self._estimate is not None:
            words.append("longer than estimated")
        return ", ".join(words)


def span(seconds: tuple[float, float]) -> str:
    """Seconds from and to, in words: `2 to 5 min`, `less than a minute`."""
    low, high = seconds
    if high < 60:
        return "less than a minute"
    first, last = max(1, round(low / 60)), max(1, round(high / 60))
    return f"about {last} min" if first == last else f"{first} to {last} min"
