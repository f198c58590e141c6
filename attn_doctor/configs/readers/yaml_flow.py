"""YAML's lists and mappings in brackets, on one line or several: `[a, "b c"]`, `{A: 1, B: [x]}`."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""(?<=\s)\#[^\n]*|"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[\[\]{},\n]|:(?=[\s,\]}]|$)"""
    r"""|[^\s\[\]{},:"']+|.""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\([\"\\])")
#: Lists in each other.
_DEEPEST = 20

#: The keys that lead to a value, the value with its quotes, and its line.
Leaf = tuple[tuple[str, ...], str, int]


def leaves(value: str, line: int) -> Iterator[Leaf]:
    """The values of a text in brackets, of which `line` is the first line; `-` for items."""
    reader = _Reader(line)
    for token in _TOKEN.finditer(value):
        yield from reader.take(token[0])
        if len(reader.path) > _DEEPEST:
            return


def unquoted(value: str) -> str:
    """A text without the quotes around it."""
    if value[:1] not in ("'", '"'):
        return value
    text = value[1:-1] if value[-1:] == value[0] and len(value) > 1 else value[1:]
    return text.replace("''", "'") if value[0] == "'" else _ESCAPED.sub(r"\1", text)


class _Reader:
    def __init__(self, line: int) -> None:
        self.path: list[str] = []
        """For each bracket that is open `-`, or the key whose value follows."""
        self._line = line
        self._text = ""
        self._begins = line

    def take(self, part: str) -> Iterator[Leaf]:
        """Take one part of it, with the value that it ends."""
        if part == "\n":
            self._line += 1
            self._text += " "
        elif part in ("[", "{"):
            self._text = ""
            self.path.append("-" if part == "[" else "")
        elif part == ":" and self.path and self.path[-1] == "":
            self.path[-1], self._text = unquoted(self._text.strip()), ""
        elif part in (",", "]", "}"):
            yield from self._end(part)
        elif not (part.startswith("#") and self._text[-1:] in ("", " ")):
            self._begins = self._line if not self._text.strip() else self._begins
            self._text += part

    def _end(self, part: str) -> Iterator[Leaf]:
        text = self._text.strip()
        if self.path and (text or self.path[-1] not in ("-", "")):
            place = self.path if self.path[-1] else self.path[:-1]
            yield tuple(place), text, self._begins
        self._text = ""
        if self.path and part != ",":
            self.path.pop()
        if self.path and self.path[-1] != "-":
            self.path[-1] = ""
