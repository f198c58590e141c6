"""Failures that people have posted, each with its cause: the explanation must name it first.

`tests/logs/` holds one file a cause, one case a line, with the thread in which it was found. A case
with `missed` is one that is known not to be explained, and why; it must not be explained wrongly.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.explain.posted_logs import CASES, FILES, answer


# A test for each case would take longer to begin and end than to run.
@pytest.mark.parametrize("cases", FILES.values(), ids=FILES)
def test_the_first_match_has_the_cause(cases: list[dict[str, Any]]) -> None:
    wrong = []
    for case in cases:
        causes = [match.cause for match in answer(case["log"]).matches]
        nothing = case["cause"] == "none" or "missed" in case
        if causes[:1] != ([] if nothing else [case["cause"]]):
            wrong.append((case["id"], case["cause"], causes))
    assert not wrong


def test_each_case_is_whole() -> None:
    ids = [case["id"] for case in CASES]
    assert len(set(ids)) == len(ids)
    for case in CASES:
        assert set(case) - {"missed"} == {"id", "source", "cause", "log"}, case["id"]
        assert case["source"].startswith("https://"), case["id"]
        assert case["log"].strip(), case["id"]
