"""Undo loses nothing of the user's, whatever happened before it: random histories."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.environments import Environment
from tests.fixes.histories import History

pytestmark = pytest.mark.slow
#: How many histories the long run plays, and the first of them.
COUNT = int(os.environ.get("ATTN_DOCTOR_HISTORIES", "200"))
FIRST = int(os.environ.get("ATTN_DOCTOR_FIRST_HISTORY", "1000"))


def _report(history: History, seed: int, failure: str = "") -> None:
    """Write what was done to the file that a variable names, a line for each history."""
    path = os.environ.get("ATTN_DOCTOR_HISTORIES_REPORT")
    if path:
        line = {"seed": seed, "counts": history.counts, "failure": failure}
        with Path(path).open("a") as file:
            file.write(json.dumps(line) + "\n")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.thorough
def test_a_few_histories(uv_env: Environment, seed: int) -> None:
    History(uv_env, seed).play(4)


@pytest.mark.attack
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_many_histories(request: pytest.FixtureRequest, seed: int) -> None:
    env: Environment = request.getfixturevalue("env" if seed % 8 == 0 else "uv_env")
    history = History(env, seed)
    try:
        history.play(6)
    except BaseException as error:
        _report(history, seed, f"{type(error).__name__}: {error}")
        raise
    _report(history, seed)
