"""A report made by hand, with one of everything that a run can show."""

from __future__ import annotations

from typing import Any

from attn_doctor.backends.live.outcome import (
    Cause,
    Compared,
    Device,
    Failure,
    Figures,
    Imported,
    LiveReport,
    LiveResult,
    PhaseResult,
    Shape,
    Verdict,
)
from attn_doctor.backends.live.ranking import ranked
from attn_doctor.findings import Fix, Safety

SMALL = Shape(name="small", batch=2, heads=4, kv_heads=4, length=320, head_dim=64)
BIG = Shape(
    name="realistic", batch=1, heads=24, kv_heads=24, length=4608, head_dim=128, model="Flux.1"
)


def figures(milliseconds: float, error: float | None = 2.3e-3, **more: Any) -> tuple[Figures, ...]:
    """Figures of both shapes."""
    ask = {"errors": {"out": error}, "worst": {"out": error}, "allowed": {"out": 3.8e-3}, **more}
    ask["compared"] = Compared(calls=5, heads=24, rows=120_000, share=0.22)
    tflops = 261 / milliseconds
    return (
        Figures(shape=SMALL, milliseconds=0.02, tflops=0.5, peak_mib=1.0, **ask),
        Figures(shape=BIG, milliseconds=milliseconds, tflops=tflops, peak_mib=55.0, **ask),
    )


def good(milliseconds: float, verdict: Verdict = Verdict.VERIFIED) -> PhaseResult:
    return PhaseResult(verdict=verdict, sentence="it runs", figures=figures(milliseconds))


def result(
    name: str, inference: PhaseResult, training: PhaseResult, route: str = "diffusers"
) -> LiveResult:
    outcomes = {"inference": inference, "training": training}
    return LiveResult(
        name=name, route=route, decisive="inference", outcomes=outcomes, version="0.42.1"
    )


FAILURE = Failure(
    stage="forward",
    type="RuntimeError",
    message="xFormers was built for CUDA 1208\nsecond line",
    text="Traceback (most recent call last):\n  /home/ada/x.py",
    cause=Cause(
        rule="xformers/built-for-other-cuda",
        title="xformers was built for another CUDA",
        why="It cannot load its kernels.",
        verdict="confirmed by this machine",
        fixes=(
            Fix(title="Install the right wheel", safety=Safety.ASK, run=(("pip", "install", "x"),)),
        ),
    ),
)
FAILED = PhaseResult(
    verdict=Verdict.FAILED,
    sentence="RuntimeError in the forward pass: xFormers was built for CUDA 1208",
    failure=FAILURE,
)
CRASHED = PhaseResult(
    verdict=Verdict.CRASHED,
    sentence="in the forward pass: its process died: segmentation fault (SIGSEGV)",
    failure=Failure(stage="forward", message="its process died", text="Fatal Python error"),
)
NO_GRADIENT = PhaseResult(
    verdict=Verdict.WRONG,
    sentence="the output has no grad_fn",
    figures=figures(0.54, 3.8e-2, wrong="the output has no grad_fn"),
)
ABSENT = PhaseResult(verdict=Verdict.ABSENT, sentence="flash_attn not installed")
REPORT = LiveReport(
    python="/srv/venv/bin/python",
    torch="2.11.0+cu130",
    device=Device(device="cuda:0", name="NVIDIA H200", free_mib=140000, total_mib=143771),
    dtype="bfloat16",
    imports=(
        Imported(module="triton", verdict=Verdict.VERIFIED, sentence="it imports", version="3.6.0"),
        Imported(module="xformers.ops", verdict=Verdict.FAILED, sentence="ImportError: no"),
    ),
    results=ranked(
        [
            result("native", good(0.41), good(1.5)),
            result("flex", good(15.6, Verdict.SLOW), good(60.0)),
            result("flex", good(0.6), good(2.0), "compiled"),
            result("sage", good(0.54), NO_GRADIENT),
            result("sage", good(0.2), NO_GRADIENT, "direct"),
            result("xformers", FAILED, FAILED),
            result("_flash_3", good(0.5), CRASHED),
            result("flash", ABSENT, ABSENT, "direct"),
        ],
        3.0,
    ),
    seconds=41.2,
)
