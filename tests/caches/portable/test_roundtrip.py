"""Kernels built here, carried to another folder, and used there, with a real torch on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TORCH = os.environ.get("ATTN_DOCTOR_TORCH_PYTHON", "")
pytestmark = pytest.mark.skipif(
    not TORCH, reason="ATTN_DOCTOR_TORCH_PYTHON names no interpreter with torch"
)


def doctor(*words: str, cache: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "attn_doctor", *words, "--python", TORCH],
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.slow
def test_there_and_back(tmp_path: Path) -> None:
    old, new, file = tmp_path / "old", tmp_path / "a longer new place", tmp_path / "k.attn"
    spec = ("--heads", "2", "--head-dim", "16", "--length", "128", "--dtype", "fp32")
    built = doctor("build-kernels", "--device", "cpu", *spec, cache=old)
    assert built.returncode == 0, built.stdout + built.stderr
    exported = doctor("cache", "export", str(file), "--format", "json", cache=old)
    assert exported.returncode == 0, exported.stderr
    digest = json.loads(exported.stdout)["sha256"]

    untrusted = doctor("cache", "import", str(file), cache=new)
    wrong = doctor("cache", "import", str(file), "--sha256", "0" * 64, cache=new)
    assert (untrusted.returncode, wrong.returncode) == (2, 2)
    assert not list(new.glob("*graph"))

    old.rename(tmp_path / "gone")  # nothing may come from where it was built
    taken = doctor("cache", "import", str(file), "--sha256", digest, "--format", "json", cache=new)
    assert taken.returncode == 0, taken.stdout + taken.stderr
    (kernel,) = json.loads(taken.stdout)["proven"]
    assert kernel["errors"]["out"] < 1e-5
    assert doctor("cache", "verify", "--require-hit", cache=new).returncode == 0
    assert doctor("cache", "why", cache=new).returncode == 0
