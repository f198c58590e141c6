"""Kernels built here, carried to another folder, and used there, with a real torch on the CPU."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TORCH = os.environ.get("ATTN_DOCTOR_TORCH_PYTHON", "")
pytestmark = pytest.mark.torch


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
    spec = ("--heads", "2", "--head-dim", "16", "--seq-len", "128", "--dtype", "fp32")
    built = doctor("build-kernels", "--device", "cpu", *spec, cache=old)
    assert built.returncode == 0, built.stdout + built.stderr
    exported = doctor("cache", "export", "-o", str(file), "--format", "json", cache=old)
    assert exported.returncode == 0, exported.stderr
    digest = json.loads(exported.stdout)["sha256"]

    untrusted = doctor("cache", "import", str(file), cache=new)
    wrong = doctor("cache", "import", str(file), "--sha256", "0" * 64, cache=new)
    assert (untrusted.returncode, wrong.returncode) == (2, 2)
    assert not list(new.glob("*graph"))

    old.rename(tmp_path / "gone")  # nothing may come from where it was built
    taken = doctor("cache", "import", str(file), "--sha256", digest, "--format", "json", cache=new)
    assert taken.returncode == 0, taken.stdout + taken.stderr
    (kernel,) = json.loads(taken.stdout)["verified"]
    assert kernel["errors"]["out"] < 1e-5
    assert doctor("cache", "verify", "--require-hit", cache=new).returncode == 0
    assert doctor("cache", "why", cache=new).returncode == 0


@pytest.mark.slow
def test_taken_in_unverified_and_verified_later(tmp_path: Path) -> None:
    old, image, file = tmp_path / "old", tmp_path / "image", tmp_path / "k.attn"
    spec = ("--heads", "2", "--head-dim", "16", "--seq-len", "128", "--dtype", "fp32")
    built = doctor("build-kernels", "--device", "cpu", *spec, "--for", "inference", cache=old)
    assert built.returncode == 0, built.stdout + built.stderr
    assert doctor("cache", "export", "-o", str(file), cache=old).returncode == 0
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    trust = ("--sha256", digest, "--no-verify")
    assert doctor("cache", "import", str(file), *trust, cache=image).returncode == 0
    assert state(image) == "unverified"
    status = doctor("cache", "status", "--kind", "inductor", cache=image)
    assert "1 built for cpu, not verified yet: attn-doctor cache verify" in " ".join(
        status.stdout.split()
    )
    shutil.copytree(image, tmp_path / "other")

    done = doctor("cache", "verify", "--cache-dir", str(image), "--format", "json", cache=image)
    assert done.returncode == 0, done.stdout + done.stderr
    (kernel,) = json.loads(done.stdout)["kernels"]
    assert (kernel["previous_state"], kernel["state"]) == ("unverified", "built")
    assert kernel["errors"]["out"] < 1e-5
    assert state(image) == "built"

    # The same, with code that computes something else under the same keys.
    (code,) = (
        path
        for path in (tmp_path / "other").glob("??/c*.py")
        if "def call" in path.read_text(encoding="utf-8")
    )
    change = "[one if one is None else one * 1.5 for one in right(args)]"
    wrong = f"\nright = call\ndef call(args):\n    return {change}\n"
    code.write_text(code.read_text(encoding="utf-8") + wrong, encoding="utf-8")
    done = doctor("cache", "verify", "--format", "json", cache=tmp_path / "other")
    assert done.returncode == 1
    (kernel,) = json.loads(done.stdout)["kernels"]
    assert "the output is off by 0.5" in kernel["message"]
    assert state(tmp_path / "other") == "failed"


def state(cache: Path) -> str:
    manifest = json.loads((cache / "attn-doctor" / "manifest.json").read_text(encoding="utf-8"))
    (entry,) = manifest["entries"].values()
    return str(entry["state"])
