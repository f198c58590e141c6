"""The application: every command is there when it is needed, and only then."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from attn_doctor.cli.application import _COMMANDS, app_for
from tests.command import process, run

H200 = Path(__file__).parents[1] / "machines" / "h200-torch-2.11-cu130" / "facts.json"


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


@pytest.mark.parametrize("words", [(), ("--json",), ("--python", sys.executable)], ids=str)
def test_a_command_line_without_a_command_is_a_check(words: tuple[str, ...]) -> None:
    done = run(*words, "--policy", "none") if words else run()
    assert done.returncode in (0, 1), done.stderr
    assert "attn-doctor" in done.stdout
    if words == ("--json",):
        assert json.loads(done.stdout)["schema"] == 1


def test_help_and_version_are_not_a_check() -> None:
    assert "COMMAND" in run("--help").stdout
    assert run("--version").stdout.startswith("attn-doctor ")
    for words in (["-V"], ["version"]):
        assert run(*words).stdout == run("--version").stdout
    assert run("help").stdout == run("--help").stdout
    assert run("help", "fix").stdout == run("fix", "--help").stdout
    assert run("version", "check").returncode == 2


@pytest.mark.parametrize("words", [("check",), ("backends",)], ids=lambda words: words[0])
def test_pythonpath_of_another_python_does_no_harm(tmp_path: Path, words: tuple[str, ...]) -> None:
    for name in ("msgspec", "packaging", "typer"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('built for another Python')")
    done = process(*words, "--facts", str(H200), PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_package_that_is_missing_is_named(tmp_path: Path) -> None:
    # What an interrupted `pip install` leaves.
    code = (
        "import sys; sys.modules['msgspec'] = None; from attn_doctor.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"msgspec, which attn-doctor needs, cannot be imported in {sys.prefix}" in done.stderr


def commands() -> dict[str, set[str]]:
    """The options of every command."""
    found: dict[str, set[str]] = {}

    def add(prefix: str, command: Any) -> None:
        members = getattr(command, "commands", {})
        for name, each in members.items():
            add(f"{prefix} {name}".strip(), each)
        if not members:
            found[prefix] = {option for each in command.params for option in each.opts}

    add("", typer.main.get_command(app_for(())))
    return found


def test_every_command_takes_verbose_and_has_json_beside_format() -> None:
    assert len(commands()) > 20
    for name, options in commands().items():
        assert {"-v", "--verbose"} <= options, name
        assert ("--format" in options) == ("--json" in options), name


@pytest.mark.parametrize(
    "words",
    [("check",), ("report",), ("explain", "--no-probe", __file__), ("backends",)],
    ids=lambda words: words[0],
)
def test_a_file_in_a_missing_folder_is_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "missing" / "result"
    done = run(*words, "-o", str(file))
    assert done.returncode == 2
    sentence = f"{file} cannot be written: the folder {file.parent} does not exist"
    assert done.stderr.splitlines()[-1] == f"attn-doctor: {sentence}"
    assert not file.parent.exists()


@pytest.mark.parametrize("command", ["check", "backends"])
def test_json_and_output_are_one_option_each(command: str, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    done = run(command, "--json", "-o", str(file), "--facts", str(H200))
    assert done.stdout == ""
    assert json.loads(file.read_text("utf-8"))["schema"] == 1


def test_two_formats_cannot_share_an_output(tmp_path: Path) -> None:
    done = run("check", "--json", "--format", "markdown", "-o", str(tmp_path / "x"))
    assert done.returncode == 2
    assert "markdown and json would both go to" in done.text


@pytest.mark.parametrize("name", _COMMANDS)
def test_each_command_has_a_help_page(name: str) -> None:
    done = run(name, "--help")
    assert done.returncode == 0, done.stderr
    assert f" {name} [OPTIONS]" in done.stdout


def test_commands_are_prepared_once() -> None:
    """Each further layer costs stack, and a process that makes 900 applications ran out of it."""
    from attn_doctor.cli.fix.command import app

    app_for(["fix"])
    first = [one.callback for one in app.registered_commands]
    app_for(["fix"])
    assert [one.callback for one in app.registered_commands] == first


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("build-kernels", "--mask", "none", "--mask", "causal", "-n"), "--mask"),
        (("check", "--python", "a", "--python=b"), "--python"),
        (("fix", "apply", "--timeout", "3", "--timeout", "4"), "--timeout"),
        (("cache", "verify", "--python", "a", "--python", "b"), "--python"),
    ],
)
def test_an_option_with_one_value_is_given_once(words: tuple[str, ...], option: str) -> None:
    app: Any = typer.main.get_command(app_for(words))
    with pytest.raises(typer.BadParameter, match="given 2 times") as raised:
        app.main(list(words), standalone_mode=False)
    assert raised.value.param is not None
    assert raised.value.param.opts == [option]


def test_options_that_may_be_repeated_are() -> None:
    words = ["build-kernels", "--heads", "2", "--head-dim", "64", "--seq-len", "128", "--seq-len"]
    done = run(*words, "256", "-n", "-v", "-v", "--python", sys.executable, "--device", "cpu")
    assert "2 times" not in done.stderr


@pytest.mark.parametrize(("word", "meant"), [("doctor", "check"), ("undo", "fix undo")])
def test_a_word_of_other_tools_is_answered_with_our_command(word: str, meant: str) -> None:
    ran = run(word)
    assert ran.returncode == 2
    assert f"No such command '{word}'. Run `attn-doctor {meant}`." in ran.text


@pytest.mark.parametrize("words", [("check", "--formt"), ("frob",), ("check", "--format", "jsn")])
def test_a_mistake_is_said_first_and_as_other_errors_are(words: tuple[str, ...]) -> None:
    done = run(*words)
    said, usage, hint = done.stderr.splitlines()
    assert done.returncode == 2
    assert said.startswith("attn-doctor: ")
    assert usage.startswith("Usage: attn-doctor ")
    assert hint.startswith("Try 'attn-doctor ")
