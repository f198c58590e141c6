"""The time that a live run says is left."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from attn_doctor.backends.live.outcome import Device
from attn_doctor.backends.live.plan import Attempt, Limits, Workload
from attn_doctor.backends.live.run import Step, _Run, _weight
from attn_doctor.facts import Facts
from attn_doctor.render.progress import progress

if TYPE_CHECKING:
    import pytest


def attempt(name: str, route: str = "direct") -> Attempt:
    return Attempt(name=name, route=route, score_bytes={})


def _title(step: Step) -> str:
    return step.title


def _left(step: Step) -> float | None:
    return step.left


def test_what_a_processor_lacks_ends_at_once() -> None:
    tried = [attempt("native"), attempt("_native_cudnn"), attempt("flex", "compiled")]
    assert [_weight(one, Device(device="cpu")) for one in tried] == [1.0, 0.01, 1.5]
    assert [_weight(one, Device(device="cuda:0")) for one in tried] == [1.0, 1.0, 1.5]


def test_it_is_that_of_what_has_run() -> None:
    steps: list[Step] = []
    running = _Run(Facts(), Workload(), Limits(), "", steps.append, "", ExitStack())
    running._tell("importing")
    running._ran, running._seconds, running._waiting = 1.0, 20.0, 2.5
    running._tell("flex")
    assert [one.left for one in steps] == [None, 50.0]


def test_a_line_says_it_where_it_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(_title, _title, left=_left) as shown:
        shown(Step(done=1, total=4, title="import"))
        shown(Step(done=2, total=4, title="native", left=50.0))
        shown(Step(done=3, total=4, title="sage", left=3.0))
        shown(Step(done=4, total=4, title="flex", left=0.0))
    assert capsys.readouterr().err.splitlines() == [
        "[1/4] import",
        "[2/4] native, about 50 s left",
        "[3/4] sage, a few seconds left",
        "[4/4] flex",
    ]
