"""SECURITY.md speaks of every command, and of tests that exist."""

from __future__ import annotations

import re

import pytest

from tests.attacks.means import ROOT, commands

PAGE = (ROOT / "SECURITY.md").read_text("utf-8")
#: Command → its class, from the table of commands.
ROWS = dict(re.findall(r"^\| `([\w -]+)` \| ([\w, ]+) \| .+ \|$", PAGE, re.MULTILINE))


def test_every_command_has_a_row_and_every_row_a_command() -> None:
    assert set(ROWS) == {" ".join(words) for words in commands()}


@pytest.mark.parametrize("command", ROWS)
def test_classes_are_those_that_the_page_explains(command: str) -> None:
    classes = ROWS[command].split(", ")
    explained = {word.lower() for word in re.findall(r"\*([A-Z]\w+)\*:", PAGE)}
    assert set(classes) <= explained
    assert classes == ["reads"] or "reads" not in classes


def test_every_promise_has_tests_that_exist() -> None:
    promises = re.findall(r"^(\d)\. \*\*", PAGE, re.MULTILINE)
    tested = dict(re.findall(r"^\| (\d) \| (`tests.+`) \|$", PAGE, re.MULTILINE))
    assert promises == sorted(tested)
    named = re.findall(r"`(tests/[\w/.]+)`", PAGE)
    assert named
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_the_page_is_linked() -> None:
    for page in ("README.md", "CONTRIBUTING.md"):
        assert "(SECURITY.md)" in (ROOT / page).read_text("utf-8"), page
