"""The plain text that every match of a symptom's pattern holds, worked out without running it.

A log without that text is never searched for the pattern, which is what makes hundreds of rules
quick. Here are also the parts of a parsed pattern that the look for dangers shares.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from attn_doctor.rulebook.keywords import is_rare

if sys.version_info >= (3, 11):
    from re import _parser as parser
else:
    import sre_parse as parser

#: The shortest plain text that is worth looking for.
SHORTEST = 4
#: A repetition up to so often costs nothing worth speaking of.
SMALL = 16
#: How the parser calls a repetition.
REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")

Node = tuple[Any, Any]
Nodes = Sequence[Node]


def needed(pattern: str) -> tuple[str, ...]:
    """Texts of which every match of `pattern` contains one, in lower case; empty if there are none.

    Lower case whatever the pattern says of case, so that one lowered copy of a log serves all.
    """
    return _cover(parsed(pattern)) or ()


def plain_length(pattern: str) -> int:
    """How many characters of a match are given word for word, in the longest alternative."""
    return _plain(parsed(pattern))


@lru_cache(maxsize=1024)
def parsed(pattern: str) -> Nodes:
    """The parts of a pattern, as Python's own parser names them."""
    nodes: Any = parser.parse(pattern)
    return list(nodes)


def _cover(nodes: Nodes) -> tuple[str, ...] | None:
    """The best choice of texts such that every match contains one of them."""
    best: tuple[str, ...] | None = None
    for texts in _covers(nodes):
        if best is None or _worth(texts) > _worth(best):
            best = texts
    return best


def _worth(texts: tuple[str, ...]) -> tuple[bool, bool, int, int]:
    """Rare words are worth more than long texts: they decide how much of a log is read."""
    shortest = min(map(len, texts))
    return shortest >= SHORTEST, all(map(is_rare, texts)), shortest, -len(texts)


def _covers(nodes: Nodes) -> Iterator[tuple[str, ...]]:
    run = ""
    for op, value in (*nodes, ("END", None)):
        letter = _letter(str(op), value)
        if letter:
            run += letter
            continue
        if run:
            yield (run,)
        run = ""
        name = str(op)
        if name in ("SUBPATTERN", "ATOMIC_GROUP", *REPEATS):
            inner = _cover(body(name, value)) if name not in REPEATS or value[0] else None
            if inner:
                yield inner
        elif name == "BRANCH":
            parts = [_cover(part) for part in value[1]]
            if all(parts):
                yield tuple(dict.fromkeys(text for part in parts for text in part or ()))


def _letter(name: str, value: Any) -> str:
    """The one character that a node stands for, case aside; empty if there are several."""
    if name == "LITERAL":
        return chr(value).lower()
    if name == "IN" and all(str(op) == "LITERAL" for op, _ in value):
        letters = {chr(code).lower() for _, code in value}
        return letters.pop() if len(letters) == 1 else ""
    return ""


def body(name: str, value: Any) -> Nodes:
    """The nodes inside a group or a repetition."""
    nodes: Nodes = value if name == "ATOMIC_GROUP" else value[-1]
    return nodes


def _plain(nodes: Nodes) -> int:
    total = 0
    for op, value in nodes:
        name = str(op)
        if _letter(name, value):
            total += 1
        elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
            total += _plain(body(name, value))
        elif name == "BRANCH":
            total += max(map(_plain, value[1]))
        elif name in REPEATS:
            total += min(value[0], SMALL) * _plain(value[-1])
    return total
