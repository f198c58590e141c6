"""The log of `-vv` and ATTN_DOCTOR_LOG: what it shows, and that there is none without them."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from attn_doctor import log
from tests.command import process


def test_no_log_unless_asked_for() -> None:
    done = process("check", "-v", "--python", sys.executable, ATTN_DOCTOR_LOG="")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "level"),
    [(["-vv"], ""), pytest.param([], "debug", marks=pytest.mark.thorough)],
    ids=str,
)
def test_the_log_shows_each_probe_and_each_program(arguments: list[str], level: str) -> None:
    done = process("check", *arguments, "--python", sys.executable, ATTN_DOCTOR_LOG=level)
    assert " ms  attn_doctor.probes.running: probe NVIDIA took " in done.stderr
    assert " ms  attn_doctor.host.local: run " in done.stderr


def test_the_log_names_the_unknown_fact_of_an_undecided_rule(tmp_path: Path) -> None:
    snapshot = tmp_path / "facts.json"
    snapshot.write_text('{"schema": 1, "torch": {"installed": true}}')
    done = process("check", "--facts", str(snapshot), ATTN_DOCTOR_LOG="debug")
    assert "torch.version is unknown: " in done.stderr


def test_level_info_leaves_the_details_out() -> None:
    done = process("check", "--python", sys.executable, ATTN_DOCTOR_LOG="info")
    assert "probe" not in done.stderr


@pytest.mark.posix
def test_an_unknown_level_is_wrong_usage() -> None:
    done = process("check", ATTN_DOCTOR_LOG="loud")
    assert done.returncode == 2
    assert done.stderr == "attn-doctor: ATTN_DOCTOR_LOG=loud: not a level; use debug or info\n"


def test_a_message_stays_one_line() -> None:
    name, text = "attn_doctor.x", "a\n::error::%s"
    try:
        raise ValueError("c\nQ")
    except ValueError:
        fault = sys.exc_info()
    record = logging.LogRecord(name, 10, "x.py", 1, text, ("\x1b[31mb",), fault)
    first, *rest = log._Formatter("%(message)s").format(record).splitlines()
    assert first == "a ::error::b"
    assert [line for line in rest if not line.startswith("    | ")] == []
