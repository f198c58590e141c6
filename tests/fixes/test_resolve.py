"""What an installer reports is foreign text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attn_doctor.facts import Facts
from attn_doctor.findings import Safety
from attn_doctor.fixes.distributions import Change, Installed
from attn_doctor.fixes.installers import Outcome, failure
from attn_doctor.fixes.pip_arguments import pip_call
from attn_doctor.fixes.resolve import (
    Asking,
    _after,
    _from_pip,
    _from_uv,
    _new,
    _Report,
    _with_versions,
)
from attn_doctor.fixes.steps import Step
from attn_doctor.json_files import JsonError, decode
from attn_doctor.render.fix.text import _ordered


def test_the_report_of_pip() -> None:
    report = {"version": "1", "install": [{"metadata": {"name": "A_b", "version": "2", "x": 1}}]}
    found = _from_pip(decode(json.dumps(report), _Report), {"a-b": Installed("1", "")})
    assert found == [Change("a-b", "1", "2")]


@pytest.mark.parametrize(
    "report",
    ["[]", "{}", '{"install": 1}', '{"install": [1]}', '{"install": [{"metadata": {"name": 1}}]}'],
)
def test_an_odd_report_is_refused(report: str) -> None:
    with pytest.raises(JsonError):
        decode(report, _Report)


def test_a_step_is_asked_about_as_after_the_earlier_ones() -> None:
    there = {"torch": Installed("2.8.0", "x"), "triton": Installed("3.4.0", "x")}
    asking = Asking(Facts(), there, {}, Path())
    index = "https://pytorch.example/cu130"
    first = Step(
        rules=(),
        title="",
        kind="install",
        safety=Safety.ASK,
        fixes=(),
        run=(("pip", "install", "torch==2.10.0", "--index-url", index),),
        packages=("torch",),
        undoable=True,
        changes=(Change("torch", "2.8.0", "2.10.0"), Change("triton", "3.4.0", "")),
    )
    later = _after(asking, [first])
    assert {name: one.version for name, one in later.there.items()} == {"torch": "2.10.0"}
    assert later.indexes == (("--extra-index-url", index),)
    printed = [Change("torch", "2.8.0", "2.10.0"), Change("xformers", "", "0.0.35")]
    assert _new(printed, later) == (Change("xformers", "", "0.0.35"),)


def test_the_version_of_a_wheel_at_an_address() -> None:
    call = pip_call(("pip", "install", "flash-attn @ https://x/flash_attn-2.8.3%2Bcu12-a-b-c.whl"))
    assert call is not None
    printed = _from_uv(" + einops==0.8.2\n + flash-attn @ https://x/y.whl\n")
    assert _with_versions(printed, call) == [
        Change("einops", "", "0.8.2"),
        Change("flash-attn", "", "2.8.3+cu12"),
    ]


def test_the_cause_of_an_error_of_uv() -> None:
    lines = ("error: Failed to download `x`", "  cause: Request failed", "  cause: status 501")
    assert failure(Outcome(code=1, lines=lines)) == "status 501"


def test_what_a_step_names_is_listed_before_what_comes_with_it() -> None:
    changes = [Change("filelock", "", "4"), Change("torch", "", "2"), Change("numpy", "1", "2")]
    shown = [one.name for one in _ordered(changes, ("torch",))]
    assert shown == ["numpy", "torch", "filelock"]
