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
from attn_doctor.facts import Facts, Python
from attn_doctor.findings import Fix
from attn_doctor.shell.quote import Shell, join, quote

_ON_WINDOWS = os.name == "nt"
#: The start of a call of attn-doctor that examines an environment.
_EXAMINING = (
    r"attn-doctor (?:check|backends|report|explain|install|build-kernels"
    r"|fix(?: --cuda-home| cuda-home)?"
    r"(?! (?:undo|redo|forget|history|cuda-home))|cache (?:status|verify|clear|export|import|why))"
    r"(?![\w-]| --python)"
)
_QUOTED = r"`([^`\n]+)`"
#: Lines of attn-doctor that set variables of the shell that runs them.
_EVALUATED = r'eval "\$\((attn-doctor [^()]*)\)"'
#: Calls of attn-doctor that print lines for the shell.
_PRINTING_LINES = (("attn-doctor", "fix", "--cuda-home"), ("attn-doctor", "cache", "env"))
#: What separates the commands of a line in a text.
_THEN = " && "


def shell_of(facts: Facts | None = None) -> Shell:
    """Return the shell that commands for the examined machine are written for.

    On this Windows it is the one that attn-doctor was started from; for another one, PowerShell.
    """
    system = facts.system.os if facts is not None else None
    if not (system == "windows" if system else _ON_WINDOWS):
        return "sh"
    if not system and facts is not None and _posix_in_log(facts.python):
        return "sh"
    if not _ON_WINDOWS:
        return "powershell"
    from attn_doctor.shell.detect import here_on_windows

    return here_on_windows()


def _posix_in_log(python: Python) -> bool:
    """Whether a log, which may name no system, names an interpreter that is not of Windows."""
    return python.selection_reason == "the log" and (python.path or "").startswith("/")


def shell_lines(fix: Fix, facts: Facts) -> list[str]:
    """Return the commands of a fix, one a line, for the shell of `shell_of`.

    A command that cannot be quoted is replaced by a comment that says why.
    """
    shell = shell_of(facts)
    try:
        lines = [_variable(name, value, shell) for name, value in fix.exports.items()]
        for argv in fix.run:
            lines += _lines(argv, facts, shell)
    except AttnDoctorError as error:
        return [not_written(error, shell)]
    return [*dict.fromkeys(lines)]


def argv_lists(fix: Fix, facts: Facts) -> list[tuple[str, ...]]:
    """Return the commands of a fix for a program; leading `NAME=value` elements are variables."""
    found: list[tuple[str, ...]] = []
    for argv in fix.run:
        assignments, words = split_assignments(argv)
        *first, last = commands_for(words, facts)
        found += [*first, (*assignments, *last)]
    return found


def _lines(argv: tuple[str, ...], facts: Facts, shell: Shell) -> list[str]:
    """One command of a rule, as the lines to type. Raises `AttnDoctorError` as `quote` does."""
    assignments, words = split_assignments(argv)
    *first, last = commands_for(words, facts)
    lines = [join(one, shell) for one in first]
    pairs = [assignment.split("=", 1) for assignment in assignments]
    command = join(last, shell)
    if words in _PRINTING_LINES:
        return [*lines, _evaluated(command, shell)]
    if shell in ("powershell", "cmd"):
        return [*lines, *(_variable(name, value, shell) for name, value in pairs), command]
    settings = (f"{name}={quote(value, shell)}" for name, value in pairs)
    return [*lines, " ".join([*settings, command])]


def _variable(name: str, value: str, shell: Shell) -> str:
    from attn_doctor.shell.exports import set_variable

    return set_variable(name, value, shell)


def _evaluated(command: str, shell: Shell) -> str:
    from attn_doctor.shell.detect import how_to_eval

    return how_to_eval(shell, command)


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
        return not_written(error, shell_of())


def not_written(error: AttnDoctorError, shell: Shell) -> str:
    """Return the comment that stands for a command that `shell` cannot quote."""
    return f"{'rem' if shell == 'cmd' else '#'} not written: {error}"


def split_assignments(argv: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split a command into its leading `NAME=value` elements and the words after them."""
    count = 0
    while count < len(argv) and _assigns(argv[count]):
        count += 1
    return tuple(argv[:count]), tuple(argv[count:])


def _assigns(word: str) -> bool:
    name, equals, _ = word.partition("=")
    letter = name[:1] == "_" or (name[:1].isascii() and name[:1].isalpha())
    return bool(equals) and letter and name.replace("_", "x").isalnum()


def argv_for(command: tuple[str, ...], facts: Facts) -> tuple[str, ...]:
    """Return `command` for the examined environment: with its own `pip` or `python`."""
    return commands_for(command, facts)[-1]


def commands_for(command: tuple[str, ...], facts: Facts) -> list[tuple[str, ...]]:
    """Return `command` for the examined environment, after those that it needs first."""
    program = command[0] if command else ""
    if program == "attn-doctor":
        return [_with_python(command, facts)]
    if program == "sudo" and facts.system.user_is_root:
        return [command[1:]]  # in a container, root often has no sudo, and needs none
    if program == "python" and facts.python.path:
        command = (facts.python.path, *command[1:])
    if program != "pip":
        return [command]
    from attn_doctor.shell import installers

    return installers.commands(command, facts)


def _with_python(command: tuple[str, ...], facts: Facts) -> tuple[str, ...]:
    """A call of attn-doctor with `--python PATH`, before the program that it runs."""
    option = python_option(facts)
    if not option or "--python" in command or not re.match(_EXAMINING, " ".join(command)):
        return command
    end = command.index("--") if "--" in command else len(command)
    return (*command[:end], *option, *command[end:])


def python_option(facts: Facts) -> tuple[str, ...]:
    """Return `--python PATH` if the user, or a log, named the examined environment."""
    python = facts.python
    named = python.selection_reason in ("--python", "the log")
    return ("--python", python.path) if named and python.path else ()


def in_text(text: str, facts: Facts) -> str:
    """Return `text` with its commands as they are typed here.

    Commands stand between backquotes. `pip` and `python` become those of the examined environment,
    and calls of attn-doctor name it, if the user did.
    """
    if "`" not in text and "attn-doctor " not in text:
        return text
    shell = shell_of(facts)
    try:
        option = join(python_option(facts), shell) if python_option(facts) else ""
        if option:
            text = re.sub(_EXAMINING, lambda match: f"{match[0]} {option}", text)
        if "eval " in text:
            text = re.sub(_EVALUATED, lambda match: _evaluated(match[1], shell), text)
        return re.sub(_QUOTED, lambda match: _typed(match[1], facts, shell), text)
    except AttnDoctorError:
        return text  # a path that no shell can quote


def _typed(code: str, facts: Facts, shell: Shell) -> str:
    """What stands between backquotes in a text: a command as it is typed, or the same code."""
    lines: list[str] = []
    changed = False
    for part in code.split(_THEN):
        words = _pip_or_python(part)
        lines += _lines(words, facts, shell) if words else [part]
        changed = changed or bool(words)
    if not changed:
        return f"`{code}`"
    return ", then ".join(f"`{one}`" for one in lines) if len(lines) > 1 else f"`{lines[0]}`"


def _pip_or_python(code: str) -> tuple[str, ...]:
    """The words of a command of pip or python; empty for any other code."""
    named = "pip " in code or "python " in code
    if not named or not re.search(r"\b(?:pip|python) \S", code):
        return ()
    import shlex

    try:
        assignments, words = split_assignments(tuple(shlex.split(code)))
    except ValueError:
        return ()
    if words[:3] == ("python", "-m", "pip"):
        words = words[2:]
    runs = words[:1] == ("python",) or (words[:1] == ("pip",) and words[1:2] != ("cache",))
    return (*assignments, *words) if runs and len(words) > 1 else ()


def attn_doctor(*words: str, facts: Facts | None = None, program: Sequence[str] = ()) -> str:
    """Return `attn-doctor …` as it is typed, with the environment and the program that it runs.

    A command that cannot be quoted is replaced by a comment that says why.
    """
    after = ("--", *program) if program else ()
    command = ("attn-doctor", *words, *after)
    try:
        return join(_with_python(command, facts or Facts()), shell_of(facts))
    except AttnDoctorError as error:
        return not_written(error, shell_of(facts))


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
