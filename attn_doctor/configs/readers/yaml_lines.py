"""YAML, as far as settings need it: keys with plain values and their lines, and commands.

It reads block and flow mappings and sequences, quoted text and block text, values that go on on
further lines, and aliases of anchors. Tags stay text. Each line is looked at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from attn_doctor.configs.readers import yaml_flow

_KEY = re.compile(
    r"""(?:"([^"]{1,200})"|'([^']{1,200})'|([^\s#:,\[\]{}"'&*!|>%@][^:#]{0,199}?))\s*:(?:\s+|$)"""
)
_BLOCK = re.compile(r"[|>][+-]?\d?[+-]?\s*(?:#.*)?$")
_ANCHOR = re.compile(r"&([\w.-]{1,100})(?:\s+|$)")
_ALIAS = re.compile(r"\*([\w.-]{1,100})")
#: A text in quotes.
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
#: Lines that one value takes.
_FURTHER = 500
#: Levels of nesting, and lines; what is beyond is not a configuration.
_DEEPEST, _MOST = 40, 50_000


class Entry(Struct, frozen=True):
    """One plain value with the keys that lead to it."""

    path: tuple[str, ...]
    """Keys from the outside in; `-` for each item of a list."""
    value: str
    """Without quotes; empty if there is none."""
    line: int


class YamlError(ValueError):
    """A line at which a text is not YAML."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


def entries(text: str) -> list[Entry]:
    """Every plain value of a YAML text. Raises `YamlError` for text behind a closing quote."""
    anchors: dict[str, tuple[str, ...]] = {}
    found = [*_written(text, anchors)]
    return _merged(found, anchors) if anchors else found


# x-base: &base
#   environment: …
# service:
#   <<: *base
def _merged(found: list[Entry], anchors: Mapping[str, tuple[str, ...]]) -> list[Entry]:
    """The entries, with what aliases stand for in their place."""
    whole: list[Entry] = []
    for entry in found:
        alias = _ALIAS.fullmatch(entry.value)
        if alias is None or alias[1] not in anchors or len(whole) > _MOST:
            whole.append(entry)
            continue
        merges = "<<" in entry.path[-2:]
        place = entry.path[: entry.path.index("<<")] if merges else entry.path
        own = {one.path[: len(place) + 1] for one in found if one is not entry} if merges else {()}
        anchor = anchors[alias[1]]
        for one in found:
            below = one.path[len(anchor) :]
            if one.path[: len(anchor)] != anchor or (merges and not below):
                continue
            if not below or (*place, below[0]) not in own:
                whole.append(Entry((*place, *below), one.value, one.line))
    return whole


def _written(text: str, anchors: dict[str, tuple[str, ...]]) -> Iterator[Entry]:
    """The values as they are written. It adds the paths of anchors by their names."""
    stack: list[tuple[int, str]] = []
    lines = text.removeprefix("\ufeff").splitlines()[:_MOST]
    further = _FURTHER
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
            value = "" if value.startswith("#") else value
            stack.append((indent, key))
        else:
            value = content.strip()
            if stack and stack[-1][1] != "-":
                continue  # the continuation of a text
        if len(stack) > _DEEPEST:
            return
        path = tuple(name for _, name in stack)
        anchor = _ANCHOR.match(value)
        if anchor:
            anchors[anchor[1]] = path
            value = value[anchor.end() :]
            value = "" if value.startswith("#") else value
        if _BLOCK.match(value):
            start = number + 1
            block, number = _block(lines, number, indent)
            yield Entry(path, block, start)
            continue
        if match and not value:
            value, number = _below(lines, number, indent)
        start = number
        inside = indent if match else indent - 1
        value, number, ends = _whole(value, lines[number : number + further], number, inside)
        further = further if ends else 0  # no YAML
        yield from _values(path, value, start)


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


def _below(lines: list[str], number: int, indent: int) -> tuple[str, int]:
    """The value of a key that begins on the next line, and the number of the line behind that."""
    line = lines[number] if number < len(lines) else ""
    content = line.strip()
    deeper = len(line) - len(line.lstrip(" ")) > indent
    if not deeper or not content or content.startswith(("-", "#", "{{")) or _KEY.match(content):
        return "", number
    return content, number + 1


def _whole(value: str, lines: list[str], number: int, indent: int) -> tuple[str, int, bool]:
    """A value with the `lines` that it takes, the number of the line behind it, whether it ends.

    `indent`: what a line needs more than, to belong to a text without quotes.
    """
    flow = value[:1] in ("[", "{") and not value.startswith("{{")
    quoted = value[:1] in ("'", '"')
    depth, quote = _open(value, 0, "") if flow or quoted else (0, "")
    found = [value]
    for line in lines if value else ():
        if flow or quoted:
            if not (depth or quote):
                break
            depth, quote = _open(line, depth, quote)
        elif len(line) - len(line.lstrip(" ")) <= indent or line.lstrip()[:1] in ("", "#"):
            break
        found.append(line.strip())
    if depth or quote:
        return value, number, False
    return "\n".join(found), number + len(found) - 1, True


def _open(line: str, depth: int, quote: str) -> tuple[int, str]:
    """The brackets and the quote that are open behind a line."""
    before = " "
    for letter in line:
        if quote:
            quote = "" if letter == quote and before != "\\" else quote
        elif letter in "\"'" and before in f" [{{,:\t{letter}":
            quote = letter
        elif letter == "#" and before in " \t":
            break
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        before = letter
    return max(depth, 0), quote


def _values(path: tuple[str, ...], value: str, line: int) -> Iterator[Entry]:
    """The entries of one value: each of a flow list or mapping, or the value itself."""
    if value[:1] not in ("[", "{") or value.startswith("{{"):
        yield Entry(path, _unquoted(value, line), line)
        return
    for below, one, number in yaml_flow.leaves(value, line):
        yield Entry((*path, *below), yaml_flow.unquoted(one), number)


def _unquoted(value: str, line: int) -> str:
    """A scalar without quotes and without a comment behind it."""
    if value[:1] in ("'", '"'):
        whole = _QUOTED.match(value)
        behind = value[whole.end() :].strip() if whole else ""
        if behind and behind[0] not in "#:" and "{{" not in value:
            raise YamlError(line)
        return yaml_flow.unquoted(whole[0] if whole else value)
    cut = value.find(" #")
    return (value[:cut] if cut >= 0 else value).strip()
