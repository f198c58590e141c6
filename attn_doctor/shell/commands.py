"""A fix as lines that can be copied into the user's shell.

Rules say `pip`; here that becomes the installer of the examined environment, by its full path,
so that the command does the same thing from any directory and with any environment active. A call
of attn-doctor itself names the environment where the user did.
"""

from __future__ import annotations

import re
import shlex

from attn_doctor.facts import Facts
from attn_doctor.findings import Fix
from attn_doctor.shell.cache_commands import asked_for

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
#: What PowerShell would read as syntax in a bare word.
_BARE = re.compile(r"[\w./:\\=+*~-]+")


def shell_lines(fix: Fix, facts: Facts) -> list[str]:
    """The commands of a fix, one a line, for a POSIX shell or (on Windows) PowerShell."""
    windows = facts.system.os == "windows"
    lines = [
        (_powershell_export if windows else _posix_export)(name, value)
        for name, value in fix.exports.items()
    ]
    for argv in fix.run:
        assignments, command = _split(argv)
        words = argv_for(command, facts)
        if windows:
            lines += [_powershell_export(*each.split("=", 1)) for each in assignments]
            # A quoted program is text to PowerShell unless the call operator stands before it.
            call = [] if _BARE.fullmatch(words[0]) else ["&"]
            lines.append(" ".join([*call, *map(_powershell, words)]))
        else:
            lines.append(" ".join([*map(_posix_assignment, assignments), shlex.join(words)]))
    return lines


def argv_for(command: tuple[str, ...], facts: Facts) -> tuple[str, ...]:
    """`command` for the examined environment: with its `pip` or `python`, or told of it."""
    python = facts.python
    if command[:1] == ("attn-doctor",):
        return (*command, *asked_for(facts))
    if command[:1] == ("sudo",) and facts.system.user_is_root:
        return command[1:]  # in a container, root often has no sudo, and needs none
    if not command or not python.path or command[0] not in ("pip", "python"):
        return command
    if command[0] == "python":
        return (python.path, *command[1:])
    if python.pip == "" and python.uv:
        return (python.uv, "pip", command[1], "--python", python.path, *_for_uv(command[2:]))
    return (python.path, "-m", "pip", *command[1:])


def _for_uv(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Pip's arguments as uv takes them: it asks nothing, so it knows no `-y`."""
    return tuple(each for each in arguments if each not in ("-y", "--yes"))


def _split(argv: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
    """Leading `NAME=value` elements, and the command after them."""
    count = 0
    while count < len(argv) and _ASSIGNMENT.fullmatch(argv[count]):
        count += 1
    return list(argv[:count]), argv[count:]


def _posix_assignment(text: str) -> str:
    name, value = text.split("=", 1)
    return f"{name}={shlex.quote(value)}"


def _posix_export(name: str, value: str) -> str:
    return f"export {name}={shlex.quote(value)}" if value else f"unset {name}"


def _powershell(word: str) -> str:
    return word if _BARE.fullmatch(word) else "'" + word.replace("'", "''") + "'"


def _powershell_export(name: str, value: str) -> str:
    if not value:
        return f"Remove-Item Env:{name}"
    return f"$env:{name} = " + "'" + value.replace("'", "''") + "'"
