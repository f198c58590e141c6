"""A fix, or a call of attn-doctor, as lines that can be copied into the user's shell.

Rules write `pip`; here that becomes the installer of the examined environment, by its full path,
so that the command does the same from any directory and with any environment active. A call of
attn-doctor names the folder and, where the user named one, the interpreter: without those it would
be about another cache, or about another environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.findings import Fix
from attn_doctor.shell.exports import set_variable
from attn_doctor.shell.quote import Shell, join, posix_or_powershell, quote

#: The start of a command in a text that examines an environment.
_EXAMINING = re.compile(
    r"attn-doctor (?:check|backends|report|explain|build-kernels|fix --cuda-home"
    r"|cache (?:status|verify|clear|export|import|why))(?![\w-]| --python)"
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


def shell_of(facts: Facts | None = None) -> Shell:
    """Return the shell that commands for the examined machine are written for."""
    system = facts.system.os if facts is not None else None
    return posix_or_powershell(windows=system == "windows" if system else os.name == "nt")


def shell_lines(fix: Fix, facts: Facts) -> list[str]:
    """Return the commands of a fix, one a line, for a POSIX shell or (on Windows) PowerShell.

    A command that cannot be quoted is replaced by a comment that says why.
    """
    shell = shell_of(facts)
    try:
        lines = [set_variable(name, value, shell) for name, value in fix.exports.items()]
        for argv in fix.run:
            assignments, words = split_assignments(argv)
            command = join(argv_for(words, facts), shell)
            pairs = [assignment.split("=", 1) for assignment in assignments]
            if shell == "powershell":
                lines += [set_variable(name, value, shell) for name, value in pairs]
            else:
                settings = (f"{name}={quote(value, shell)}" for name, value in pairs)
                command = " ".join([*settings, command])
            lines.append(command)
    except AttnDoctorError as error:
        return [f"# not written: {error}"]
    return lines


def word(text: str) -> str:
    """Return `text` as one word for this machine's shell, escaped if no shell could read it."""
    try:
        return quote(text, shell_of())
    except AttnDoctorError:
        return ascii(text)


def line(argv: Sequence[str]) -> str:
    """Return a command as it is typed here. A comment replaces one that cannot be quoted."""
    try:
        return join(argv, shell_of())
    except AttnDoctorError as error:
        return f"# not written: {error}"


def split_assignments(argv: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split a command into its leading `NAME=value` elements and the words after them."""
    count = 0
    while count < len(argv) and _ASSIGNMENT.fullmatch(argv[count]):
        count += 1
    return tuple(argv[:count]), tuple(argv[count:])


def argv_for(command: tuple[str, ...], facts: Facts) -> tuple[str, ...]:
    """Return `command` for the examined environment: with its own `pip` or `python`."""
    python = facts.python
    if command[:1] == ("attn-doctor",):
        return (*command, *python_option(facts))
    if command[:1] == ("sudo",) and facts.system.user_is_root:
        return command[1:]  # in a container, root often has no sudo, and needs none
    if not command or not python.path or command[0] not in ("pip", "python"):
        return command
    if command[0] == "python":
        return (python.path, *command[1:])
    if python.pip == "" and python.uv:
        # uv asks nothing, so it has no `-y`.
        arguments = (word for word in command[2:] if word not in ("-y", "--yes"))
        return (python.uv, "pip", command[1], "--python", python.path, *arguments)
    return (python.path, "-m", "pip", *command[1:])


def python_option(facts: Facts) -> tuple[str, ...]:
    """Return `--python PATH` if the user named the examined environment."""
    python = facts.python
    return (
        ("--python", python.path) if python.selection_reason == "--python" and python.path else ()
    )


def for_environment(text: str, facts: Facts) -> str:
    """Return `text` with `--python PATH` in its commands of attn-doctor, if the user named one."""
    option = python_option(facts)
    try:
        words = join(option, shell_of(facts)) if option else ""
    except AttnDoctorError:
        return text  # a path that no shell can quote
    return _EXAMINING.sub(lambda match: f"{match[0]} {words}", text) if words else text


def attn_doctor(*words: str, facts: Facts | None = None, program: Sequence[str] = ()) -> str:
    """Return `attn-doctor …` as it is typed, with the environment and the program that it runs.

    A command that cannot be quoted is replaced by a comment that says why.
    """
    python = python_option(facts) if facts is not None else ()
    after = ("--", *program) if program else ()
    try:
        return join(["attn-doctor", *words, *python, *after], shell_of(facts))
    except AttnDoctorError as error:
        return f"# not written: {error}"


def build(
    folder: Path | str, facts: Facts | None = None, *more: str, program: Sequence[str] = ()
) -> str:
    """Return the command that rebuilds what the record of `folder` names or `program` compiles."""
    words = ("build-kernels", "--cache-dir", str(folder), *more)
    return attn_doctor(*words, facts=facts, program=program)


def verify(folder: Path | str, facts: Facts | None = None, program: Sequence[str] = ()) -> str:
    """Return the command that verifies the kernels of `folder`, or those `program` compiles."""
    return attn_doctor("cache", "verify", "--cache-dir", str(folder), facts=facts, program=program)


def why(folder: Path | str, facts: Facts | None = None, program: Sequence[str] = ()) -> str:
    """Return the command that names the key components `program` needs and `folder` lacks."""
    words = ("cache", "why", "--cache-dir", str(folder))
    return attn_doctor(*words, facts=facts, program=program)
