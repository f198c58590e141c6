"""A limit of time ends what hangs and what works without end, not what a loaded machine slows."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attn_doctor import processes
from attn_doctor.examination import examine
from attn_doctor.host.local import LocalHost
from attn_doctor.probes import registry, running
from attn_doctor.probes.running import Probe
from tests.effort import SLOWER

LIMIT = 0.4 * SLOWER
#: Works for a twentieth of a second in all, in pieces, as on a loaded machine.
SLOW = """
import time
end, work = time.monotonic() + {limit} * 2.5, time.process_time()
while time.monotonic() < end:
    time.sleep(0.02)
    now = time.process_time()
    while time.process_time() < now + 0.002: pass
print("done")
"""
ENDLESS = "while True: pass"
HUNG = "import time; time.sleep(60)"
posix = pytest.mark.skipif(sys.platform != "linux", reason="needs the clock of a process")


def program(source: str) -> processes.Ended:
    return processes.run([sys.executable, "-I", "-S", "-c", source], LIMIT, by_work=True)


@posix
def test_a_slow_program_may_take_longer() -> None:
    ended = program(SLOW.format(limit=LIMIT))
    assert (ended.out, ended.timed_out) == ("done\n", False)
    assert ended.seconds > 2 * LIMIT


@posix
@pytest.mark.parametrize("source", [HUNG, ENDLESS], ids=["hung", "endless"])
def test_a_program_that_hangs_or_works_without_end_is_ended(source: str) -> None:
    ended = program(source)
    assert ended.timed_out
    assert ended.seconds >= LIMIT
    assert not processes._awaited


@posix
def test_a_program_that_hung_is_not_waited_for_again() -> None:
    start = time.monotonic()
    program(HUNG)
    assert time.monotonic() - start < processes.SLOWED * LIMIT


@posix
def test_work_counts_this_process_and_its_programs() -> None:
    before = processes.work()
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    assert 0.05 <= processes.work() - before < 5
    with processes.Running([sys.executable, "-c", ENDLESS]) as running:
        processes._awaited.add(running.pid)
        try:
            before = processes.work()
            while processes.work() < before + 0.05:
                time.sleep(0.01)
            os.kill(running.pid, signal.SIGSTOP)
        finally:
            processes._awaited.discard(running.pid)


def examined(
    monkeypatch: pytest.MonkeyPatch, work: Callable[[], None], tmp_path: Path
) -> tuple[Any, float]:
    """The gaps of an examination whose cache probe does `work`, and its seconds."""

    def read(*_: object) -> dict[str, Any]:
        work()
        return {"caches": ()}

    monkeypatch.setattr(registry, "PROBES", (Probe("cache", ("caches",), read),))
    monkeypatch.chdir(tmp_path)
    start = time.monotonic()
    facts = examine(LocalHost(), sys.executable, limit=LIMIT)
    return facts.gaps, time.monotonic() - start


@posix
def test_a_slow_probe_may_take_longer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def slow() -> None:
        exec(SLOW.format(limit=LIMIT).replace("print", "str"), {})

    gaps, seconds = examined(monkeypatch, slow, tmp_path)
    assert "caches" not in gaps
    assert seconds > 2 * LIMIT


@posix
@pytest.mark.native
def test_a_probe_that_waits_for_a_slow_program_may_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gaps, seconds = examined(monkeypatch, run_slow_program, tmp_path)
    assert "caches" not in gaps
    assert seconds > 2 * LIMIT


def test_a_probe_whose_questions_are_answered_slowly_may_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As where each file waits for a scanner of viruses: no processor time of ours is used."""
    host, idle = LocalHost(), threading.Event()
    monkeypatch.setattr(processes, "BUSY", 60.0)  # what asking costs must not count

    def read(*_: object) -> dict[str, Any]:
        end = time.monotonic() + 2.5 * LIMIT
        while time.monotonic() < end:
            idle.wait(0.05)
            host.try_stat(str(tmp_path))
        return {"caches": ()}

    monkeypatch.setattr(registry, "PROBES", (Probe("cache", ("caches",), read),))
    monkeypatch.chdir(tmp_path)
    start = time.monotonic()
    facts = examine(host, sys.executable, limit=LIMIT)
    assert "caches" not in facts.gaps
    assert time.monotonic() - start > 2 * LIMIT


def wait_for(event: threading.Event) -> None:
    event.wait(60)


def run_slow_program() -> None:
    assert program(SLOW.format(limit=LIMIT)).out == "done\n"


def test_a_hung_probe_leaves_a_gap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    event = threading.Event()
    gaps, seconds = examined(monkeypatch, lambda: wait_for(event), tmp_path)
    event.set()
    assert gaps["caches"].startswith("the cache probe did not answer within ")
    assert seconds >= LIMIT


def test_a_probe_that_works_without_end_leaves_a_gap(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended = threading.Event()

    def spin() -> None:
        while not ended.is_set():
            pass

    gaps, _ = examined(monkeypatch, spin, tmp_path)
    ended.set()
    assert gaps["caches"].startswith("the cache probe did not answer within ")


@pytest.mark.parametrize("kind", ["hung", "endless"])
def test_a_probe_that_does_not_end_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    ended = threading.Event()

    def stuck(*_: object) -> dict[str, Any]:
        while not ended.is_set():
            if kind == "hung":
                wait_for(ended)
        return {}

    probes = (
        Probe("cache", ("caches",), stuck),
        Probe("manifest", ("manifests",), stuck),
        Probe("PCI", ("pci",), lambda *_: {"pci": ()}),
    )
    monkeypatch.setattr(registry, "PROBES", probes)
    monkeypatch.chdir(tmp_path)
    facts = examine(LocalHost(), sys.executable, limit=3 * LIMIT)
    ended.set()
    assert {"caches", "manifests"} <= {*facts.gaps}
    assert "pci" not in facts.gaps
    assert facts.pci == ()


def test_probes_that_do_not_wait_share_a_thread(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Threads of their own would wait for Python's lock after each question."""
    threads = set()

    def read(*_: object) -> dict[str, Any]:
        threads.add(threading.current_thread())
        return {"caches": ()}

    monkeypatch.setattr(registry, "PROBES", (Probe("cache", ("caches",), read),) * 12)
    monkeypatch.setattr(running, "NEXT", 60.0)  # a loaded machine may let us wait
    monkeypatch.chdir(tmp_path)
    examine(LocalHost(), sys.executable)
    assert len(threads) == 1
