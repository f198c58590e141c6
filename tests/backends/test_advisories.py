"""Advisories: known faults without an error message, and what they mean for a backend."""

from __future__ import annotations

import msgspec
import pytest

from attn_doctor.backends import catalogue
from attn_doctor.backends.advisories import concerns, faults
from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.live.outcome import (
    Device,
    LiveReport,
    LiveResult,
    PhaseResult,
    Verdict,
)
from attn_doctor.backends.live.static_disagreements import disagreements, with_advisories
from attn_doctor.backends.matrix import matrix
from attn_doctor.backends.readiness import Matrix, Readiness
from attn_doctor.findings import Advisory
from attn_doctor.rulebook import library
from attn_doctor.rulebook.rule import Rule
from tests.backends import scenario
from tests.command import run

RULES = {rule.id.partition("/")[2]: rule for rule in library.load() if rule.advisory}
ASSUMED = ("head_dim", "seq_len")


def of(id: str) -> Advisory:
    advisory = RULES[id].advisory
    assert advisory is not None
    return advisory


def table(*calls: AttentionCall) -> Matrix:
    """An H200 with torch 2.11."""
    return matrix(*scenario.machine("h200-torch-2.11-cu130"), calls, "diffusers")


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_an_advisory_is_complete(rule: Rule) -> None:
    assert rule.advisory is not None
    assert list(faults(rule.advisory)) == []
    assert {*rule.backends} <= {one.name for one in catalogue.load().backends}
    compile(rule.advisory.reproducer, rule.id, "exec")


TRAINING = AttentionCall(phase="training", seq_len=704)
LONG = AttentionCall(mask="bool", seq_len=70000)


@pytest.mark.parametrize(
    ("id", "call", "expected"),
    [
        ("ATTN-2026-0001", TRAINING, True),
        ("ATTN-2026-0001", msgspec.structs.replace(TRAINING, seq_len=640), False),
        ("ATTN-2026-0001", msgspec.structs.replace(TRAINING, dtype="fp32"), False),
        ("ATTN-2026-0001", msgspec.structs.replace(TRAINING, phase="inference"), False),
        ("ATTN-2026-0001", msgspec.structs.replace(TRAINING, assumed=ASSUMED), None),
        ("ATTN-2026-0002", msgspec.structs.replace(TRAINING, seq_len=640), None),
        ("ATTN-2026-0003", AttentionCall(), None),
        ("ATTN-2026-0003", AttentionCall(dtype="fp32"), False),
        ("ATTN-2026-0003", TRAINING, False),
        ("ATTN-2026-0004", LONG, None),
        ("ATTN-2026-0004", msgspec.structs.replace(LONG, seq_len=65536), False),
        ("ATTN-2026-0004", msgspec.structs.replace(LONG, mask="none"), False),
    ],
)
def test_which_calls_it_concerns(id: str, call: AttentionCall, expected: bool | None) -> None:
    assert concerns(of(id), call) is expected


def test_a_fault_of_this_call_makes_a_backend_wrong() -> None:
    found = table(TRAINING)
    for name in ("native", "_native_cudnn"):
        (answer,) = found.row(name).answers
        assert answer.wrong
        assert answer.reasons[0].rule == "advisories/ATTN-2026-0001"
        assert answer.reasons[0].text.startswith("wrong results: NaN in the gradient")
    for name in ("_native_efficient", "_native_flash"):
        assert found.row(name).answers[0].reasons == ()
    assert found.recommended[0].name not in ("native", "_native_cudnn")


def test_a_fault_of_other_calls_is_an_exception() -> None:
    other = msgspec.structs.replace(TRAINING, seq_len=640)
    unstated = msgspec.structs.replace(TRAINING, assumed=ASSUMED)
    found = table(other, unstated, AttentionCall(assumed=ASSUMED))
    stated, open_, inference = found.row("native").answers
    assert stated.state is open_.state is Readiness.READY
    assert [one.rule[-4:] for one in stated.reasons] == ["0002", "0030"]
    assert [one.rule[-4:] for one in open_.reasons] == ["0001", "0002", "0030"]
    assert open_.reasons[0].text.startswith("ready, except for lengths with 64 tokens")
    assert [one.rule[-4:] for one in inference.reasons] == ["0030"]


def test_a_live_run_names_them() -> None:
    static = table(msgspec.structs.replace(TRAINING, assumed=ASSUMED))
    wrong = PhaseResult(verdict=Verdict.WRONG, sentence="dq is NaN")
    report = LiveReport(
        python="python",
        torch="2.11.0",
        dtype="bfloat16",
        imports=(),
        device=Device(device="cuda:0"),
        results=tuple(
            LiveResult(name=name, route="direct", decisive="training", outcomes={"training": wrong})
            for name in ("native", "_native_efficient")
        ),
    )
    native, efficient = with_advisories(report, static).results
    known = ", ".join(f"ATTN-2026-{number}" for number in ("0001", "0002", "0030"))
    words = f"dq is NaN; known faults of it here: {known}"
    assert native.outcomes["training"].sentence == words
    assert efficient.outcomes["training"].sentence == "dq is NaN"
    assert [one.name for one in disagreements(report, static)] == ["_native_efficient"]


def test_faults_of_an_advisory() -> None:
    bad = Advisory(effect="x", calls=("call.length == 3",), sometimes=True, reproducer="\n" * 9)
    found = list(faults(bad))
    assert any("call.length" in one for one in found)
    assert any("`seen`" in one for one in found)
    assert any("advisory.where" in one for one in found)
    long = Advisory(effect="x", reproducer="pass\n" * 16, seen=("here",))
    assert list(faults(long)) == ["advisory.reproducer has 16 lines; at most 15 are read"]


def test_its_page() -> None:
    for name in ("ATTN-2026-0002", "attn-2026-0002", "advisories/ATTN-2026-0002"):
        shown = run("rules", "show", name)
        assert shown.returncode == 0
        assert "Wrong results without an error" in shown.text
        assert "seen by us" in shown.text
        assert "sdpa_kernel(SDPBackend.CUDNN_ATTENTION)" in shown.text
    page = run("rules", "show", "ATTN-2026-0003", "--format", "markdown")
    assert "- seen by us: not run by us" in page.text
