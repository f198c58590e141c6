"""Which GPUs run which code."""

from __future__ import annotations

import pytest

from attn_doctor.binaries.architectures import APART, compiles, cuda_of, number, order, runs


@pytest.mark.parametrize(
    ("sm", "code", "does"),
    [
        (80, "80", True),
        (86, "80", True),
        (89, "86", True),
        (80, "86", False),
        (90, "80", False),
        (90, "90a", True),
        (100, "90a", False),
        (103, "100", True),
        (103, "100a", False),
        (103, "100f", True),
        (121, "120f", True),
        (120, "121", False),
        (87, "80", False),
        (87, "87", True),
        (72, "70", False),
        (120, "", False),
    ],
)
def test_machine_code(sm: int, code: str, does: bool) -> None:
    assert runs(sm, code) is does


def test_orin_joins_its_generation_with_cuda_13_2() -> None:
    assert runs(87, "80", APART - {87})


@pytest.mark.parametrize(
    ("sm", "code", "does"),
    [
        (120, "80", True),
        (80, "80", True),
        (75, "80", False),
        (90, "90a", True),
        (100, "90a", False),
        (103, "100f", True),
        (120, "100f", False),
        (120, "rubbish", False),
    ],
)
def test_ptx(sm: int, code: str, does: bool) -> None:
    assert compiles(sm, code) is does


def test_names_in_order() -> None:
    assert order(["120", "90a", "80", "90", "80"]) == ("80", "90", "90a", "120")
    assert number("103f") == 103


@pytest.mark.parametrize(
    ("isa", "cuda"),
    [("8.7", "12.8"), ("9.0", "13.0"), ("7.8", "11.8"), ("8.5", "12.5"), ("8.6", "12.7"), ("", "")],
)
def test_the_cuda_of_a_ptx_version(isa: str, cuda: str) -> None:
    assert cuda_of(isa) == cuda


@pytest.mark.parametrize("isa", ["9.99", "6.5", "rubbish", "9."])
def test_ptx_of_another_time_is_unknown(isa: str) -> None:
    assert cuda_of(isa) is None
