"""A unit of systemd, as far as start lines need it: translated to a shell script line by line."""

from __future__ import annotations

import re

_STARTS = re.compile(r"Exec(?:Start|StartPre|StartPost)\s{0,5}=\s{0,5}[-@:+!]{0,5}")
_VARIABLES = re.compile(r"Environment\s{0,5}=\s{0,5}")
#: A file with further variables, which may not be there: `-/etc/vllm.env`
_FILE = re.compile(r"(?m)^\s{0,20}EnvironmentFile\s{0,5}=\s{0,5}-?(\S{1,500})")
_FOLDER = re.compile(r"WorkingDirectory\s{0,5}=\s{0,5}-?")


def as_shell(text: str) -> str:
    """The unit as a script of a shell, with the same number of lines."""
    found: list[str] = []
    for line in text.splitlines():
        continued = bool(found) and found[-1].endswith("\\")
        found.append(line.strip() if continued else _line(line.strip()))
    return "\n".join(found)


def outside(text: str) -> str:
    """A file with further variables; empty if there is none."""
    found = _FILE.search(text)
    return found[1] if found else ""


def _line(line: str) -> str:
    starts, variables, folder = _STARTS.match(line), _VARIABLES.match(line), _FOLDER.match(line)
    if starts:
        return line[starts.end() :]
    if variables:
        return f"export {line[variables.end() :]}"
    return f"cd {line[folder.end() :]}" if folder else ""
