"""A release with a known silent fault is not chosen, and an installed one that stays is named."""

from __future__ import annotations

import pytest

from attn_doctor.findings import Fix, Safety
from attn_doctor.fixes.postconditions import with_build
from attn_doctor.install.choice import Choice, choose
from attn_doctor.install.demand import Demand, words_of
from attn_doctor.install.known_faults import known_faults
from attn_doctor.install.offered import possible_here
from attn_doctor.install.packages import Rules
from attn_doctor.rulebook import library
from tests.install.machines import machine

HOPPER, ADA = ("gpu=h100", "driver=580"), ("gpu=rtx4090", "driver=580")


@pytest.mark.parametrize(
    ("words", "training", "pretended", "torch", "expected"),
    [
        ("native", True, HOPPER, "2.11.0", ["ATTN-2026-0001"]),
        ("torch", True, HOPPER, "2.14.1", ["ATTN-2026-0001"]),
        ("diffusers", True, HOPPER, "2.13.0", ["ATTN-2026-0001"]),
        ("native", True, HOPPER, "2.15.0", []),
        ("native", True, HOPPER, "2.10.0", []),
        ("native", True, ADA, "2.11.0", []),
        ("native", False, HOPPER, "2.11.0", []),
        ("flash", True, HOPPER, "2.11.0", []),
    ],
)
def test_which_faults_a_set_has(
    words: str, training: bool, pretended: tuple[str, ...], torch: str, expected: list[str]
) -> None:
    demand = Demand(words=words_of(words.split()), training=training)
    ahead = with_build(machine(*pretended), f"{torch}+cu130", "13.0")
    found = [one.rule.partition("/")[2] for one in known_faults(demand, ahead)]
    assert found == expected


def test_a_release_without_the_fault_is_chosen() -> None:
    indexes = ("", "+cpu", "+cu126", "+cu128", "+cu129", "+cu130", "+cu132", "+cu134")
    newest = frozenset(f"2.15.0{index}" for index in indexes)
    for training, cuda in ((False, "13.0"), (True, "12.6")):  # with cuDNN 9.24 and 9.10
        demand = Demand(words=("native",), training=training)
        found = choose(demand, machine(*HOPPER), library.tables(), Rules(absent=newest))
        assert isinstance(found, Choice)
        assert (found.torch.version, found.torch.cuda) == ("2.14.1", cuda)
        assert found.notes == ()


def test_an_installed_release_stays_and_is_named() -> None:
    facts = machine(*HOPPER, "torch=2.11.0+cu130")
    found = choose(Demand(words=("native",), training=True), facts, library.tables())
    assert isinstance(found, Choice)
    assert found.torch.installed
    (note,) = found.notes
    assert "NaN in the gradient" in note
    assert "ATTN-2026-0001" in note


@pytest.mark.parametrize(
    ("pretended", "command", "named"),
    [
        (HOPPER, "torch==2.11.* --index-url https://download.pytorch.org/whl/cu130", "2.11.0"),
        (HOPPER, "torch==2.13.0+cu130 torchvision --extra-index-url https://x/whl/cu130", "2.13.0"),
        (HOPPER, "torch==2.10.* --index-url https://download.pytorch.org/whl/cu130", ""),
        (HOPPER, "torch torchvision --index-url https://download.pytorch.org/whl/cu130", ""),
        (HOPPER, "torch==2.11.* --index-url https://download.pytorch.org/whl/cpu", ""),
        (ADA, "torch==2.11.* --index-url https://download.pytorch.org/whl/cu130", ""),
        (HOPPER, "diffusers", ""),
    ],
)
def test_a_fix_names_the_fault_of_its_torch(
    pretended: tuple[str, ...], command: str, named: str
) -> None:
    fix = Fix(title="Install it", safety=Safety.ASK, run=(("pip", "install", *command.split()),))
    title = possible_here(fix, machine(*pretended)).title
    fault = f"; torch {named} for CUDA 13.0 has a known fault in training (ATTN-2026-0001)"
    assert title == (f"Install it{fault}" if named else "Install it")
