"""A Makefile, as far as start lines need it: translated to a shell script line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator

#: `MODEL ?= a/b`, `export ARGS := --x`
_GIVEN = re.compile(
    r"(?:export\s+|override\s+)?([A-Za-z_]\w{0,100})\s*(\?|::?|\+)?=\s*(.{0,4000})$"
)
#: `$(MODEL)`, `${MODEL}`, `$$HOME` of the shell
_VARIABLE = re.compile(r"\$\(([A-Za-z_]\w{0,100})\)")
_TEST = re.compile(r"(?:ifeq|ifneq|ifdef|ifndef)\b\s*(.{0,200})$")


def as_shell(text: str) -> str:
    """The file as a script of a shell, with the same number of lines."""
    return "\n".join(_lines(text))


def _lines(text: str) -> Iterator[str]:
    continued = False
    for line in text.splitlines():
        recipe = line.startswith("\t") or continued
        continued = line.endswith("\\") and recipe
        yield _command(line.strip()) if recipe else _outside(line.strip())


def _command(line: str) -> str:
    """A line of a recipe: `@` and `-` before it say how make runs it."""
    return _VARIABLE.sub(r"${\1}", line.lstrip("@-+ ")).replace("$$", "$")


def _outside(line: str) -> str:
    """A variable, or a condition; targets start nothing."""
    test = _TEST.match(line)
    if test is not None:
        said = test[1].replace(";", ",")
        return f"if {said}; then"
    if line.startswith("else"):
        return "else"
    if line == "endif":
        return "fi"
    given = _GIVEN.match(line)
    if given is None:
        return ""
    value = _VARIABLE.sub(r"${\1}", given[3]).replace('"', '\\"')
    return f'{given[1]}{"+" if given[2] == "+" else ""}="{value}"'
