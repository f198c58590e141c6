"""Specs on a stub GPU: compiled and reused, never compared, and refused where they read."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from attn_doctor import worker

from .conftest import PROGRAMS, PYTHON

pytestmark = [pytest.mark.cuda_torch, pytest.mark.slow]

SPEC = {"heads": 2, "head_dim": 16, "lengths": [128], "layout": "bshd"}


def done(environ: dict[str, str], cache: Path, action: str, **spec: object) -> dict[str, Any]:
    job = {
        "action": action,
        "device": "cuda:0",
        "spec_id": "one",
        "parts": "one-here",
        "cache_dir": str(cache),
        "sys_path": [str(PROGRAMS)],
        "spec": {**SPEC, **spec},
    }
    ended = subprocess.run(
        worker.command(PYTHON, "kernels.job"),
        input=json.dumps(job),
        env=environ,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert ended.stdout, ended.stderr[-2000:]
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_a_spec_is_built_and_reused_and_stays_unverified(
    stub_gpu: dict[str, str], tmp_path: Path
) -> None:
    built = done(stub_gpu, tmp_path, "build")
    assert (built["ok"], built["unverified"], built["errors"]) == (True, True, {})
    assert built["fused"]
    assert built["compilers"] > 0
    assert not [path for path in built["files"] if "best_config" in path]
    assert (tmp_path / "attn-doctor" / "keys" / "one-here.json").is_file()
    again = done(stub_gpu, tmp_path, "verify")
    assert (again["ok"], again["unverified"], again["compilers"]) == (True, True, 0)
    assert again["counters"]["aot_autograd.autograd_cache_hit"] == 1


def test_the_guard_is_there_even_if_the_variable_is_lost(
    stub_gpu: dict[str, str], tmp_path: Path
) -> None:
    # Nothing compared with nothing differs by 0.0, which must not count as verified.
    environ = {name: one for name, one in stub_gpu.items() if name != "ATTN_DOCTOR_STUB_GPU"}
    built = done(environ, tmp_path, "build", phase="inference")
    assert (built["unverified"], built["errors"]) == (True, {})


def test_a_mask_that_reads_the_gpu_is_refused_with_its_line(
    stub_gpu: dict[str, str], tmp_path: Path
) -> None:
    found = done(stub_gpu, tmp_path, "build", mask="own_masks:counting", phase="inference")
    assert not found["ok"]
    assert found["failure"]["type"] == "Refused"
    path = PROGRAMS / "own_masks.py"
    (number,) = [
        number
        for number, text in enumerate(path.read_text("utf-8").splitlines(), 1)
        if text.endswith("# <- counting")
    ]
    assert f"{path}:{number} (keys = int(" in found["failure"]["message"]
    assert not (tmp_path / "fxgraph").exists()
