"""Logs that people mistake for the failure of a rule: no symptom of it may match them."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_doctor.rulebook.lint import lint
from tests.command import whole_rules

RULE = """
schema = 1
severity = "error"
cause = "packaging-bug"
evidence = ["https://example.org/1"]
checked = 2026-01-01
[text]
title = "The attention {title} is wrong"
why = "It is."
[[fix]]
title = "Do it"
safety = "manual"
manual = "Do it."
[[symptom]]
pattern = 'attention {title} failed'
logs = ["attention {title} failed"]
[[claim]]
says = "it is"
how = "run"
source = ["it ran"]
"""


def test_every_rule_with_symptoms_has_two() -> None:
    rules = [rule for rule in whole_rules() if rule.symptoms]
    assert len(rules) > 300
    assert [rule.id for rule in rules if len(rule.look_alikes) < 2] == []


@pytest.mark.parametrize(
    ("log", "means", "complaint"),
    [
        ("attention two failed", "a/two", ""),
        ("the film failed", "a failure of another program", ""),
        ("attention one failed", "a/two", "matches the look-alike"),
        ("attention two failed", "a/three", "means 'a/three', which is not a rule"),
        ("attention four failed", "a/two", "is not in a symptom of a/two"),
    ],
)
def test_what_the_linter_says(log: str, means: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    other = f"[[look_alike]]\nlog = {log!r}\nmeans = {means!r}\n"
    (tmp_path / "a" / "one.toml").write_text(RULE.replace("{title}", "one") + other, "utf-8")
    (tmp_path / "a" / "two.toml").write_text(RULE.replace("{title}", "two"), "utf-8")
    found = [one.text for one in lint(tmp_path)[1]]
    assert (
        complaint in " ".join(found)
        if complaint
        else not [text for text in found if "look-alike" in text]
    )
