"""YAML, as far as settings need it: keys with plain values and their lines, and commands.

It reads block mappings and sequences, flow lists of plain words, quoted text and block text.
Anchors, tags and flow mappings stay text. Each line is looked at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

_KEY = re.compile(
    r"""(?:"([^"]{1,200})"|'([^']{1,200})'|([^\s#:,\[\]{}"'&*!|>%@][^:#]{0,199}?))\s*:(?:\s+|$)"""
)
_BLOCK = re.compile(r"[|>][+-]?\d?[+-]?\s*(?:#.*)?$")
#: Levels of nesting, and lines; what is beyond is not a configuration.
_DEEPEST, _MOST = 40, 50_000


class Entry(Struct, frozen=True):
    """One plain value with the keys that lead to it."""

    path: tuple[str, ...]
    """Keys from the outside in; `-` for each item of a list."""
    value: str
    """Without quotes; empty if there is none."""
    line: int


def entries(text: str) -> Iterator[Entry]:
    """Every plain value of a YAML text."""
    stack: list[tuple[int, str]] = []
    lines = text.splitlines()[:_MOST]
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        content = line.lstrip(" ")
        if not content or content.startswith(("#", "---", "...", "%")):
            continue
        indent = len(line) - len(content)
        while (content.startswith("- ") or content == "-") and len(stack) <= _DEEPEST:
            _close(stack, indent, item=True)
            stack.append((indent, "-"))
            shorter = content[1:].lstrip(" ")
            indent += len(content) - len(shorter)
            content = shorter
        match = _KEY.match(content)
        if match:
            _close(stack, indent)
            key = next(one for one in match.groups() if one is not None).strip()
            value = content[match.end() :].strip()
            stack.append((indent, key))
        else:
            value = content.strip()
            if stack and stack[-1][1] != "-":
                continue  # the continuation of a text
        if len(stack) > _DEEPEST:
            return
        path = tuple(name for _, name in stack)
        if _BLOCK.match(value):
            start = number + 1
            block, number = _block(lines, number, indent)
            yield Entry(path, block, start)
            continue
        yield from _plain(path, value, number)


def _close(stack: list[tuple[int, str]], indent: int, *, item: bool = False) -> None:
    """Leave what is not around a line of this indent. A list may stand below its key."""
    while stack and (
        stack[-1][0] > indent or (stack[-1][0] == indent and (not item or stack[-1][1] == "-"))
    ):
        stack.pop()


def _block(lines: list[str], number: int, indent: int) -> tuple[str, int]:
    """The text of a block, and the number of the line behind it."""
    found = []
    while number < len(lines):
        line = lines[number]
        if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
            break
        found.append(line.strip())
        number += 1
    return "\n".join(found), number


def _plain(path: tuple[str, ...], value: str, line: int) -> Iterator[Entry]:
    if value.startswith("[") and value.rstrip().endswith("]"):
        for one in value.strip()[1:-1].split(","):
            yield Entry((*path, "-"), _unquoted(one.strip()), line)
        return
    yield Entry(path, _unquoted(value), line)


def _unquoted(value: str) -> str:
    """A scalar without quotes and without a comment behind it."""
    if value[:1] in ("'", '"'):
        end = value.find(value[0], 1)
        return value[1:end] if end > 0 else value[1:]
    cut = value.find(" #")
    return (value[:cut] if cut >= 0 else value).strip()
