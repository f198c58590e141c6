"""The application: every command is there when it is needed, and only then."""

from __future__ import annotations

import pytest

from attn_doctor.cli import _COMMANDS, app_for
from tests.command import run


def names(*words: str) -> set[str]:
    app = app_for(words)
    named = {command.name for command in app.registered_commands}
    return {name for name in named | {group.name for group in app.registered_groups} if name}


def test_a_command_line_gets_its_one_command() -> None:
    assert names("check", "-q") == {"check"}
    assert names("-h", "cache", "status") == {"cache"}


def test_all_are_there_for_help_and_for_mistakes() -> None:
    for words in ((), ("--help",), ("chek",)):
        assert names(*words) == set(_COMMANDS)
    done = run("chek")
    assert done.returncode == 2
    assert "check" in done.stderr


def test_completion_sees_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_ATTN_DOCTOR_COMPLETE", "complete_bash")
    assert names("check") == set(_COMMANDS)


@pytest.mark.parametrize("name", _COMMANDS)
def test_each_command_has_a_help_page(name: str) -> None:
    done = run(name, "--help")
    assert done.returncode == 0, done.stderr
    assert f" {name} [OPTIONS]" in done.stdout
