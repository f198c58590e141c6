"""Whether the process of an earlier run is there, without touching it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from attn_doctor.fixes import installers, orphans
from attn_doctor.processes import Running


def test_a_process_is_there_or_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with child:
        assert orphans._alive(child.pid)
    assert not orphans._alive(child.pid)
    assert not orphans._alive(0)


def test_looking_for_a_process_sends_it_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows signal 0 is Ctrl-C; psutil asks in another way there."""
    monkeypatch.setattr(psutil, "pid_exists", lambda process: process == 7)
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a signal was sent"))
    assert orphans._alive(7)
    assert not orphans._alive(8)


@pytest.mark.skipif(os.name == "nt", reason="Windows ends programs in another way")
def test_ctrl_c_while_an_installer_starts_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would go on after its step was rolled back."""
    started: list[int] = []

    class Interrupted(Running):
        def __init__(self, *words: Any, **more: Any) -> None:
            super().__init__(*words, **more)
            started.append(self.pid)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(installers, "Running", Interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            installers.run(
                [sys.executable, "-c", "import time; time.sleep(60)"],
                seconds=60,
                env=dict(os.environ),
                folder=tmp_path,
                log=tmp_path / "log",
            )
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert not psutil.pid_exists(started[0])
