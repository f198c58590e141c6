"""What a run showed, as text, JSON and Markdown; where it contradicts the facts."""

from __future__ import annotations

import json as std_json

import msgspec
import pytest

from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.live.outcome import Device, LiveReport, LiveResult, PhaseResult
from attn_doctor.backends.live.static_disagreements import Disagreement, disagreements
from attn_doctor.backends.matrix import matrix
from attn_doctor.backends.readiness import Answer, Matrix, Readiness, RequirementResult
from attn_doctor.backends.readiness import Outcome as RequirementOutcome
from attn_doctor.cli.backends.live import exit_code
from attn_doctor.render.backends.live_json import json
from attn_doctor.render.backends.live_markdown import markdown
from attn_doctor.render.backends.live_text import text
from attn_doctor.render.terminal import Terminal
from tests.backends.live.made import (
    ABSENT,
    CRASHED,
    FAILED,
    REPORT,
    good,
    result,
)
from tests.render.sample import FACTS

READY = Answer(state=Readiness.READY)
LIBRARY = RequirementResult(
    id="x",
    outcome=RequirementOutcome.UNSATISFIED,
    state=Readiness.NOT_READY,
    text="no kernel",
    by="library",
)
FRAMEWORK = msgspec.structs.replace(LIBRARY, id="y", text="too old for it", by="framework")


def static(answers: dict[str, Answer], device: str = "cuda") -> Matrix:
    """The real matrix with some answers put in place of its own."""
    real = matrix(
        FACTS, (), (AttentionCall(phase="inference"), AttentionCall(phase="training")), "diffusers"
    )
    rows = tuple(
        msgspec.structs.replace(row, answers=(answers[row.name],) * 2)
        for row in real.rows
        if row.name in answers
    )
    context = msgspec.structs.replace(real.context, device=device)
    return msgspec.structs.replace(real, rows=rows, context=context)


def differing(report: LiveReport, answers: dict[str, Answer]) -> list[tuple[str, str, bool]]:
    found = disagreements(report, static(answers))
    return [(one.name, one.phase, one.broken) for one in found]


def only(one: LiveResult) -> LiveReport:
    return msgspec.structs.replace(REPORT, results=(one,))


NOT_READY = Answer(state=Readiness.NOT_READY, reasons=(LIBRARY,))
UNKNOWN = Answer(state=Readiness.UNKNOWN)


def test_a_promise_that_is_broken_is_ours() -> None:
    assert differing(REPORT, {"xformers": READY}) == [
        ("xformers", "inference", True),
        ("xformers", "training", True),
    ]
    assert differing(REPORT, {"xformers": NOT_READY, "native": READY, "flash": NOT_READY}) == []


def test_what_was_denied_and_works_is_ours() -> None:
    assert differing(REPORT, {"native": NOT_READY})[0] == ("native", "inference", False)
    assert differing(REPORT, {"native": UNKNOWN, "xformers": UNKNOWN}) == []


def test_a_missing_gradient_breaks_the_promise_of_training_only() -> None:
    assert differing(REPORT, {"sage": READY}) == [("sage", "training", True)]


def test_the_library_alone_does_not_contradict_the_framework() -> None:
    one = only(result("sage", good(1.0), good(1.0), "direct"))
    refused = Answer(state=Readiness.NOT_READY, reasons=(FRAMEWORK,))
    assert differing(one, {"sage": refused}) == []
    assert differing(one, {"sage": NOT_READY}) != []
    absent = only(result("sage", ABSENT, ABSENT, "direct"))
    assert differing(absent, {"sage": NOT_READY}) == []
    assert differing(absent, {"sage": READY}) != []
    hub = msgspec.structs.replace(ABSENT, sentence="kernels and diffusers not installed")
    assert differing(only(result("sage", hub, hub, "direct")), {"sage": READY}) == []


def test_another_device_contradicts_nothing() -> None:
    found = msgspec.structs.replace(REPORT, device=Device(device="cpu"))
    assert disagreements(found, static({"xformers": READY})) == ()
    assert disagreements(found, static({"xformers": READY}, "cpu")) != ()


@pytest.mark.parametrize(
    ("inference", "training", "names", "code"),
    [
        (good(1.0), good(1.0), (), 0),
        (FAILED, FAILED, (), 0),
        (FAILED, FAILED, ("sage",), 1),
        (good(1.0), CRASHED, ("sage",), 0),
        (CRASHED, CRASHED, (), 1),
        (ABSENT, ABSENT, (), 0),
        (ABSENT, ABSENT, ("sage",), 1),
    ],
)
def test_exit_codes(
    inference: PhaseResult, training: PhaseResult, names: tuple[str, ...], code: int
) -> None:
    assert exit_code(only(result("sage", inference, training)), (), names) == code


def test_text() -> None:
    written = text(REPORT, FACTS, Terminal(width=100), top=False)
    lines = [line.rstrip() for line in written.splitlines()]
    assert "torch 2.11.0+cu130 on NVIDIA H200 (cuda:0), 136.7 GiB of 140.4 GiB free" in lines
    assert "imported: triton 3.6.0" in lines
    assert "✗ xformers.ops: ImportError: no" in lines
    start = lines.index(
        "Inference (forward)  batch×heads×tokens×head size 1×24×4608×128, bfloat16, Flux.1"
    )
    assert lines[start + 1 : start + 9] == [
        "  backend          verdict       max diff      time  TFLOP/s     memory  ratio",
        "✓ sage (library)   verified       2.3e-03    200 µs     1305     55 MiB   1.00",
        "✓ native           verified       2.3e-03    410 µs      637     55 MiB   2.05",
        "✓ _flash_3         verified       2.3e-03    500 µs      522     55 MiB   2.50",
        "✓ sage             verified       2.3e-03    540 µs      483     55 MiB   2.70",
        "✓ flex (compiled)  verified       2.3e-03    600 µs      435     55 MiB   3.00",
        "! flex             slow           2.3e-03   15.6 ms       17     55 MiB  78.00",
        f"✗ xformers         failed       {FAILED.sentence}",
    ]
    assert "· flash_attn not installed: flash" in lines
    assert "✗ sage in training, sage (library) in training: wrong" in lines
    cause = lines.index("✗ xformers: failed") + 2
    assert lines[cause].startswith("  cause  xformers was built for another CUDA [xformers/built-")
    assert any("pip install x" in line for line in lines)
    assert lines[-1] == ("7 backends in 41 s: 5 verified, 1 slow, 1 failed · fastest: native")
    assert max(map(len, lines)) <= 110


@pytest.mark.parametrize("width", [60, 70, 80, 100])
def test_the_table_is_no_wider_than_the_terminal(width: int) -> None:
    lines = text(REPORT, FACTS, Terminal(width=width), top=False).splitlines()
    rows = [line for line in lines if line.startswith(("  backend", "✓ ", "! ", "✗ xformers  "))]
    assert len(rows) >= 13
    assert max(map(len, rows)) <= width
    head = next(line for line in rows if line.startswith("  backend"))
    assert head.split()[:5] == ["backend", "verdict", "max", "diff", "time"]
    assert ("TFLOP/s" in head) == (width >= 80)


def test_one_cause_is_shown_once() -> None:
    names = [f"sage_{number}" for number in range(40)]
    many = tuple(result(name, FAILED, FAILED) for name in names)
    report = msgspec.structs.replace(REPORT, results=many)
    written = text(report, FACTS, Terminal(width=100), top=False)
    assert written.count("see below") == 80
    assert " ".join(written.split()).count(FAILED.sentence) == 1


def test_text_of_our_own_mistake() -> None:
    written = text(REPORT, FACTS, Terminal(), disagreements(REPORT, static({"xformers": READY})))
    assert "✗ attn-doctor was wrong about xformers (inference)" in written
    assert "This is a bug in attn-doctor." in written


def test_json() -> None:
    differing = disagreements(REPORT, static({"xformers": READY}))
    data = std_json.loads(json(REPORT, differing, 1))
    assert (data["schema"], data["exit_code"]) == (1, 1)
    live = data["live"]
    assert live["fastest"] == "native"
    assert live["results"][0]["verdict"] == "verified"
    assert live["results"][0]["outcomes"]["inference"]["figures"][1]["shape"]["length"] == 4608
    assert [one["phase"] for one in live["disagreements"]] == ["inference", "training"]


def hidden(words: str) -> str:
    return words.replace("/home/ada", "/home/user").replace("/srv", "/home/user")


def test_markdown_with_a_report_that_names_no_user() -> None:
    differing: tuple[Disagreement, ...] = disagreements(REPORT, static({"xformers": READY}))
    written = markdown(REPORT, FACTS, differing, hidden)
    assert "| `native` | verified | 2.3e-03 | 410 µs | 637 | 55 MiB | 2.05 |" in written
    assert "### `xformers` for inference: the facts and the run differ" in written
    assert "- from the facts: ready" in written
    assert "- by running: failed: RuntimeError in the forward pass" in written
    assert "/home/user/x.py" in written
    assert '"version": "0.0.35"' in written
    assert "/srv" not in written
    assert "ada" not in written.replace("adapt", "")


def test_it_is_added_to_the_json_of_a_check() -> None:
    from attn_doctor.cli.backends.live import Options, Ran, added
    from attn_doctor.findings import Diagnosis
    from attn_doctor.render.json_text import result as written

    diagnosis = Diagnosis(facts=FACTS, findings=(), rules=0)
    found = Ran(report=REPORT, differing=(), code=0)
    data = std_json.loads(added(written(problems=[]), found, diagnosis, Options(format="json")))
    assert data["problems"] == []
    assert data["live"]["torch"] == REPORT.torch
