"""What can be known of a symptom's pattern without running it: its plain text, and its dangers.

Python's regular expressions can take time that grows out of all proportion to the text. A log is
written by strangers and may be huge, so a rule's pattern must be one whose work is bounded, and
must hold plain text that every match contains (`plain.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from attn_doctor.rulebook.pattern_literals import (
    REPEATS,
    SHORTEST,
    SMALL,
    Node,
    Nodes,
    body,
    needed,
    parsed,
)

#: How often a repetition without end is taken to repeat: about the length of a long line.
_ENDLESS = 4000
#: Steps at one place of the text that a pattern may cost at worst; some ten milliseconds.
_STEPS = 1_000_000
#: Ways through a pattern's alternatives that are looked at.
_WAYS = 256

_EVERYTHING = frozenset(range(256))
_DIGITS = frozenset(b"0123456789")
_SPACES = frozenset(b" \t\n\r\f\v")
_WORDS = _DIGITS | frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_CATEGORIES = {
    "CATEGORY_DIGIT": _DIGITS,
    "CATEGORY_NOT_DIGIT": _EVERYTHING - _DIGITS,
    "CATEGORY_SPACE": _SPACES,
    "CATEGORY_NOT_SPACE": _EVERYTHING - _SPACES,
    "CATEGORY_WORD": _WORDS,
    "CATEGORY_NOT_WORD": _EVERYTHING - _WORDS,
}


def dangers(pattern: str, *, log: bool = True) -> list[str]:
    """Why `pattern` must not be used on a log, each as one sentence; none if it may.

    `log=False`: on the value of a fact, which is no page to be searched for plain text first.
    """
    nodes = parsed(pattern)
    found = list(dict.fromkeys(_constructs(nodes)))
    found += dict.fromkeys(_costs(nodes))
    if log and not any(len(text) >= SHORTEST for text in needed(pattern)[:1]):
        found.append(
            f"has no plain text of {SHORTEST} characters that every match contains; without it"
            " every line of a log would have to be searched"
        )
    return found


def _constructs(nodes: Nodes) -> Iterator[str]:
    """What cannot be matched in bounded time, or not by every engine."""
    for op, value in nodes:
        name = str(op)
        if name in ("GROUPREF", "GROUPREF_EXISTS"):
            yield "refers back to a group; write out what is meant"
        elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
            yield from _constructs(body(name, value))
        elif name in ("ASSERT", "ASSERT_NOT"):
            yield from _constructs(value[1])
        elif name == "BRANCH":
            for part in value[1]:
                yield from _constructs(part)
        elif name in REPEATS:
            if value[1] > SMALL:
                yield from _overlapping(value[-1])
            yield from _constructs(value[-1])


def _overlapping(nodes: Nodes) -> Iterator[str]:
    """Alternatives under a repetition that can begin alike: each repeat doubles the ways."""
    for op, value in nodes:
        name = str(op)
        if name in ("SUBPATTERN", "ATOMIC_GROUP"):
            yield from _overlapping(body(name, value))
        elif name == "BRANCH":
            firsts = [_firsts(part) for part in value[1]]
            clash = any(a & b for i, a in enumerate(firsts) for b in firsts[i + 1 :])
            if clash or not all(firsts):
                yield "repeats alternatives that can begin with the same character"


class _Piece(NamedTuple):
    """Part of a pattern laid out flat: which characters it takes, how often."""

    chars: frozenset[int]
    least: int
    most: int


_Row = list[_Piece]
#: An anchor or a lookaround: it takes no character.
_PLACE = _Piece(frozenset(), 0, 0)


def _costs(nodes: Nodes) -> Iterator[str]:
    rows = _rows(nodes)
    if any(row and row[0].most >= _ENDLESS for row in rows):
        yield (
            "begins with a repetition without end, which is tried at every place; leave it out,"
            " since a pattern may match anywhere, or anchor it with (?m)^"
        )
    rows += [row for inside in _lookarounds(nodes) for row in _rows(inside)]
    if any(_steps(row, index) > _STEPS for row in rows for index in range(len(row))):
        yield (
            "holds repetitions that can share the same text, so that their lengths multiply;"
            " bound them ({0,200}) or exclude a character ([^\\n'])"
        )


def _steps(row: _Row, index: int) -> int:
    """How many ways there are for one repetition and those that can share its text."""
    start, steps = row[index], row[index].most
    if steps <= SMALL:
        return 0
    between: _Row = []
    for piece in row[index + 1 :]:
        apart = any(not one.chars & start.chars or not one.chars & piece.chars for one in between)
        if piece.most > SMALL and piece.chars & start.chars and not apart:
            steps *= piece.most
        if piece.least:
            between.append(piece)
    return steps


def _lookarounds(nodes: Nodes) -> Iterator[Nodes]:
    for op, value in nodes:
        name = str(op)
        if name in ("ASSERT", "ASSERT_NOT"):
            yield value[1]
            yield from _lookarounds(value[1])
        elif name in ("SUBPATTERN", "ATOMIC_GROUP", *REPEATS):
            yield from _lookarounds(body(name, value))
        elif name == "BRANCH":
            for part in value[1]:
                yield from _lookarounds(part)


def _rows(nodes: Nodes) -> list[_Row]:
    """The pattern laid out flat, once for each way through its alternatives."""
    rows: list[_Row] = [[]]
    for op, value in nodes:
        # A pattern of more ways than this is judged by the first of them.
        rows = [row + way for row in rows for way in _ways(str(op), value)][:_WAYS]
    return rows


def _ways(name: str, value: Any) -> list[_Row]:
    if name in ("AT", "ASSERT", "ASSERT_NOT", "GROUPREF", "GROUPREF_EXISTS"):
        return [[_PLACE]]
    if name in ("SUBPATTERN", "ATOMIC_GROUP"):
        return _rows(body(name, value))
    if name == "BRANCH":
        return [row for part in value[1] for row in _rows(part)]
    if name in REPEATS:
        return _repeated(value[0], min(value[1], _ENDLESS), _rows(value[-1]))
    return [[_Piece(_set(name, value), 1, 1)]]


def _repeated(least: int, most: int, bodies: list[_Row]) -> list[_Row]:
    if most == 1:
        return bodies if least else [*bodies, []]
    pieces = [piece for row in bodies for piece in row]
    if all(piece.most <= SMALL for piece in pieces):
        chars = frozenset().union(*(piece.chars for piece in pieces))
        return [[_Piece(chars, min(least, 1), most)]]
    # A repetition inside a repetition: what the body ends with meets what it begins with.
    return [row + following for row in bodies for following in bodies]


def _set(name: str, value: Any) -> frozenset[int]:
    """The characters that a node takes, of the first 256; the rest counts as one of them."""
    if name == "LITERAL":
        return frozenset({value if value < 256 else 255})
    if name == "NOT_LITERAL":
        return _EVERYTHING - {value}
    if name == "ANY":
        return _EVERYTHING - {10}
    if name == "IN":
        return _class(value)
    return _EVERYTHING


def _class(items: Sequence[Node]) -> frozenset[int]:
    chars: set[int] = set()
    negated = False
    for op, value in items:
        name = str(op)
        if name == "NEGATE":
            negated = True
        elif name == "LITERAL":
            chars.add(min(value, 255))
        elif name == "RANGE":
            chars.update(range(min(value[0], 255), min(value[1], 255) + 1))
        elif name == "CATEGORY":
            chars |= _CATEGORIES.get(str(value), _EVERYTHING)
    return _EVERYTHING - chars if negated else frozenset(chars)


def _firsts(nodes: Nodes) -> frozenset[int]:
    """The characters that a part can begin with; empty if it can be empty."""
    chars: set[int] = set()
    for row in _rows(nodes):
        piece = next((one for one in row if one.most), None)
        if piece is None or not piece.least:
            return frozenset()
        chars |= piece.chars
    return frozenset(chars)
