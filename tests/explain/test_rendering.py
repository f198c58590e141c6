"""Explanations as people and programs see them."""

from __future__ import annotations

import json as parser

from msgspec.structs import replace

from attn_doctor.explain.explanation import Confirmation, Explanation, Log, LogFact, RankedCause
from attn_doctor.facts import Facts, Python, System
from attn_doctor.findings import Fix, Safety
from attn_doctor.render.explanation.json import json
from attn_doctor.render.explanation.markdown import markdown
from attn_doctor.render.explanation.text import confidence_in_words, text
from attn_doctor.render.terminal import Terminal

MATCH = RankedCause(
    rule="torch/cpu-build",
    cause="torch-cpu-only",
    confidence=0.91,
    file="train.log",
    line=1234,
    excerpt="AssertionError: Torch not compiled with CUDA enabled",
    rank="3",
    times=8,
    severity="error",
    title="torch 2.6.0+cpu is a CPU build, but this machine has an NVIDIA GPU",
    why="It holds no CUDA code.",
    confirmation=Confirmation.BY_MACHINE,
    fixes=(
        Fix(
            title="Install the CUDA build",
            safety=Safety.ASK,
            run=(("pip", "install", "torch", "--index-url", "https://x/cu124"),),
            needs="a download of some 3 GB",
        ),
        Fix(title="Or look closer", safety=Safety.MANUAL, manual="Ask `attn-doctor check`."),
    ),
    evidence=("https://github.com/pytorch/pytorch/issues/1",),
    also=("xformers/needs-cuda-torch",),
)
SECOND = replace(
    MATCH, rule="flash/head", cause="head-dim-unsupported", confidence=0.4, line=7, rank="",
    title="The head dimension is not supported", confirmation=Confirmation.NO,
    reason="torch.build is cpu", times=1, also=(),
)  # fmt: skip
FOUND = Explanation(
    matches=(MATCH, SECOND),
    logs=(Log("train.log", 99_000, 12_000_000),),
    log_facts=(LogFact("torch.version", "2.6.0+cpu"), LogFact("system.os", "windows", "linux", 12)),
    facts=Facts(system=System(os="linux"), python=Python(path="/v/bin/python", pip="25.0")),
    probed=True,
    rules=185,
    seconds=1.25,
)
NOTHING = replace(FOUND, matches=())
PAPER = Terminal(width=90)


def test_the_name_of_a_process_needs_no_word_before_it() -> None:
    found = replace(FOUND, matches=(replace(MATCH, rank="Worker pid=7"),))
    assert text(found, PAPER).startswith("train.log, line 1234, Worker pid=7, seen 8 times:")


def test_text() -> None:
    lines = text(FOUND, PAPER).splitlines()
    assert lines[0] == "train.log, line 1234, rank 3, seen 8 times:"
    assert lines[1] == "  AssertionError: Torch not compiled with CUDA enabled"
    whole = "\n".join(lines)
    for part in (
        "✗ torch 2.6.0+cpu is a CPU build",
        "  check  confirmed by this machine",
        "  fix    Install the CUDA build (needs a download of some 3 GB)",
        "           /v/bin/python -m pip install torch --index-url https://x/cu124",
        "  or     Or look closer",
        "torch-cpu-only, the log names it  [torch/cpu-build, xformers/needs-cuda-torch]",
        "Also in the log, less likely the root cause:",
        "  - train.log, line 7: The head dimension is not supported [flash/head; not confirmed:",
        "another environment: operating system Windows in the log, Linux",
        "99000 lines read, 185 rules for logs, 1.25 s",
        "Next: apply the first fix above",
    ):
        assert part in whole
    assert "https://github.com/pytorch" not in whole
    assert max(len(line) for line in lines) <= 90


def test_verbose_text_adds_evidence_and_the_facts_of_the_log() -> None:
    whole = text(FOUND, PAPER, verbose=True)
    assert "https://github.com/pytorch/pytorch/issues/1" in whole
    assert "Facts in the log: torch 2.6.0+cpu, operating system Windows (line 12)." in whole


def test_text_without_a_cause() -> None:
    whole = text(NOTHING, PAPER)
    assert whole.startswith("No attention-kernel cause in this log.\n")
    assert "attn-doctor check" in whole
    two = replace(NOTHING, logs=(*NOTHING.logs, Log("b.log", 1, 1)))
    assert text(two, PAPER).startswith("No attention-kernel cause in these logs.")


def test_text_of_a_log_alone_names_the_next_step() -> None:
    alone = replace(
        FOUND, matches=(replace(MATCH, confirmation=Confirmation.NOT_CHECKED),), probed=False
    )
    whole = text(alone, PAPER)
    assert "not checked: only the log was read" in whole
    assert "without --no-probe" in whole
    elsewhere = text(replace(alone, probed=True), PAPER)
    assert "not checked: the log comes from another environment" in elsewhere
    assert "without --no-probe" not in elsewhere


def test_a_log_cannot_write_to_the_terminal() -> None:
    evil = replace(MATCH, excerpt="a\x1b[2Jb", title="t\x07", file="x\x1b[1m.log", rank="\x1b7")
    whole = text(replace(FOUND, matches=(evil,)), PAPER)
    assert "\x1b" not in whole
    assert "\x07" not in whole


def test_plain_terminal() -> None:
    assert text(FOUND, Terminal(width=90, unicode=False)).isascii()


def test_json() -> None:
    data = parser.loads(json(FOUND, 1))
    assert data["schema"] == 1
    assert data["exit_code"] == 1
    first = data["matches"][0]
    assert list(first) == [
        "rule", "cause", "confidence", "line", "file", "excerpt", "verdict", "reason",
        "title", "why", "fixes",
    ]  # fmt: skip
    assert (first["line"], first["cause"], first["confidence"]) == (1234, "torch-cpu-only", 0.91)
    assert first["fixes"][0]["commands"] == [
        "/v/bin/python -m pip install torch --index-url https://x/cu124"
    ]
    assert data["logs"] == [
        {"file": "train.log", "lines": 99_000, "bytes": 12_000_000, "skipped": 0}
    ]
    assert data["log_facts"][1] == {
        "fact": "system.os", "value": "windows", "this_machine": "linux", "line": 12,
    }  # fmt: skip
    assert parser.loads(json(NOTHING, 0))["matches"] == []


def test_markdown() -> None:
    whole = markdown(FOUND)
    for part in (
        "**torch 2.6.0+cpu is a CPU build, but this machine has an NVIDIA GPU**",
        "train.log, line 1234:",
        "```\nAssertionError: Torch not compiled with CUDA enabled\n```",
        "- confirmed by this machine",
        "```sh\n/v/bin/python -m pip install torch --index-url https://x/cu124\n```",
        "- also line 7: The head dimension is not supported",
        "Facts in the log: torch 2.6.0+cpu, operating system Windows",
    ):
        assert part in whole


def test_a_log_cannot_write_markup() -> None:
    evil = replace(MATCH, excerpt="```\n# x", title="<b>*t*</b>")
    whole = markdown(replace(FOUND, matches=(evil,)))
    assert "````\n" in whole
    assert "<b>" not in whole


def test_markdown_without_a_cause() -> None:
    assert "No attention-kernel cause" in markdown(NOTHING)


def test_confidence_in_words() -> None:
    assert [confidence_in_words(value) for value in (0.8, 0.79, 0.5, 0.49)] == [
        "the log names it", "likely", "likely", "possible",
    ]  # fmt: skip
