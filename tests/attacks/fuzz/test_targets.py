"""Every reader of foreign input refuses mutated input in its documented way."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.attacks.fuzz.targets import SLOW, TARGETS, attempt, inputs


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_inputs(name: str, tmp_path: Path) -> None:
    for data in islice(inputs(name), 4 if name in SLOW else 40):
        attempt(name, tmp_path, data)


@pytest.mark.attack
@pytest.mark.parametrize("name", TARGETS)
def test_many_mutated_inputs(name: str, tmp_path: Path) -> None:
    for data in islice(inputs(name, 2), 10_000):
        attempt(name, tmp_path, data)
