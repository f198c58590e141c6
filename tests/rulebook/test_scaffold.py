"""A new rule file: it loads whatever the log said, and its pattern is one the linter takes."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_doctor.rulebook.lint import lint_rule
from attn_doctor.rulebook.patterns import dangers
from attn_doctor.rulebook.rule_files import read_rule
from attn_doctor.rulebook.scaffold import pattern_for, scaffold, unfilled

LINES = [
    "ImportError: /usr/lib/python3/x/flash_attn.so: undefined symbol: _ZN3c105ErrorC2E",
    "RuntimeError: CUDA error at 0xff12: 'x' wants (2.8.0) not 2.9+cu130, see C:\\Users\\me\\a.txt",
    "OutOfResources: shared memory, Required: 395520, Hardware limit: 232448 [1, 2, 3, 4, 5, 6]",
]


@pytest.mark.parametrize("line", LINES)
def test_the_pattern_finds_its_line_and_others_like_it(line: str) -> None:
    pattern = pattern_for(line)
    assert dangers(pattern) == []
    assert re.search(pattern, line)
    assert re.search(pattern, re.sub(r"\b\d+\b", "7", line.replace("/usr/lib", "/opt/v/lib")))


@pytest.mark.parametrize("area", ["sage", "flash", "flex", "torch", "triton", "driver", "xformers"])
def test_a_new_rule_of_any_area_needs_nothing_but_words(tmp_path: Path, area: str) -> None:
    path = tmp_path / area / "thing.toml"
    path.parent.mkdir()
    path.write_text(scaffold(f"{area}/thing", date(2026, 11, 21)), "utf-8")
    rule = read_rule(path, tmp_path)
    assert list(lint_rule(rule)) == [f"is not filled in yet: {', '.join(unfilled(rule))}"]
    assert rule.checked == date(2026, 11, 21)
    assert {one.expect for one in rule.examples} == {"problem", "ok", "unknown", "not applicable"}


@given(st.text(st.characters(blacklist_categories=["Cs"]), min_size=1).filter(str.strip))
def test_any_line_makes_a_file_that_loads(
    tmp_path_factory: pytest.TempPathFactory, line: str
) -> None:
    folder = tmp_path_factory.mktemp("rules")
    (folder / "torch").mkdir()
    path = folder / "torch" / "thing.toml"
    path.write_text(scaffold("torch/thing", date(2026, 11, 21), line), "utf-8", newline="\n")
    symptom = read_rule(path, folder).symptoms[0]
    assert symptom.logs == (line,)
    assert re.search(symptom.pattern, line)
