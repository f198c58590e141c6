"""The claims of rules: each names a source that can be read again, and every rule has some."""

from __future__ import annotations

import pytest

from attn_doctor.rulebook.lint import claim_fault
from attn_doctor.rulebook.rule_shape import Claim
from tests.command import whole_rules

PLACE = "https://github.com/pytorch/pytorch/blob/v2.11.0/torch/version.py#L3"


def test_every_rule_outside_the_advisories_has_claims() -> None:
    assert len(whole_rules()) > 300
    unread = [rule.id for rule in whole_rules() if not rule.claims]
    assert [id for id in unread if not id.startswith("advisories/")] == []


@pytest.mark.parametrize(
    ("how", "source"),
    [
        ("source", PLACE),
        ("source", PLACE.replace("v2.11.0", "0a1b2c3")),
        ("wheel", "torch==2.11.0+cu130 torch/version.py:3"),
        ("document", "https://docs.nvidia.com/cuda/"),
        ("run", "python -c 'import torch': exit code 0"),
    ],
)
def test_a_claim_with_its_source(how: str, source: str) -> None:
    assert claim_fault(Claim("x", how, (source,))) == ""  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("how", "source"),
    [
        ("source", PLACE.replace("v2.11.0", "main")),
        ("source", "https://github.com/pytorch/pytorch/issues/1"),
        ("wheel", "torch/version.py"),
        ("document", "the manual"),
        ("run", " "),
    ],
)
def test_a_claim_whose_source_can_move_or_is_none(how: str, source: str) -> None:
    assert "needs as `source`" in claim_fault(Claim("x", how, (source,)))  # type: ignore[arg-type]
    assert "needs as `source`" in claim_fault(Claim("x", how))  # type: ignore[arg-type]


def test_an_open_claim_says_what_would_settle_it() -> None:
    assert "write what it `needs`" in claim_fault(Claim("x", "open"))
    assert claim_fault(Claim("x", "open", needs="a B200")) == ""
