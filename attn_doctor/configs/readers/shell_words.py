"""The words of a shell script: assignments, and options with their values. Nothing is run.

Variables that the script itself sets to plain text are filled in; command substitutions,
conditions and loops are not followed, and what they would give stays as written.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

from attn_doctor.configs.readers.settings import Setting

_ASSIGNMENT = re.compile(r"^([A-Za-z_]\w{0,100})(\+?)=(.*)$", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w{0,100})(?::-([^}]{0,200}))?\}|([A-Za-z_]\w{0,100}))")
#: A longer line is not a launch command.
_LONGEST = 1 << 16


class Script:
    """What a shell script sets and passes on."""

    def __init__(self) -> None:
        self.variables: dict[str, Setting] = {}
        self.words: list[tuple[str, int]] = []
        """Every word behind assignments, with its line."""


def read(text: str, known: Mapping[str, str] | None = None) -> Script:
    """Assignments and words of a script. `known`: variables of its environment."""
    script = Script()
    values = dict(known or {})
    within = False
    for number, line, goes_on in _logical(text):
        words = [_filled(word, values) for word in _split(line)]
        leading = True
        for word in words:
            if word in ("export", "declare", "local", "set", "-x", "env") and leading:
                continue
            match = _ASSIGNMENT.match(word) if leading else None
            if match and not match[3].startswith("("):
                before = values.get(match[1], "") if match[2] else ""
                values[match[1]] = f"{before} {match[3]}".strip() if match[2] else match[3]
                script.variables[match[1]] = Setting(match[1], values[match[1]], number)
                continue
            leading = False
            # "--parallel_backend $BACKEND" in quotes is one word of an array, and two for argparse.
            parts = word.split() if word.lstrip("(").startswith("--") else [word]
            script.words += [(part.strip("()"), number) for part in parts]
        within = ("=(" in line or within) and not line.rstrip().endswith(")")
        if not (within or goes_on):
            script.words.append((";", number))
    return script


def options_of(words: list[tuple[str, int]]) -> dict[str, Setting]:
    """Options `--name value…` and `--name=value`; of one given twice the last."""
    found: dict[str, Setting] = {}
    current, line = "", 1
    values: list[str] = []

    def end() -> None:
        if current:
            several = tuple(values) if len(values) > 1 else values[0] if values else True
            found[current] = Setting(current, several, line, f"--{current}")

    for word, number in words:
        if word.startswith("--") and len(word) > 2:
            end()
            name, equals, value = word[2:].partition("=")
            current, line, values = name, number, [value] if equals else []
        elif word in (";", "&&", "||", "|", "&"):
            end()
            current, values = "", []
        elif current and word:
            values.append(word)
    end()
    return found


def _logical(text: str) -> Iterator[tuple[int, str, bool]]:
    """Lines with their numbers, and whether the command goes on on the next one."""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#") or len(stripped) > _LONGEST:
            continue
        yield number, stripped.removesuffix("\\"), stripped.endswith("\\")


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # a quote that ends on a later line
        return line.replace('"', " ").replace("'", " ").split()


def _filled(word: str, values: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        return values.get(name, match[2] if match[2] is not None else match[0])

    return _VARIABLE.sub(value, word) if "$" in word else word
