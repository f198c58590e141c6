"""The table of toolkits, its reasons and the answers of torch, as text."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from attn_doctor.facts import Facts, Gpu, Program, Torch
from attn_doctor.fixes.cuda_home.advice import Advice, Way
from attn_doctor.fixes.cuda_home.candidate import Candidate, Choice, Report
from attn_doctor.fixes.cuda_home.confirm import Answer
from attn_doctor.fixes.cuda_home.start_files import Change, FileChanges
from attn_doctor.render.fix.cuda_home import as_json, as_text, changes
from attn_doctor.render.terminal import Terminal
from attn_doctor.shell.exports import Exports

CHOSEN = Candidate(
    root="/opt/cuda-13.0", source="/opt", version="13.0", nvcc="13.0.88", lacks=(), matches=True,
    exact=True, verdict="chosen", reasons=("torch's own release",),
)  # fmt: skip
REJECTED = Candidate(
    root="/usr/local\x1b[31m", source="PATH", nvcc="none", lacks=("nvcc", "headers", "cudart"),
    reasons=("it has no nvcc", "its folder is odd"),
)  # fmt: skip
REPORT = Report(
    facts=Facts(
        torch=Torch(installed=True, version="2.11.0+cu130", cuda="13.0"),
        gpus=(Gpu(sm=90), Gpu(sm=90)),
        cxx=Program(path="/usr/bin/g++", version="12.2.0"),
    ),
    choice=Choice(candidates=(CHOSEN, REJECTED), notes=("something is not known",)),
    shell="bash",
    exports=Exports(variables={"CUDA_HOME": "/opt/cuda-13.0"}, path="/opt/cuda-13.0/bin"),
    lines=("export CUDA_HOME=/opt/cuda-13.0;",),
    answers=(
        Answer(name="torch", says="resolves", agrees=True),
        Answer(name="triton", says="uses its own"),
    ),
)
NOTHING = msgspec.structs.replace(
    REPORT,
    choice=Choice(candidates=(REJECTED,)),
    answers=(),
    exports=None,
    lines=(),
    advice=Advice(
        release="12.8", ways=(Way(title="with conda", commands=("conda create",)),), note="no nvcc"
    ),
)
PLAN = FileChanges(
    kind="shell",
    changes=(
        Change(path=Path("/h/.bashrc"), real=Path("/h/dot/bashrc"), before=b"a", after=b"b"),
        Change(path=Path("/h/new"), real=Path("/h/new"), before=None, after=b"b"),
        Change(path=Path("/h/same"), real=Path("/h/same"), before=b"b", after=b"b"),
    ),
    exports=Exports(variables={"CUDA_HOME": "/o"}, path="/o/bin"),
    notes=("a note",),
)


def test_a_choice_as_text() -> None:
    assert as_text(REPORT, Terminal()).splitlines() == [
        "torch 2.11.0+cu130 is built for CUDA 13.0 · GPU sm_90 · /usr/bin/g++ 12.2.0",
        "something is not known",
        "",
        "  toolkit         CUDA     nvcc     header files  library files  torch    verdict",
        "  /opt/cuda-13.0  13.0     13.0.88  yes           yes            same     chosen",
        "  /usr/local      unknown  none     not all       not all        unknown  rejected",
        "",
        "  chosen    /opt/cuda-13.0: torch's own release",
        "  rejected  /usr/local: it has no nvcc; its folder is odd",
        "",
        "  With these lines set:",
        "  ✓ torch: resolves",
        "  · triton: uses its own",
    ]


def test_advice_where_nothing_fits() -> None:
    shown = as_text(NOTHING, Terminal()).splitlines()
    assert shown[-4:] == [
        "  Install CUDA 12.8, without root:",
        "  with conda",
        "    conda create",
        "  (no nvcc.)",
    ]


def test_no_toolkit_is_not_the_same_as_none_listed() -> None:
    nothing = msgspec.structs.replace(NOTHING, choice=Choice(candidates=()))
    late = msgspec.structs.replace(NOTHING.facts, gaps={"toolkits": "the probe was late"})
    for facts, sentence in (
        (
            msgspec.structs.replace(NOTHING.facts, toolkits=()),
            "There is no CUDA toolkit on this machine.",
        ),
        (late, "The toolkits could not be listed: the probe was late."),
    ):
        report = msgspec.structs.replace(nothing, facts=facts)
        assert f"  {sentence}" in as_text(report, Terminal()).splitlines()


def test_plain_terminals_get_plain_text() -> None:
    assert as_text(REPORT, Terminal(unicode=False)).isascii()
    assert "\x1b[32mchosen" in as_text(REPORT, Terminal(colour=True))


@pytest.mark.posix
def test_changes_are_listed_with_what_they_set() -> None:
    assert changes(PLAN, Terminal()).splitlines() == [
        "  changed   /h/dot/bashrc (the target of /h/.bashrc)",
        "  new       /h/new",
        "  unchanged /h/same",
        "  sets CUDA_HOME=/o",
        "  sets /o/bin first on PATH",
        "  a note",
    ]


@pytest.mark.posix
def test_json() -> None:
    found = json.loads(as_json(REPORT, PLAN, written=True, undo="x"))
    assert found["chosen"]["root"] == "/opt/cuda-13.0"
    assert found["exports"] == {"CUDA_HOME": "/opt/cuda-13.0"}
    assert found["path"] == "/opt/cuda-13.0/bin"
    assert found["files"][0] == {"path": "/h/dot/bashrc", "changes": True}
    assert found["written"] is True
    nothing = json.loads(as_json(NOTHING, None, written=False, undo=""))
    assert nothing["chosen"] is None
    assert nothing["exports"] == {}
    assert nothing["advice"]["release"] == "12.8"
    assert nothing["files"] == []
