"""`attn-doctor install` that is killed, and two of them in one environment."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.command import installed
from tests.environments import _HEARS_CTRL_C, TORCH, Environment, wheel
from tests.install.test_install_command import FILES, empty, install

__all__ = ["empty"]


def started(where: Environment, *words: str) -> subprocess.Popen[str]:
    """`attn-doctor install` as a process of its own, in a group that can be killed."""
    argv = where.argv(*words)
    argv[0] = "install"
    return subprocess.Popen(
        [*_HEARS_CTRL_C, *installed(), *argv],
        env=where.variables,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.fixture
def large(empty: Environment, tmp_path: Path) -> Environment:
    """A torch of many files is offered, so that its installation takes a while."""
    text = TORCH.replace("2.11.0+cu130", "2.14.1+cpu").replace("'13.0'", "None")
    many = {f"torch/more/m{number}.py": f"x = {number}\n" for number in range(3000)}
    files = {**FILES, "torch/version.py": text, **many}
    wheel(tmp_path / "offered", "torch", "2.14.1+cpu", files)
    return empty


def restored(where: Environment) -> None:
    """Undo what a run that was cut off has left; nothing is left to undo before it begins."""
    undone = where.fix("undo", "--yes", examine=False)
    deadline = time.monotonic() + 120
    while "still running" in undone.text and time.monotonic() < deadline:
        time.sleep(0.5)  # its installer outlives it and ends by itself
        undone = where.fix("undo", "--yes", examine=False)
    assert undone.returncode == 0 or "nothing to undo" in undone.text, undone.text


@pytest.mark.attack
@pytest.mark.parametrize("whole", [True, False], ids=["group", "alone"])
def test_killed_at_random_moments(large: Environment, whole: bool) -> None:
    """Ten moments each: of the whole group, and of attn-doctor without its installer."""
    generator = random.Random(18)
    before, frozen = large.tree(), large.freeze()
    begin = time.monotonic()
    assert install(large, "torch", "--yes").returncode == 0
    lasts = time.monotonic() - begin + 1.0
    restored(large)
    assert large.tree() == before
    cut = 0
    for _ in range(10):
        running = started(large, "torch", "--yes")
        time.sleep(generator.uniform(0.1, lasts))
        cut += running.poll() is None
        if whole:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(running.pid, signal.SIGKILL)
        else:
            running.kill()
        running.communicate(timeout=120)
        restored(large)
        assert large.tree() == before
        assert large.freeze() == frozen
    assert cut >= 5  # the moments lie within the run


@pytest.mark.posix
@pytest.mark.thorough
def test_two_at_once(large: Environment) -> None:
    """The second refuses and changes nothing; the first ends well."""
    first = started(large, "torch", "--yes")
    try:
        deadline = time.monotonic() + 120
        while not (large.site / "torch/more/m5.py").exists():
            assert first.poll() is None, first.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.002)
        os.killpg(first.pid, signal.SIGSTOP)
        second = install(large, "hub", "--yes", "--no-resolve")
    finally:
        os.killpg(first.pid, signal.SIGCONT)
    assert second.returncode in (1, 2), second.text
    assert "running in this environment" in second.text or "another run of fix" in second.text
    out, err = first.communicate(timeout=120)
    assert first.returncode == 0, out + err
    assert "✓ `import torch` works" in out
    assert install(large, "torch", "--yes").returncode == 0
