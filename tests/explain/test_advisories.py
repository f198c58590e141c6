"""NaN and black pictures lead to an advisory only where the facts fall under it."""

from __future__ import annotations

import pytest

from attn_doctor.explain.engine import explain
from attn_doctor.explain.explanation import Confirmation
from attn_doctor.facts import Driver, Facts, Torch
from attn_doctor.rulebook import library

NAN = "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 4.9e-05, 'epoch': 0.02}"
BLACK = "nodes.py:1594: RuntimeWarning: invalid value encountered in cast"
HOPPER = "torch 2.11.0+cu130\nGPU: NVIDIA H200\n"


def advisories(log: str, machine: Facts | None = None) -> list[str]:
    found = explain([], library.load(), machine, texts=[log])
    rules = [rule for one in found.matches for rule in (one.rule, *one.also)]
    return [rule.partition("/")[2] for rule in rules if rule.startswith("advisories/")]


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (HOPPER + NAN, ["ATTN-2026-0001"]),
        (HOPPER + "step 12 loss=nan", []),
        (NAN, []),
        (HOPPER.replace("H200", "A100-SXM4-80GB") + NAN, []),
        (HOPPER.replace("2.11.0", "2.10.0") + NAN, []),
        ("sageattention==1.0.6\nUsing sage attention\n" + BLACK, ["ATTN-2026-0013"]),
        ("sageattention==2.2.0\nUsing sage attention\n" + BLACK, []),
        ("sageattention==1.0.6\n" + BLACK, []),
        (BLACK, []),
    ],
)
def test_the_log_says_which(log: str, expected: list[str]) -> None:
    assert advisories(log) == expected


def test_the_machine_says_it_where_the_log_does_not() -> None:
    installed = Torch(installed=True, build="cuda", cuda="13.0", version="2.11.0+cu130")
    machine = Facts(torch=installed, driver=Driver(best_sm=90))
    assert advisories(NAN, machine) == ["ATTN-2026-0001"]
    assert advisories(HOPPER.replace("H200", "A100-SXM4-80GB") + NAN, machine) == []
    (cause,) = explain([], library.load(), machine, texts=[NAN]).matches
    assert cause.confirmation is Confirmation.BY_MACHINE
    assert cause.fixes[0].exports == {"TORCH_CUDNN_SDPA_DEPRIORITIZED": "1"}
    assert cause.fixes[1].code == "torch.backends.cuda.enable_cudnn_sdp(False)"
