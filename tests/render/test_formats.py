"""The formats for programs and for issues, and what they all share."""

from __future__ import annotations

import json as stdlib

import pytest
from msgspec.structs import replace

from attn_doctor.facts import Driver, Facts, PciDevice
from attn_doctor.findings import Because, Diagnosis, Finding, Severity, Verdict
from attn_doctor.render.findings.json import json
from attn_doctor.render.findings.markdown import markdown
from attn_doctor.render.findings.summary import blocks
from attn_doctor.render.findings.text import text
from attn_doctor.render.grouping import counts, exit_code, problems, unchecked
from attn_doctor.render.terminal import Terminal
from tests.render.sample import CONSEQUENCE, DIAGNOSIS, FACTS, HEALTHY, NOTE, OLD_DRIVER, UNKNOWN


def test_json_holds_problems_with_ready_commands_and_all_facts() -> None:
    data = stdlib.loads(json(DIAGNOSIS, 1))
    assert data["schema"] == 1
    assert data["exit_code"] == 1
    assert data["summary"] == {
        "rules": 42, "errors": 1, "warnings": 1, "notes": 1, "suppressed": 0, "unchecked": 1,
        "seconds": 0.123,
    }  # fmt: skip
    first = data["problems"][0]
    assert first["rule"] == "driver/too-old-for-torch"
    assert first["because"][0]["wanted"] == "≥ 580.65.06"
    assert first["fixes"][0]["commands"] == [
        "/srv/venv/bin/python -m pip install torch==2.11.0 --index-url https://example.org/cu126"
    ]
    assert data["problems"][1]["caused_by"] == "driver/too-old-for-torch"
    assert data["unchecked"] == [
        {"reason": "the cache probe did not answer within 4 s", "rules": ["caches/network"]}
    ]
    assert data["facts"]["gpus"][1]["memory_free_mib"] == 1024


def test_suppressed_problems_are_listed_apart() -> None:
    suppressed = _only(replace(OLD_DRIVER, suppressed="until the new image"))
    assert counts(suppressed) == (0, 0, 0)
    assert exit_code(suppressed, Severity.INFO, strict=True) == 0
    data = stdlib.loads(json(suppressed, 0))
    assert data["problems"] == []
    assert data["suppressed"][0]["suppressed"] == "until the new image"
    assert "- `driver/too-old-for-torch`: until the new image" in markdown(suppressed)
    assert "1 known problem not counted: driver/too-old-for-torch\n" in text(suppressed, Terminal())
    assert "driver/too-old-for-torch: until the new image" in text(
        suppressed, Terminal(), verbose=True
    )


def test_markdown_shows_each_root_problem_once() -> None:
    shown = markdown(DIAGNOSIS)
    assert shown.startswith("### attn-doctor 0.1.0: 1 error, 1 warning, 1 note\n")
    assert shown.count("#### ") == 4
    assert "| `driver.version` | 550.54.14 | ≥ 580.65.06 |" in shown
    assert "Explains: `xformers/cuda-major`" in shown
    assert "No problems found by 42 rules for machines." in markdown(HEALTHY)


def test_markdown_from_the_machine_is_text_not_markup() -> None:
    evil = replace(OLD_DRIVER, title="<script>|a|`b`*c*", why="[x](http://y)")
    shown = markdown(Diagnosis(facts=FACTS, findings=(evil,), rules=1))
    assert "<script>" not in shown
    assert r"\<script\>\|a\|`b`\*c\*" in shown
    assert r"\[x\](http://y)" in shown


def test_code_that_a_rule_names_is_code_in_markdown() -> None:
    named = replace(OLD_DRIVER, title="Use `--python`", why="`a_b(c=1)`, not `<b>` or `*x`")
    shown = markdown(Diagnosis(facts=FACTS, findings=(named,), rules=1))
    assert "Use `--python`" in shown
    assert r"`a_b(c=1)`, not \`\<b\>\` or \`\*x\`" in shown


def test_one_rule_on_several_gpus_is_one_problem() -> None:
    shown = problems(DIAGNOSIS)
    assert [problem.finding.rule for problem in shown] == [
        "driver/too-old-for-torch", "gpu/memory-low", "toolkit/none",
    ]  # fmt: skip
    assert shown[0].consequences == ("xformers/cuda-major",)
    assert shown[1].subjects == "GPU 0, GPU 1"
    assert counts(DIAGNOSIS) == (1, 1, 1)


def test_many_subjects_are_counted_not_listed() -> None:
    many = tuple(replace(OLD_DRIVER, subject=f"GPU {number}") for number in range(8))
    (shown,) = problems(_only(*many))
    assert shown.subjects == "GPU 0 and 7 more"


def test_a_state_is_not_said_twice() -> None:
    because = (Because(fact="driver.state", seen="gpu-lost", wanted="not gpu-lost", truth=True),)
    shown = text(_only(replace(OLD_DRIVER, because=because)), Terminal())
    assert "seen   driver.state is gpu-lost\n" in shown


def test_an_unknown_that_a_problem_explains_is_not_listed() -> None:
    explained = replace(UNKNOWN, caused_by="driver/too-old-for-torch")
    assert unchecked(Diagnosis(facts=FACTS, findings=(OLD_DRIVER, explained), rules=2)) == {}
    assert unchecked(DIAGNOSIS) != {}


def _only(*findings: Finding) -> Diagnosis:
    return Diagnosis(facts=FACTS, findings=findings, rules=1)


@pytest.mark.parametrize(
    ("diagnosis", "fail_on", "strict", "code"),
    [
        (HEALTHY, Severity.ERROR, False, 0),
        (_only(OLD_DRIVER, CONSEQUENCE), Severity.ERROR, False, 1),
        (_only(OLD_DRIVER), None, False, 0),
        (_only(NOTE), Severity.ERROR, False, 0),
        (_only(NOTE), Severity.INFO, False, 1),
        (_only(replace(OLD_DRIVER, severity=Severity.WARNING)), Severity.ERROR, False, 0),
        (_only(replace(OLD_DRIVER, severity=Severity.WARNING)), Severity.WARNING, False, 1),
        (_only(UNKNOWN), Severity.ERROR, False, 0),
        (_only(UNKNOWN), Severity.ERROR, True, 4),
        (_only(OLD_DRIVER, UNKNOWN), Severity.ERROR, True, 1),
        (_only(replace(OLD_DRIVER, verdict=Verdict.OK)), Severity.ERROR, True, 0),
    ],
)
def test_exit_codes(
    diagnosis: Diagnosis, fail_on: Severity | None, strict: bool, code: int
) -> None:
    assert exit_code(diagnosis, fail_on, strict=strict) == code


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        (Driver(state="no-gpu"), "no GPU"),
        (Driver(state="no-driver"), "no NVIDIA driver for GeForce RTX 4090"),
        (Driver(state="container-without-runtime"), "started without access to the GPU"),
        (Driver(state="not-answering"), "does not answer"),
        (Driver(state="error", error="Unknown Error"), "NVIDIA driver error: Unknown Error"),
        (Driver(state="no-gpu", vendor="amd"), "AMD GPU"),
    ],
)
def test_why_there_is_no_gpu(driver: Driver, expected: str) -> None:
    bus = (PciDevice(vendor="nvidia", device_id="2684", name="GeForce RTX 4090"),)
    lines = dict(blocks(Facts(driver=driver, gpus=(), pci=bus)))["machine"]
    assert expected in lines[-1]


def test_what_was_not_read_is_called_unknown() -> None:
    nothing = Facts(gaps={"driver": "the NVIDIA probe failed", "torch": "metadata is unreadable"})
    shown = dict(blocks(nothing))
    assert shown["machine"][-1] == "GPU unknown: the NVIDIA probe failed"
    assert shown["torch"] == ["torch unknown: metadata is unreadable"]
    assert shown["packages"][0].startswith("unknown: flash-attn, ")
