"""What happens during a build: the steps of each kernel, their watcher, and where the time goes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from attn_doctor.kernels.builder.plan import Plan, PlannedBuild
from attn_doctor.record.manifest import Entry

if TYPE_CHECKING:
    from attn_doctor.record.lock import Owner

#: Stages that a worker measures, in seconds; `process` is its whole life.
_STAGES = ("context_seconds", "seconds", "reference_seconds", "total_seconds")


class Step(Struct, frozen=True, kw_only=True):
    """Something that has just happened to a kernel."""

    kernel: PlannedBuild
    phase: Literal["build", "verify", "compiled", "rejected", "done"]
    """`build` and `verify` begin a process. `compiled`: its files are in the cache folder.
    `rejected`: compiled without the GPU, it failed its verification on the GPU. `done`: finished,
    with an entry."""
    entry: Entry | None = None
    """When it is done or rejected."""
    result: dict[str, Any] = {}
    """What the building process reported, when it is compiled."""
    retried: bool = False


class Watcher:
    """Is notified of what happens; a progress display overrides what it shows."""

    def __enter__(self) -> Watcher:  # noqa: PYI034 (Self is newer than Python 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        """The display ends."""

    def waiting(self, owner: Owner | None) -> None:
        """Another builder holds the lock."""

    def begin(self, plan: Plan) -> None:
        """The build begins; stale files are about to be removed."""

    def importing(self, modules: int) -> None:
        """Torch is being imported, and so many modules are loaded."""

    def imported(self, seconds: float) -> None:
        """Torch is imported, which took `seconds`."""

    def step(self, step: Step) -> None:
        """A process of a kernel began, or the kernel is done."""

    def tick(self) -> None:
        """A moment has passed."""


class Timings:
    """Phases, in seconds since it was made, and stages by manifest key and action.

    Time that a driver or a disk takes is part of the stage it happened in.
    """

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self.phases: dict[str, float] = {}
        self.stages: dict[str, dict[str, dict[str, float]]] = {}

    def first(self, name: str) -> None:
        """Note that something happened, perhaps again; the first time counts."""
        self.phases.setdefault(name, self._since(None))

    def last(self, name: str, at: float | None = None) -> None:
        """Note that something happened, perhaps again; the last time counts."""
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
        """Note that a process of a kernel ended after `seconds`, with what it measured itself."""
        self.last(f"last_{action}_ended")
        self.first(f"first_{action}_ended")
        measured = {
            name.removesuffix("_seconds"): round(float(result[name]), 3)
            for name in _STAGES
            if isinstance(result.get(name), (int, float))
        }
        stage = {"process": round(seconds, 3), **measured}
        stage["ended"] = self.phases[f"last_{action}_ended"]
        self.stages.setdefault(key, {})[action] = stage

    def seconds(self) -> float:
        """Seconds since it was made."""
        return self._since(None)

    def _since(self, at: float | None) -> float:
        return round((time.monotonic() if at is None else at) - self._begun, 3)
