"""`--live` on the command line."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.backends.live.failing_packages import write_packages
from tests.command import run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("check", "--live", "--facts", "x.json"), "runs the backends here: drop --facts"),
        (("backends", "--live", "--device", "H100"), "--device H100: write cuda:0"),
        (("backends", "--live", "sla", "--framework", "simpletuner"), "--live cannot run sla"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], message: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert done.stdout == ""


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_check_survives_a_torch_that_crashes(tmp_path: Path) -> None:
    write_packages(tmp_path, torch=False)
    (tmp_path / "torch.py").write_text("import ctypes\nctypes.string_at(1)\n")
    words = ("check", "--live", "--python", sys.executable)
    done = run(*words, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1, done.stderr
    assert "segmentation fault (SIGSEGV)" in done.stdout
    assert "Nothing could be run" in done.stdout
    assert f"Next: attn-doctor check --python {sys.executable}" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_an_audit_without_torch_says_what_comes_next(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('its folder is empty')\n")
    done = run("audit", "--python", sys.executable, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1, done.stderr
    assert "Nothing could be run: its folder is empty" in done.stdout
    assert f"Next: attn-doctor check --python {sys.executable}" in done.stdout


def test_an_audit_shows_what_a_torch_that_ends_python_prints(tmp_path: Path) -> None:
    """As Intel's OpenMP does on Windows: it writes a line and aborts."""
    end = "import os, sys\nsys.stderr.write('OMP: Error #15\\n')\nsys.stderr.flush()\nos._exit(3)"
    (tmp_path / "torch.py").write_text(end)
    done = run("audit", "--python", sys.executable, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1, done.stderr
    assert "exit code 3" in done.stdout
    assert "| OMP: Error #15" in done.stdout


@pytest.mark.slow
def test_a_backend_is_run_and_its_figures_are_given(torch_python: str) -> None:
    words = ("--live", "--device", "cpu", "--for", "inference", "--format", "json")
    done = run("backends", "native", *words, "--python", torch_python, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["exit_code"] == 0
    (result,) = data["live"]["results"]
    assert result["verdict"] == "verified"
    assert result["outcomes"]["inference"]["figures"][0]["milliseconds"] > 0
    assert data["live"]["disagreements"] == []
    assert "native: inference verified" in done.stderr
