"""Whole runs in a real torch on the CPU, with packages that fail or return wrong numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_doctor.backends.live.outcome import LiveReport, PhaseResult, Verdict
from attn_doctor.backends.live.plan import Limits, Workload
from attn_doctor.backends.live.run import Step, run
from attn_doctor.facts import Facts, Python
from attn_doctor.render.backends.live_progress import ended
from tests.backends.live.failing_packages import write_packages

pytestmark = pytest.mark.slow
LIMITS = Limits(seconds=12.0, memory_mib=2000, timing_seconds=0.02)
LIARS = (
    "native", "flash", "flash_varlen", "_flash_3", "_flash_varlen_3", "sage", "sage_varlen",
    "_sage_qk_int8_pv_fp16_cuda", "_sage_qk_int8_pv_fp16_triton", "_sage_qk_int8_pv_fp8_cuda",
    "_sage_qk_int8_pv_fp8_cuda_sm90", "xformers",
)  # fmt: skip


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    return []


@pytest.fixture(scope="module")
def report(
    torch_python: str, tmp_path_factory: pytest.TempPathFactory, steps: list[Step]
) -> LiveReport:
    """One run over all these packages."""
    folder = write_packages(tmp_path_factory.mktemp("failing"), torch=True)
    facts = Facts(python=Python(path=torch_python))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        patch.setenv("OMP_NUM_THREADS", "1")
        return run(facts, LIARS, Workload(seq=256), LIMITS, "cpu", steps.append)


def outcome(report: LiveReport, name: str, phase: str = "inference") -> PhaseResult:
    found = report.of(name)
    assert found is not None
    return found.outcomes[phase]


def test_a_right_backend_is_verified(report: LiveReport) -> None:
    for phase, tensors in [("inference", {"out"}), ("training", {"out", "dq", "dk", "dv"})]:
        one = outcome(report, "native", phase)
        assert one.verdict is Verdict.VERIFIED, one
        assert [figures.shape.name for figures in one.figures] == ["small", "uneven", "realistic"]
        for figures in one.figures:
            assert set(figures.errors) == tensors
            # bfloat16 rounds to eight bits: neither exact nor far off.
            assert all(error and 5e-4 < error < 2e-2 for error in figures.errors.values())
            for name, error in figures.errors.items():
                allowed = figures.allowed[name]
                assert error
                assert allowed
                assert error < allowed
            assert figures.compared.calls == 5
            assert figures.compared.heads == figures.shape.batch * figures.shape.heads
            assert 0.2 < figures.compared.share <= 1
            assert figures.milliseconds
            assert figures.tflops
    assert report.device.device == "cpu"
    assert report.failure is None
    assert report.left_behind == ()


@pytest.mark.parametrize(
    ("name", "phase", "verdict", "words"),
    [
        ("flash", "inference", Verdict.WRONG, "the output is off by 0.03, most in row"),
        (
            "flash_varlen",
            "inference",
            Verdict.WRONG,
            "with normal inputs, the output holds 64 values that are not finite",
        ),
        ("_flash_3", "inference", Verdict.VERIFIED, "its numbers are right"),
        ("_flash_3", "training", Verdict.CRASHED, "in the forward pass: its process died: seg"),
        ("_flash_varlen_3", "inference", Verdict.HUNG, "no end after 12 s"),
        ("sage", "inference", Verdict.VERIFIED, "its numbers are right"),
        ("sage", "training", Verdict.WRONG, "the output has no grad_fn"),
        ("sage_varlen", "inference", Verdict.FAILED, "no kernel image is available"),
        ("_sage_qk_int8_pv_fp16_cuda", "inference", Verdict.CRASHED, "without a result"),
        ("_sage_qk_int8_pv_fp16_triton", "inference", Verdict.OUT_OF_MEMORY, "its limit"),
        (
            "_sage_qk_int8_pv_fp8_cuda",
            "inference",
            Verdict.WRONG,
            "has shape (1, 255, 4, 64), not (1, 256, 4, 64)",
        ),
        ("_sage_qk_int8_pv_fp8_cuda_sm90", "inference", Verdict.WRONG, "is off by"),
        ("xformers", "inference", Verdict.ABSENT, "xformers not installed"),
    ],
)
def test_failures_and_wrong_numbers_are_seen(
    report: LiveReport, name: str, phase: str, verdict: Verdict, words: str
) -> None:
    one = outcome(report, name, phase)
    assert one.verdict is verdict, one
    assert words in one.sentence


def test_a_failure_is_explained_by_the_rulebook(report: LiveReport) -> None:
    failure = outcome(report, "sage_varlen").failure
    assert failure is not None
    assert failure.cause is not None
    assert failure.cause.rule.split("/")[1].startswith("no-kernel-image"), failure.cause


def test_a_hang_leaves_its_stack(report: LiveReport) -> None:
    failure = outcome(report, "_flash_varlen_3").failure
    assert failure is not None
    assert "flash_attn_interface.py" in failure.text


def test_progress_comes_to_its_end(report: LiveReport, steps: list[Step]) -> None:
    assert steps[-1].done == steps[-1].total
    # Lines in a pipe begin with the first step.
    first = next(one for one in steps if ended(one))
    assert (first.done, first.total) == (1, steps[-1].total)
    assert [one.done for one in steps] == sorted(one.done for one in steps)
    assert {one.result.name for one in steps if one.result} == set(LIARS) - {"xformers"}


@pytest.mark.parametrize(
    ("workload", "names", "verdicts"),
    [
        (
            Workload(phase="inference", mask="bool"),
            ("native", "flex", "_native_flash"),
            {"native": Verdict.VERIFIED, "flex": Verdict.SLOW, "_native_flash": Verdict.FAILED},
        ),
        (
            Workload(phase="inference", mask="float", gqa=True, dtype="fp32", head_dim=32),
            ("native", "flex"),
            {"native": Verdict.VERIFIED, "flex": Verdict.SLOW},
        ),
        (
            Workload(phase="training", causal=True, dtype="fp16", seq=200),
            ("native", "_native_math"),
            {"native": Verdict.VERIFIED, "_native_math": Verdict.VERIFIED},
        ),
    ],
)
def test_workloads(
    torch_python: str,
    workload: Workload,
    names: tuple[str, ...],
    verdicts: dict[str, Verdict],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # Eager FlexAttention is what is meant; its compiled form takes a compiler and minutes.
    from attn_doctor.backends.live import plan

    usual = plan._routes
    monkeypatch.setattr(
        plan, "_routes", lambda name, found: [r for r in usual(name, found) if r != "compiled"]
    )
    facts = Facts(python=Python(path=torch_python))
    found = run(facts, names, workload, Limits(timing_seconds=0.02), "cpu")
    assert {one.name: one.verdict for one in found.results} == verdicts, found.results


def test_a_torch_that_does_not_import(torch_python: str, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        "raise ImportError('libcudnn.so.9: cannot open shared object file: No such file')\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        found = run(Facts(python=Python(path=torch_python)), ("native",))
    assert found.results == ()
    assert found.failure is not None
    assert "libcudnn.so.9" in found.failure.message


def test_a_device_that_is_not_there(torch_python: str) -> None:
    found = run(Facts(python=Python(path=torch_python)), ("native",), device="cuda:7")
    assert [one.verdict for one in found.results] == [Verdict.NOT_RUN]
    assert "cuda:7 cannot be used" in found.results[0].outcome.sentence
