"""Logs of what went well, with words that failures have too: nothing is claimed of them.

They are made up after what these programs print.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_doctor.explain.engine import explain
from attn_doctor.facts import Facts
from attn_doctor.rulebook import library

LOGS = sorted((Path(__file__).parent / "successes").glob("*.txt"))


@pytest.mark.parametrize("log", LOGS, ids=lambda log: str(log.stem))
def test_nothing_is_claimed_of_a_success(log: Path) -> None:
    rules = library.load(())
    found = explain([str(log)], rules, Facts())
    assert [match.rule for match in found.matches] == []


def test_there_are_such_logs() -> None:
    assert len(LOGS) >= 7
