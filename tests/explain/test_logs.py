"""Failures that people have posted, each with its cause: the explanation must name it first.

`tests/logs/` holds one file a cause, one case a line, with the thread in which it was found. A case
with `missed` is one that is known not to be explained, and why; it must not be explained wrongly.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attn_doctor.explain.engine import explain
from attn_doctor.rulebook import library
from attn_doctor.rulebook.rule import Rule

_LOGS = Path(__file__).parent.parent / "logs"
#: The cases of each file. A test for each case would take longer to begin and end than to run.
_FILES = {
    file.stem: [
        json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()
    ]
    for file in sorted(_LOGS.glob("*.jsonl"))
}
_CASES = [case for cases in _FILES.values() for case in cases]


@pytest.fixture(scope="module")
def rules() -> tuple[Rule, ...]:
    return library.load()


@pytest.mark.parametrize("cases", _FILES.values(), ids=_FILES)
def test_the_first_match_has_the_cause(
    cases: list[dict[str, Any]], rules: tuple[Rule, ...], tmp_path: Path
) -> None:
    log = tmp_path / "failure.log"
    wrong = []
    for case in cases:
        log.write_text(case["log"], encoding="utf-8")
        causes = [match.cause for match in explain([str(log)], rules).matches]
        nothing = case["cause"] == "none" or "missed" in case
        if causes[:1] != ([] if nothing else [case["cause"]]):
            wrong.append((case["id"], case["cause"], causes))
    assert not wrong


def test_each_case_is_whole() -> None:
    ids = [case["id"] for case in _CASES]
    assert len(set(ids)) == len(ids)
    for case in _CASES:
        assert set(case) - {"missed"} == {"id", "source", "cause", "log"}, case["id"]
        assert case["source"].startswith("https://"), case["id"]
        assert case["log"].strip(), case["id"]
