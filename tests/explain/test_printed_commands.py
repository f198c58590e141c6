"""Every command of every answer to a posted log can be typed as it is printed.

Each is read as the shell of the log's machine reads it. Its program exists, attn-doctor's commands
have the options, and the tables know each release. `-m sources` asks the package index as well.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from attn_doctor.install.offered import offered_for_log
from attn_doctor.requirement import satisfies
from attn_doctor.rulebook import library
from attn_doctor.shell.commands import shell_lines, shell_of
from tests.explain.posted_logs import EXPLAINED, answer
from tests.shell.powershell_grammar import words
from tools.try_fixes.checks import own_command

_PROGRAMS = {
    *("pip", "conda", "uv", "attn-doctor", "git", "sudo", "nvidia-smi", "export", "unset", "wsl"),
    *("brew", "xcode-select", "winget", "Invoke-Expression", "Remove-Item", "powershell"),
}
#: A word that a person must fill in, or that was cut.
_PLACEHOLDER = re.compile(r"<[a-z._ -]+>|\{[a-z_.]+\}|…|\.\.\.|\b(?:YOUR|PATH_TO|X\.Y)\b")
_ASSIGNMENT = re.compile(r"[A-Z_]+=")
_POWERSHELL_WORD = r"(?:'[^']*'|\"[^\"$`]*\"|[^\s'\"$`;&|<>(){}@#,]+)"
_POWERSHELL = re.compile(
    rf"(?:\$env:\w+ = '[^']*'|Invoke-Expression \"\$\(([\w :.\\-]+)\)\""
    # A quoted program is called with `&`.
    rf"|(?:& '[^']*'|{_POWERSHELL_WORD})(?: {_POWERSHELL_WORD})*)"
)
_REQUIREMENT = re.compile(r"([A-Za-z][\w.-]*)(?:\[[\w,-]+\])?((?:[<>=!~]=?[\w.*]+,?)*)")


class Command(NamedTuple):
    """One line of an answer, and the shell that it is written for."""

    shell: str
    line: str

    @property
    def words(self) -> list[str]:
        """The words of the command, without the variables before it."""
        line = self.line
        for start in ('eval "$(', 'Invoke-Expression "$('):
            if line.startswith(start):
                line = line.removeprefix(start).removesuffix(')"')
        lexer = shlex.shlex(line.removeprefix("& "), posix=True, punctuation_chars=False)
        lexer.whitespace_split, lexer.commenters = True, ""
        if self.shell == "powershell":
            lexer.escape = ""  # a backslash is a plain character
        words = list(lexer)
        while words and _ASSIGNMENT.match(words[0]):
            words.pop(0)
        return words


@cache
def commands() -> tuple[Command, ...]:
    """Each command of each answer, once."""
    found: dict[Command, None] = {}
    for case in EXPLAINED:
        said = answer(case["log"])
        shell = shell_of(said.facts)
        for match in said.matches:
            for fix in match.fixes:
                lines = shell_lines(fix, said.facts)
                found |= dict.fromkeys(Command(shell, one) for one in lines)
    return tuple(found)


def test_no_answer_has_two_fixes_of_one_title() -> None:
    for case in EXPLAINED:
        for match in answer(case["log"]).matches[:1]:
            titles = [fix.title for fix in match.fixes]
            assert len(set(titles)) == len(titles), case["id"]


def test_what_a_log_does_not_state_excludes_no_fix() -> None:
    for case in EXPLAINED:
        fixes = [
            fix for match in offered_for_log(answer(case["log"])).matches for fix in match.fixes
        ]
        excluded = [one for one in fixes if one.title.startswith("Not possible")]
        assert [one.manual for one in excluded if "unknown" in one.manual] == [], case["id"]


def _installed() -> set[tuple[str, str, bool]]:
    """The name and the releases of each package that a command installs, and whether from PyPI."""
    found = set()
    for command in commands():
        words = command.words
        if "pip" not in Path(words[0]).name and words[1:3] != ["-m", "pip"]:
            continue
        if "install" not in words:
            continue
        own_index = "--index-url" in words
        options = {words[at + 1] for at, one in enumerate(words) if one == "--index-url"}
        for word in words[words.index("install") + 1 :]:
            if word.startswith(("-", "git+")) or word in options:
                continue
            match = _REQUIREMENT.fullmatch(word)
            assert match is not None, command.line
            found.add((match[1].lower(), match[2], not own_index))
    return found


def test_there_are_many_commands() -> None:
    assert len(commands()) > 90
    assert {command.shell for command in commands()} == {"sh", "powershell"}


def test_nothing_is_left_to_fill_in() -> None:
    assert [one.line for one in commands() if _PLACEHOLDER.search(one.line)] == []
    assert [one.line for one in commands() if one.line.startswith("#")] == []


@pytest.mark.posix
def test_a_posix_shell_reads_each_command() -> None:
    script = "\n".join(one.line for one in commands() if one.shell == "sh")
    done = subprocess.run(
        ["bash", "-n"], input=script, text=True, capture_output=True, timeout=20, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_powershell_reads_each_command() -> None:
    lines = [one.line for one in commands() if one.shell == "powershell"]
    assert [line for line in lines if not _POWERSHELL.fullmatch(line)] == []
    assert all(words(line) for line in lines)


@pytest.mark.posix  # a log that names no system gets commands for this one
def test_each_command_is_for_its_shell() -> None:
    wrong = {
        "sh": r"\$env:|Set-ItemProperty|Remove-Item|Invoke-Expression|'[A-Z]:\\",
        "powershell": r"^export |^unset |^eval |^sudo |(?<![\w.])/(?:usr|home|opt)/",
    }
    assert [one for one in commands() if re.search(wrong[one.shell], one.line)] == []


def test_each_program_exists() -> None:
    unknown = []
    for one in commands():
        if one.line.startswith("$env:"):
            continue
        program = one.words[0]
        python = re.search(r"[/\\]python[\d.]*(?:\.exe)?$", program)
        if program not in _PROGRAMS and not python:
            unknown.append(one.line)
    assert unknown == []


def test_attn_doctor_has_its_commands_and_options() -> None:
    ours = {(*one.words,) for one in commands() if "attn-doctor" in one.line}
    assert ours
    assert [(words, own_command(words)) for words in ours if own_command(words)] == []


def test_no_release_is_newer_than_the_newest_known_one() -> None:
    newest = {
        row["index"]: row["newest"]
        for row in library.tables()["releases"]["release"]
        if row.get("index")
    }
    bounds = [
        (name, op, version)
        for name, releases, _ in _installed()
        for op, version in re.findall(r"(==|>=|~=)([\w.]+)", releases)
        if name in newest
    ]
    assert bounds
    assert [one for one in bounds if satisfies(newest[one[0]], f"<{one[2]}")] == []


@pytest.mark.sources
def test_the_index_has_each_package_in_such_a_release() -> None:
    missing = []
    for name, releases in sorted({(one[0], one[1]) for one in _installed()}):
        done = subprocess.run(
            [sys.executable, "-m", "pip", "index", "versions", "--pre", name],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        listed = re.search(r"Available versions: (.*)", done.stdout)
        versions = listed[1].split(", ") if listed else []
        if not any(not releases or satisfies(version, releases) for version in versions):
            missing.append(f"{name}{releases}")
    assert missing == []
