"""From what a job said to a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attn_doctor.backends.live.outcome import LiveResult, PhaseResult, Verdict
from attn_doctor.backends.live.plan import NAMES, Attempt, Limits, Workload, attempts, job, shapes
from attn_doctor.backends.live.verdicts import result
from attn_doctor.pool.task import Ending, Outcome, Task
from attn_doctor.rulebook import library

TABLE = library.tables()["live"]
RIGHT = {"error": 2e-3, "worst": 4e-3, "allowed": 3.8e-3}
COMPARED = {"calls": 5, "heads": 8, "rows": 100, "share": 0.25}
IMPORTED = {"event": "imported", "version": "1.0"}


def measured(phase: str, shape: str, **more: Any) -> dict[str, Any]:
    said = {"event": "measured", "phase": phase, "shape": shape, "errors": {"out": RIGHT}}
    said |= {"wrong": "", "compared": COMPARED}
    return {**said, "milliseconds": 1.0, "tflops": 2.0, "peak_bytes": 1 << 20, **more}


def stage(name: str, phase: str = "inference", shape: str = "small") -> dict[str, Any]:
    return {"event": "stage", "stage": name, "phase": phase, "shape": shape}


def verdict_of(
    *events: dict[str, Any], ending: Ending = Ending.DONE, code: int | None = 0
) -> LiveResult:
    workload = Workload()
    task = Task(id=1, job={}, log=Path("/nowhere.log"), limit=3.0)
    ended = Outcome(
        task=task, events=(IMPORTED, *events), ending=ending, code=code, seconds=3.0,
        printed="the log",
    )  # fmt: skip
    attempt = Attempt(name="native", route="diffusers", score_bytes={})
    sizes = shapes(workload, "cuda:0", TABLE)
    return result(attempt, ended, workload, sizes, lambda _: None)


def inference(
    *events: dict[str, Any], ending: Ending = Ending.DONE, code: int | None = 0
) -> PhaseResult:
    return verdict_of(*events, ending=ending, code=code).outcomes["inference"]


def failed(kind: str, **more: Any) -> dict[str, Any]:
    said = {"event": "failed", "type": kind, "kinds": [kind, "Exception"], "message": "a\nb"}
    return {**said, "phase": "inference", "shape": "small", **more}


def test_both_shapes_right() -> None:
    one = inference(measured("inference", "small"), measured("inference", "realistic"))
    assert one.verdict is Verdict.VERIFIED
    assert [figures.shape.length for figures in one.figures] == [704, 4608]
    assert one.figures[0].peak_mib == 1.0


def test_wrong_numbers() -> None:
    wrong = "with normal inputs, the output is off by 0.009, most in row 3 of head 1"
    one = inference(measured("inference", "small", wrong=wrong))
    assert one.verdict is Verdict.WRONG
    assert one.sentence == f"{wrong} (small shape)"
    assert one.figures[0].allowed == {"out": 3.8e-3}
    assert one.figures[0].compared.rows == 100


def test_unfused_is_slow() -> None:
    warnings = [
        "flex_attention called without torch.compile() - this will use an unfused implementation"
    ]
    one = inference(measured("inference", "small", warnings=warnings))
    assert one.verdict is Verdict.SLOW


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        ("RuntimeError", Verdict.FAILED),
        ("OutOfMemoryError", Verdict.OUT_OF_MEMORY),
        ("MemoryError", Verdict.OUT_OF_MEMORY),
        ("LocalEntryNotFoundError", Verdict.NOT_RUN),
    ],
)
def test_what_it_said(kind: str, verdict: Verdict) -> None:
    assert inference(stage("forward"), failed(kind)).verdict is verdict


def test_a_kernel_that_would_have_to_be_downloaded_is_not_run() -> None:
    message = (
        "Version 3 of 'kernels-community/flash-attn2' is not available in the local cache and"
        " Hugging Face Hub is in offline mode."
    )
    one = inference(stage("forward"), failed("ValueError", message=message))
    assert one.verdict is Verdict.NOT_RUN
    assert "--live-network" in one.sentence
    assert one.failure is None


def test_an_exception_of_one_phase_is_not_that_of_the_other() -> None:
    found = verdict_of(
        measured("inference", "small"),
        stage("backward", "training"),
        failed("NotImplementedError", phase="training"),
    )
    assert found.outcomes["inference"].verdict is Verdict.VERIFIED
    assert found.outcomes["training"].verdict is Verdict.FAILED
    assert "in the backward pass: a" in found.outcomes["training"].sentence


@pytest.mark.parametrize(
    ("ending", "code", "verdict"),
    [
        (Ending.DIED, -11, Verdict.CRASHED),
        (Ending.DIED, 0, Verdict.CRASHED),
        (Ending.DIED, None, Verdict.CRASHED),
        (Ending.TIMED_OUT, -9, Verdict.HUNG),
        (Ending.OUT_OF_MEMORY, -9, Verdict.OUT_OF_MEMORY),
    ],
)
def test_figures_outlive_a_death(ending: Ending, code: int | None, verdict: Verdict) -> None:
    found = verdict_of(
        stage("forward"),
        measured("inference", "small"),
        measured("inference", "realistic"),
        stage("forward", "training"),
        ending=ending,
        code=code,
    )
    assert found.outcomes["inference"].verdict is Verdict.VERIFIED
    assert found.outcomes["training"].verdict is verdict
    assert "in the forward pass" in found.outcomes["training"].sentence


def test_a_death_at_import_strikes_both_phases() -> None:
    found = verdict_of({"event": "stage", "stage": "import"}, ending=Ending.DIED, code=-6)
    assert {one.verdict for one in found.outcomes.values()} == {Verdict.CRASHED}


def test_too_little_memory_is_said_with_figures() -> None:
    refused = {
        "event": "refused",
        "phase": "inference",
        "shape": "realistic",
        "need": 6 << 30,
        "free": 4 << 30,
        "allowed": 3 << 30,
    }
    one = inference(measured("inference", "small"), refused)
    assert one.verdict is Verdict.VERIFIED
    assert "needs about 6.0 GiB" in one.sentence
    assert "4.0 GiB are free, of which 3.0 GiB may be taken" in one.sentence
    assert inference(refused).verdict is Verdict.NOT_RUN


def test_secrets_do_not_reach_the_result() -> None:
    message = "401 for https://ada:pa55@example.org/simple"
    one = inference(stage("forward"), failed("RuntimeError", message=message))
    assert "pa55" not in one.sentence


EVERYTHING = dict.fromkeys((*NAMES.values(), "triton", "diffusers"), True)


def test_what_takes_memory_goes_last() -> None:
    names = ("_native_math", "flex", "native", "flash_hub", "sage", "xformers")
    planned = attempts(names, EVERYTHING, Workload(mask="bool"), TABLE)
    routes = [(one.name, one.route) for one in planned]
    assert routes == [
        ("flex", "compiled"),
        ("native", "diffusers"),
        ("flash_hub", "diffusers"),
        ("sage", "diffusers"),
        ("sage", "direct"),
        ("xformers", "diffusers"),
        ("xformers", "direct"),
        ("_native_math", "diffusers"),
        ("flex", "diffusers"),
    ]
    # 18 GiB of scores in the shape of Flux: what was seen.
    assert 18e9 < planned[-1].score_bytes["inference"] * 24 * 4608**2 < 22e9


def test_without_diffusers_the_libraries_are_called() -> None:
    found = {**EVERYTHING, "diffusers": False, "sageattention": False}
    names = ("native", "flex", "flash", "flash_hub", "sage")
    planned = attempts(names, found, Workload(), TABLE)
    assert {(one.name, one.route) for one in planned} == {
        ("native", "direct"),
        ("flex", "direct"),
        ("flex", "compiled"),
        ("flash", "direct"),
    }


def test_each_backend_has_its_roundings() -> None:
    def kind(name: str, route: str = "direct") -> str:
        attempt = Attempt(name=name, route=route, score_bytes={})
        return str(job(attempt, Workload(), Limits(), "cpu", TABLE)["rounding"])

    assert kind("native") == kind("flash") == kind("flex", "compiled") == "fused"
    assert kind("flex") == kind("flex", "diffusers") == "unfused"
    assert kind("sage") == "int8-fp8"
    assert kind("sage_varlen", "diffusers") == "int8-fp16"
    named = {name for row in TABLE["rounding"] for name in row["backends"]}
    assert named <= set(NAMES)


def test_the_workload_changes_the_shapes() -> None:
    small, uneven, big = shapes(Workload(gqa=True, head_dim=96, seq=1000), "cuda:1", TABLE)
    assert (small.length, big.length) == (704, 1000)
    assert (uneven.length, uneven.kv_length, uneven.title) == (200, 333, "2×4/2×200←333×96")
    assert (small.head_dim, big.head_dim, big.heads, big.kv_heads) == (96, 96, 24, 12)
    assert shapes(Workload(), "cpu", TABLE)[-1].length == 832
    # What a causal mask means for unequal lengths is not agreed on.
    assert [one.name for one in shapes(Workload(causal=True), "cpu", TABLE)] == [
        "small",
        "realistic",
    ]
