"""Small rule folders, and explanations of texts by them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from attn_doctor.explain.engine import explain as explain_logs
from attn_doctor.explain.explanation import Explanation
from attn_doctor.facts import Facts
from attn_doctor.rulebook.rule_files import read_folder

HEAD = """
schema = 1
severity = "{severity}"
cause = "{cause}"
evidence = ["https://github.com/pytorch/pytorch/issues/1"]
checked = 2026-01-01
{more}
[text]
title = "{title}"
why = "{why}"
{symptoms}
{tail}
"""


@pytest.fixture
def rule(tmp_path: Path) -> Callable[..., None]:
    """Writes a rule: `rule("a/b", "cause", r"pattern", …, more=…, tail=…)`."""

    def write(
        id: str,
        cause: str,
        *patterns: str,
        more: str = "",
        tail: str = "",
        title: str = "",
        why: str = "",
        severity: str = "error",
    ) -> None:
        path = tmp_path / "rules" / f"{id}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        symptoms = "\n".join(
            f"[[symptom]]\npattern = '''{pattern}'''\nlogs = ['x']" for pattern in patterns
        )
        path.write_text(
            HEAD.format(
                cause=cause,
                more=more,
                title=title or f"title of {id}",
                why=why or f"why of {id}",
                severity=severity,
                symptoms=symptoms,
                tail=tail,
            )
        )

    return write


@pytest.fixture
def explained(tmp_path: Path) -> Callable[..., Explanation]:
    """The explanation of a text by the rules written so far."""

    def explain(log: str | bytes, machine: Facts | None = None) -> Explanation:
        path = tmp_path / "a.log"
        path.write_bytes(log if isinstance(log, bytes) else log.encode())
        rules = read_folder(tmp_path / "rules")
        return explain_logs([str(path)], rules, machine)

    return explain
