"""Whether the process of an earlier run is there, without touching it."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from attn_doctor.fixes import orphans


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
