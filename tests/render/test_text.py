"""What a person sees, word for word."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

import attn_doctor
from attn_doctor.findings import Diagnosis, Severity, Verdict
from attn_doctor.render.findings.text import text
from attn_doctor.render.grouping import exit_code, tally
from attn_doctor.render.terminal import Terminal, clean
from tests.render.sample import DIAGNOSIS, FACTS, HEALTHY, NOTE, OLD_DRIVER, UNKNOWN

EXPECTED = """\
attn-doctor 0.1.0  /srv/venv/bin/python (Python 3.12.3 · virtual environment · VIRTUAL_ENV is set)
✗ 1 error, 1 warning, 1 note  (42 rules for machines, 0.12 s)

machine   Debian GNU/Linux 12 (bookworm), docker container, x86_64, 16 CPUs, 128 GiB of memory
          GPUs 0, 1: NVIDIA H100, sm_90, 80 GiB (1.0 GiB to 78 GiB free)
          NVIDIA driver 550.54.14
toolkit   no CUDA toolkit (FlexAttention needs none; building extensions does)
          gcc 12.2.0, no C++ compiler, no ninja, Python.h
torch     torch 2.11.0+cu130, built for CUDA 13.0; triton 3.6.0
          CUDA: driver up to 12.4 · torch 13.0 · nvcc none
          (the newest version that the driver runs, the version that torch contains, and the version
          that extensions are built with)
packages  xformers 0.0.35

✗ Driver 550.54.14 cannot run a torch built for CUDA 13.0  [driver/too-old-for-torch]
  CUDA 13 needs driver 580 or newer. Until then torch finds no GPU.
  seen   driver.version is 550.54.14, wanted ≥ 580.65.06
  fix    Install a torch that this driver can run (needs 3 GB of download)
           /srv/venv/bin/python -m pip install torch==2.11.0 --index-url https://example.org/cu126
  or     Upgrade the driver
         Ask the administrator.
  also   explains xformers/cuda-major

! Little memory is free (GPU 0, GPU 1)  [gpu/memory-low]
  Other processes hold it.
  fix    Unset it
           unset CUDA_HOME
           export CC='/usr/bin/gcc 12'

i There is no nvcc, and FlexAttention needs none  [toolkit/none]

? 1 rule could not be checked
  the cache probe did not answer within 4 s: caches/network

Next: /srv/venv/bin/python -m pip install torch==2.11.0 --index-url https://example.org/cu126
"""


def test_the_whole_report() -> None:
    assert text(DIAGNOSIS, Terminal()) == EXPECTED


def test_a_healthy_machine_is_short_and_says_what_next() -> None:
    lines = text(HEALTHY, Terminal(), quiet=True).splitlines()
    assert lines[0] == "✓ no problems  (42 rules for machines, 0.10 s)"
    assert lines[1:-1] == [""]
    assert lines[-1].startswith("Next: nothing to repair.")


def test_no_finding_without_facts_is_not_healthy() -> None:
    blind = Diagnosis(facts=HEALTHY.facts, findings=(UNKNOWN,), rules=1, seconds=0.1)
    lines = text(blind, Terminal(), quiet=True).splitlines()
    assert (
        lines[0]
        == "? no problems, but many rules could not be checked  (1 rule for machines, 0.10 s)"
    )
    assert "nothing to repair" not in lines[-1]
    most = Diagnosis(facts=HEALTHY.facts, findings=(UNKNOWN,), rules=42, seconds=0.1)
    assert "✓ no problems  (42 rules" in text(most, Terminal(), quiet=True)


def test_quiet_leaves_out_the_machine_and_notes() -> None:
    shown = text(DIAGNOSIS, Terminal(), quiet=True)
    assert shown.startswith(
        "✗ 1 error, 1 warning, 1 note  (42 rules for machines, 0.12 s)\n\n✗ Driver"
    )
    assert NOTE.title not in shown


def test_quiet_keeps_what_is_simulated_and_the_required_backends() -> None:
    ready = replace(OLD_DRIVER, rule="required/native", title="native is ready", verdict=Verdict.OK)
    facts = replace(HEALTHY.facts, simulated=("NVIDIA H100", "torch 2.9.1"))
    shown = text(replace(HEALTHY, facts=facts, findings=(ready,)), Terminal(), quiet=True)
    assert "✓ native is ready, as required" in shown
    assert "simulated NVIDIA H100, torch 2.9.1" in shown


def test_verbose_adds_evidence_cause_and_context() -> None:
    shown = text(DIAGNOSIS, Terminal(), verbose=True)
    assert "  where  torch.build is cuda\n" in shown
    assert "  cause  driver-too-old\n" in shown
    assert "  source https://example.org/driver\n" in shown
    assert "A sentence that is shown only on demand." in shown


@pytest.mark.parametrize("width", [50, 80, 100])
def test_prose_is_wrapped_and_commands_never_are(width: int) -> None:
    shown = text(DIAGNOSIS, Terminal(width=width))
    commands = [line.strip() for line in shown.splitlines() if line.startswith(" " * 11)]
    assert (
        "/srv/venv/bin/python -m pip install torch==2.11.0 --index-url https://example.org/cu126"
        in commands
    )
    prose = [
        line
        for line in shown.splitlines()
        if not line.startswith((" " * 11, "Next: ")) and "[" not in line and " " in line.strip()
    ]
    assert max(map(len, prose)) <= width


@pytest.mark.parametrize("width", [30, 60, 100])
def test_a_command_in_a_sentence_stays_on_one_line(width: int) -> None:
    command = "`attn-doctor cache clear --stale --cache-dir /opt/kernels`"
    lines = Terminal(width=width).wrap(f"Next: {command} removes the broken files.", 2)
    assert sum(command in line for line in lines) == 1
    assert " ".join(line.strip() for line in lines) == f"Next: {command} removes the broken files."


def test_a_terminal_without_unicode_gets_ascii() -> None:
    shown = text(DIAGNOSIS, Terminal(unicode=False))
    assert shown.isascii()
    assert "x Driver" in shown
    assert ">= 580.65.06" in shown


def test_colour_adds_nothing_but_colour() -> None:
    coloured = text(DIAGNOSIS, Terminal(colour=True))
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == EXPECTED


def test_states_of_backends_have_colours() -> None:
    facts = Path(__file__).parents[1] / "machines" / "debian-torch-2.13-cpu" / "facts.json"
    found = attn_doctor.check(facts=facts)
    shown = found.page(Terminal(colour=True))
    assert "\x1b[32mready\x1b[0m: " in shown
    assert "\x1b[33mslow\x1b[0m: " in shown
    assert "\x1b[31mnot ready\x1b[0m: " in shown
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == found.page(Terminal())


def test_what_the_machine_says_cannot_write_to_the_terminal() -> None:
    evil = replace(OLD_DRIVER, title="bad \x1b[2Jname\x07\rhidden", why="w\x9b31m")
    shown = text(Diagnosis(facts=FACTS, findings=(evil,), rules=1), Terminal(), quiet=True)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown)
    assert "bad name� hidden" in shown


@pytest.mark.parametrize(
    ("environ", "colour"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colour_follows_the_usual_variables(environ: dict[str, str], colour: bool) -> None:
    class ScreenStream(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    assert Terminal.of(ScreenStream(), environ).colour is colour
    assert Terminal.of(io.StringIO(), {"COLUMNS": "60"}) == Terminal(
        width=60, colour=False, unicode=False
    )


def test_clean_keeps_letters() -> None:
    assert clean("a\nb\tc é \x1b[1mbold\x1b[0m\x00") == "a b c é bold�"


def test_a_warning_that_explains_an_error_is_one() -> None:
    """What is shown and the exit code agree."""
    cause = replace(NOTE, severity=Severity.WARNING)
    error = replace(OLD_DRIVER, rule="torch/extension-library-missing", caused_by=cause.rule)
    both = Diagnosis(facts=FACTS, findings=(cause, error), rules=2)
    assert exit_code(both, Severity.ERROR, strict=False) == 1
    assert tally(both) == "1 error"
    alone = Diagnosis(facts=FACTS, findings=(cause,), rules=2)
    assert exit_code(alone, Severity.ERROR, strict=False) == 0
    assert tally(alone) == "1 warning"
