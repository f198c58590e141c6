"""Where the time of a build goes: when its phases ended, and what each process spent on what.

It tells nothing of waiting inside a driver or a disk: that is part of the stage it happened in.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

#: Stages that a child measures, in seconds; `process` is all of its life.
_STAGES = ("context_seconds", "seconds", "reference_seconds", "total_seconds")


class Timings:
    """Phases, in seconds since it was made, and stages by manifest key and action."""

    def __init__(self, begun: float | None = None) -> None:
        self._begun = time.monotonic() if begun is None else begun
        self.phases: dict[str, float] = {}
        self.stages: dict[str, dict[str, dict[str, float]]] = {}

    def first(self, name: str, at: float | None = None) -> None:
        """Something happened, perhaps not for the first time; the first counts."""
        self.phases.setdefault(name, self._since(at))

    def last(self, name: str, at: float | None = None) -> None:
        """Something happened, perhaps not for the last time; the last counts."""
        self.phases[name] = self._since(at)

    @contextmanager
    def adding(self, name: str) -> Iterator[None]:
        """Add the seconds that the block takes to `name`."""
        start = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - start
            self.phases[name] = round(self.phases.get(name, 0.0) + took, 3)

    def ended(self, key: str, action: str, seconds: float, result: Mapping[str, Any]) -> None:
        """A process of a spec ended after `seconds`, with what it told of itself."""
        self.last(f"last_{action}_ended")
        self.first(f"first_{action}_ended")
        told = {
            name.removesuffix("_seconds"): round(float(result[name]), 3)
            for name in _STAGES
            if isinstance(result.get(name), (int, float))
        }
        stage = {"process": round(seconds, 3), **told}
        stage["ended"] = self.phases[f"last_{action}_ended"]
        self.stages.setdefault(key, {})[action] = stage

    def _since(self, at: float | None) -> float:
        return round((time.monotonic() if at is None else at) - self._begun, 3)
