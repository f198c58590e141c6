"""Runs probes until they have ended, or are late.

Probes run one after another in a thread: in threads of their own they would wait for Python's lock
again after each file, a sixth of a check on a quiet machine. While one waits for a program or a
slow disk, another thread goes on with the next. Where processors are free, those that read most
run in processes of their own (`forked`). A probe that is late or fails costs only its own facts;
the reason is recorded as a gap.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from attn_doctor import processes
from attn_doctor.host import Host
from attn_doctor.logger import Logger
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps

#: Another thread takes the next probe if none has begun for `NEXT` seconds, with less processor
#: time than `IDLE`, or for `NEXT_BUSY` seconds.
NEXT, IDLE, NEXT_BUSY = 0.01, 0.001, 0.25

_log = Logger(__name__)


class Probe(Struct, frozen=True):
    """A probe and the fields of `Facts` that it returns."""

    name: str
    fields: tuple[str, ...]
    read: Callable[[Host, Site, Gaps], dict[str, Any]]


class Limit(Struct, frozen=True):
    """How long probes may take."""

    seconds: float
    start: float
    """By `time.monotonic`, as `usual` and `longest`."""
    work: float
    """The processor time that ends an examination, by `processes.work`."""

    @classmethod
    def of(cls, seconds: float) -> Limit:
        """A limit that begins now."""
        return cls(seconds, time.monotonic(), processes.work() + seconds)

    @property
    def usual(self) -> float:
        """When probes are late, unless they are busy."""
        return self.start + self.seconds

    @property
    def longest(self) -> float:
        """For probes that are busy."""
        return self.start + processes.SLOWED * self.seconds


class Running:
    """One probe. Its result is read only after it has ended."""

    def __init__(self, probe: Probe, host: Host, site: Site) -> None:
        self.probe = probe
        self.result: dict[str, Any] = {}
        self.gaps = Gaps()
        self.failure = ""
        self.ended = False
        self._host, self._site = host, site

    def run(self) -> None:
        """Run the probe to its end. Never raises."""
        start = time.perf_counter()
        try:
            self.result = self.probe.read(self._host, self._site, self.gaps)
        except Exception as error:  # a bug, or a machine of an unexpected kind: report it, go on
            self.failure = f"the {self.probe.name} probe failed: {type(error).__name__}: {error}"
            _log.debug("probe %s failed", self.probe.name, exc_info=True)
        _log.debug("probe %s took %.0f ms", self.probe.name, 1e3 * (time.perf_counter() - start))
        self.ended = True


class _Worker(threading.Thread):
    """A thread that runs probes until none waits."""

    def __init__(self, waiting: deque[Running]) -> None:
        super().__init__(daemon=True)
        self._waiting = waiting

    def run(self) -> None:
        with suppress(IndexError):  # none is left
            while True:
                self._waiting.popleft().run()


def start(running: Sequence[Running], until: Limit) -> list[threading.Thread]:
    """Begin all probes, and return the threads that run them.

    A thread is added where those that run wait for something else than the processor, or do not
    end. Raises `RuntimeError` if none can be started.
    """
    waiting = deque(running)
    workers: list[threading.Thread] = []
    while waiting and time.monotonic() < until.longest:
        if _get_on(waiting, workers):
            continue
        try:
            worker = _Worker(waiting)
            worker.start()
            workers.append(worker)
        except RuntimeError:  # no thread is free, or no memory for its stack
            if not any(one.is_alive() for one in workers):
                raise
    return workers


def _get_on(waiting: Sequence[Running], workers: Sequence[threading.Thread]) -> bool:
    """Wait a moment, and tell whether `workers` begin probes, or may soon."""
    alive = [one for one in workers if one.is_alive()]
    left, patience = len(waiting), time.monotonic() + NEXT_BUSY
    while alive and time.monotonic() < patience:
        used = time.process_time()
        alive[-1].join(NEXT)
        if len(waiting) < left:
            return True
        if time.process_time() - used < IDLE:
            return False
    return False


def collect(
    running: Sequence[Running],
    workers: Sequence[threading.Thread],
    host: Host,
    fields: dict[str, object],
    gaps: Gaps,
    until: Limit,
) -> None:
    """Wait for probes, and add what they return to `fields` and `gaps`."""
    for worker in workers:
        worker.join(max(0.0, until.usual - time.monotonic()))
    _wait_while_busy(workers, until, host)
    waited = max(until.seconds, round(time.monotonic() - until.start))
    for one in running:
        reason = f"the {one.probe.name} probe did not answer within {waited:g} s"
        if not one.ended or one.failure:
            for name in one.probe.fields:
                gaps.add(name, one.failure or reason)
            continue
        fields.update(one.result)
        for name, why in one.gaps.reasons.items():
            gaps.add(name, why)


def _wait_while_busy(workers: Sequence[threading.Thread], until: Limit, host: Host) -> None:
    """Wait for late probes while they get on, as a loaded machine or a slow disk lets them.

    They use processor time, or get answers: a scanner of viruses may work on each file in a process
    of its own. A probe that waits for a driver or a file system that never answers does neither.
    """
    while any(one.is_alive() for one in workers) and time.monotonic() < until.longest:
        before, answered = processes.work(), host.answered
        step = time.monotonic() + processes.STEP
        for one in workers:
            one.join(max(0.0, step - time.monotonic()))
        busy = before + processes.BUSY < processes.work()
        if processes.work() >= until.work or not (busy or host.answered > answered):
            return
