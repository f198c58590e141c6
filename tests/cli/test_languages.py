"""Screens in every language: what is not ours to translate stays byte for byte as in English."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from attn_doctor.language import LANGUAGES
from tests.command import run

TESTS = Path(__file__).parents[1]
MACHINES = sorted((TESTS / "machines").glob("*/facts.json"))
LOGS = sorted((TESTS / "explain" / "whole").glob("*.log"))[::3]
#: One of the languages in each run; the others where all is tried.
ONE_AND_ALL = [
    pytest.param(one, marks=[pytest.mark.thorough] * at) for at, one in enumerate(LANGUAGES[1:])
]
#: Code between backquotes, addresses, paths, requirements, names with dots or underscores (of
#: facts, modules and variables), packages, and what a program says of an error.
FOREIGN = [
    re.compile(pattern)
    for pattern in (
        r"`[^`\n]+`",
        r"https?://[\w./%#-]*[\w/]",
        r"(?<![\w/~.])(?:~|/|\./)[\w.@+~-]*/[\w./@+:~-]*[\w/]",
        r"\b[\w.-]+(?:==|>=|<=|~=|!=)[\w.+]+",
        r"\b[a-z]\w*(?:[._]\w+)+\b",
        r"\b[A-Z]+(?:_[A-Z]+)+\b",
        r"\b(?:flash-attn|sageattention|xformers|triton|torch|diffusers|nvidia-[\w-]+)\b",
    )
]


def foreign(text: str) -> set[str]:
    """The texts of a page that are the same in every language."""
    return {found for pattern in FOREIGN for found in pattern.findall(text)}


@cache
def shown(language: str, *words: str) -> str:
    done = run(*words, ATTN_DOCTOR_LANG=language)
    assert done.returncode in (0, 1, 5), done.stderr
    return done.stdout


def differing(language: str, *words: str) -> set[str]:
    """What the English page has and the other has not."""
    english, other = shown("en", *words), shown(language, *words)
    assert other != english
    return foreign(english) - foreign(other)


@pytest.mark.parametrize("language", LANGUAGES[1:])
@pytest.mark.thorough
def test_commands_paths_and_names_stay(language: str) -> None:
    assert len(MACHINES) > 5
    commands = (["check", "-v"], ["backends"], ["fix"])
    for machine in MACHINES:
        for command in commands:
            assert differing(language, *command, "--facts", str(machine)) == set(), (
                machine.parent.name, command,
            )  # fmt: skip


@pytest.mark.parametrize("language", ONE_AND_ALL)
def test_a_page_of_html_says_its_language(language: str) -> None:
    for command in ("check", "backends"):
        words = (command, "--facts", str(MACHINES[-1]), "--format", "html")
        assert f'<html lang="{language}">' in shown(language, *words)
        assert '<html lang="en">' in shown("en", *words)
        assert differing(language, *words) == set()


@pytest.mark.parametrize("language", LANGUAGES[1:])
@pytest.mark.thorough
def test_lines_of_a_log_stay(language: str) -> None:
    assert len(LOGS) > 10
    for log in LOGS:
        words = ("explain", str(log), "--no-probe")
        assert differing(language, *words) == set(), log.name
        english, other = shown("en", *words), shown(language, *words)
        lines = [one.strip() for one in log.read_text("utf-8").splitlines()]
        quoted = {one for one in lines if len(one) > 20 and one in english}
        assert {one for one in quoted if one not in other} == set(), log.name


@pytest.mark.parametrize("language", ONE_AND_ALL)
def test_parts_of_a_cache_stay(language: str, tmp_path: Path) -> None:
    folder = tmp_path / "torchinductor_alice"
    (folder / "precompiled_headers").mkdir(parents=True)
    (folder / "precompiled_headers" / ("c" * 52)).touch()
    for words in (("status",), ("verify",), ("clear", "--dry-run")):
        command = ("cache", *words, "--cache-dir", str(folder))
        assert differing(language, *command) == set(), words
    assert "headers" in shown(language, *command)
