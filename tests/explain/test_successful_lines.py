"""5,000 lines that real programs printed while nothing went wrong: no symptom matches any of them.

They are the output of torch.compile with all its logs on, of pip, uv, gcc and pytest, and of
`python -v`, with the names of folders replaced.
"""

from __future__ import annotations

import lzma
import math
import re
from pathlib import Path

import pytest

from attn_doctor.explain.engine import explain
from attn_doctor.explain.normalize import NormalizedLog
from attn_doctor.explain.symptom_match import Effort, SymptomSearch, all_symptoms
from attn_doctor.explain.tracebacks import TraceLog
from attn_doctor.rulebook import library
from attn_doctor.rulebook.symptom_words import SUCCESSES

TEXT = lzma.decompress(SUCCESSES.read_bytes()).decode()
PARTS = dict(re.findall(r"^=== (\w+)\n(.*?)(?=^=== |\Z)", TEXT, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("program", PARTS)
def test_nothing_is_claimed(program: str, tmp_path: Path) -> None:
    log = tmp_path / "success.log"
    log.write_text(PARTS[program], encoding="utf-8")
    assert [match.rule for match in explain([str(log)], library.load()).matches] == []


#: The logs of torch.compile have so many words of failures that the search takes 20 s.
SLOW = [pytest.param(name, marks=[pytest.mark.sources] * (name == "torch")) for name in PARTS]


@pytest.mark.parametrize("program", SLOW)
def test_no_symptom_matches(program: str) -> None:
    log = NormalizedLog(1, PARTS[program].encode())
    effort = Effort(math.inf)
    with effort:
        search = SymptomSearch(log, all_symptoms(library.load()), effort)
    found = list(search.matches(TraceLog(log.lines), program, last=True))
    assert [(match.rule, match.excerpt) for match in found] == []


def test_there_are_enough_lines() -> None:
    assert sum(part.count("\n") for part in PARTS.values()) >= 5000
    assert set(PARTS) == {"torch", "pytest", "python", "pip", "build"}
