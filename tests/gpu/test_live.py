"""On a machine with a GPU: what runs is verified, and what breaks the GPU's context breaks no more.

Needs an interpreter with a CUDA torch; name it in ATTN_DOCTOR_TORCH_PYTHON if it is not this one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from attn_doctor.backends.live.outcome import LiveReport, PhaseResult, Verdict
from attn_doctor.backends.live.plan import Limits, Workload
from attn_doctor.backends.live.run import run
from attn_doctor.facts import Facts, Python

pytestmark = pytest.mark.gpu

PYTHON = os.environ.get("ATTN_DOCTOR_TORCH_PYTHON", sys.executable)
FACTS = Facts(python=Python(path=PYTHON))
#: Packages that hurt the GPU: a read beyond the end, and far more memory than there is.
FLASH = """
import torch

def flash_attn_func(q, k, v, softmax_scale=None, causal=False):
    beyond = torch.tensor([1 << 20], device=q.device)
    return q + torch.zeros(4, device=q.device)[beyond].to(q.dtype)
"""
SAGE = """
import torch

def sageattn(q, k, v, tensor_layout, is_causal, sm_scale):
    return torch.empty(1 << 43, dtype=torch.uint8, device=q.device)
"""


def outcome(
    report: LiveReport, name: str, phase: str = "inference", route: str = ""
) -> PhaseResult:
    found = [one for one in report.results if one.name == name and route in ("", one.route)]
    return found[-1].outcomes[phase]


def test_torch_own_backends_are_verified() -> None:
    report = run(FACTS, ("native", "_native_flash", "_native_math", "flex"))
    assert report.device.device == "cuda:0", report.device
    for phase in ("inference", "training"):
        for name, route in [("native", ""), ("_native_flash", ""), ("flex", "compiled")]:
            one = outcome(report, name, phase, route)
            if (name, phase) == ("native", "training") and one.verdict is Verdict.WRONG:
                # The fault of cuDNN, which torch may take: docs/upstream has it.
                assert "gradient in another layout" in one.sentence, one
                continue
            assert one.verdict is Verdict.VERIFIED, (name, phase, one)
            for figures in one.figures:
                assert figures.tflops
                assert figures.peak_mib
    eager = next(one for one in report.results if one.name == "flex" and one.route != "compiled")
    assert eager.verdict is Verdict.SLOW
    big = eager.outcomes["inference"].figures[-1]
    fused = outcome(report, "flex", "inference", "compiled").figures[-1]
    assert big.peak_mib
    assert fused.peak_mib
    assert big.peak_mib > 20 * fused.peak_mib


def test_what_breaks_the_gpu_breaks_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flash_attn.py").write_text(FLASH)
    (tmp_path / "sageattention.py").write_text(SAGE)
    # Without diffusers, the packages of this test are called as they are.
    (tmp_path / "diffusers.py").write_text("raise ImportError('left out')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    report = run(FACTS, ("flash", "sage", "native"), Workload(phase="inference"))
    flash = next(one for one in report.results if (one.name, one.route) == ("flash", "direct"))
    assert flash.verdict in (Verdict.FAILED, Verdict.CRASHED)
    assert flash.outcome.failure is not None
    assert "device-side assert" in flash.outcome.failure.text + flash.outcome.sentence
    sage = next(one for one in report.results if (one.name, one.route) == ("sage", "direct"))
    assert sage.verdict is Verdict.OUT_OF_MEMORY, sage


def test_a_small_share_of_memory_is_kept_to() -> None:
    limits = Limits(share=0.01, timing_seconds=0.05)
    report = run(FACTS, ("native", "_native_math"), Workload(phase="inference"), limits)
    math = outcome(report, "_native_math")
    assert [figures.shape.name for figures in math.figures] == ["small", "uneven"], math
    assert "needs about" in math.sentence
    assert outcome(report, "native").verdict is Verdict.VERIFIED


def test_a_causal_flag_that_is_ignored_is_wrong() -> None:
    report = run(FACTS, ("flex",), Workload(phase="inference", causal=True))
    compiled = outcome(report, "flex", route="compiled")
    assert compiled.verdict is Verdict.VERIFIED, compiled
    through = [one for one in report.results if one.route == "diffusers"]
    if not through:
        pytest.skip("diffusers is not installed there")
    # Diffusers hands no mask to FlexAttention then.
    assert through[0].verdict is Verdict.WRONG
