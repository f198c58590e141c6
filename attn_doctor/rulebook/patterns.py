"""What can be known of a symptom's pattern without running it: its plain text, and its dangers.

A log without the plain text that every match contains is never searched for the pattern, which is
what makes hundreds of rules quick. Python's regular expressions can take time that grows out of all
proportion to the text. A log may come from anywhere and be huge, so the work of a rule's pattern
must be bounded.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from attn_doctor.files import TEXT, read_text
from attn_doctor.rulebook.rule import Rule, Way

if sys.version_info >= (3, 11):
    from re import _parser as parser
else:
    import sre_parse as parser

#: The shortest plain text that is worth looking for.
_SHORTEST = 4
#: A repetition of at most this length costs next to nothing.
_SMALL = 16
#: Other texts of an alternative that are worth looking for: their least length, and their number.
_TELLING, _NEEDS = 3, 3
#: Characters on either side of a pattern's plain text that are searched, by its longest match.
_LEAST_REACH, _REACH = 500, 8000
#: The flags of a whole pattern, and the beginning of a group that nothing refers to.
_FLAGS, _GROUP = re.compile(r"\(\?([a-z]+)\)"), re.compile(r"\(\?[a-z]*:")
#: Names of repetitions in the parser.
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")

_Node = tuple[Any, Any]
_Nodes = Sequence[_Node]
#: Repeats that an unbounded repetition counts as: about the length of a long line.
_ENDLESS = 4000
#: Most steps of a pattern at one offset of the text; about ten milliseconds.
_STEPS = 1_000_000
#: Ways through the alternatives of a pattern that are examined.
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

# Plain text


def required_texts(pattern: str) -> tuple[str, ...]:
    """Texts of which every match of `pattern` contains one, in lower case; empty if there are none.

    Lower case whatever the pattern says of case, so that one lowered copy of a log serves all.
    """
    return _cover(_parsed(pattern)) or ()


@cache
def ways(pattern: str) -> tuple[Way, ...]:
    """The alternatives of a pattern, each with the plain texts that its matches contain.

    A log is searched only for those whose texts it has. Their patterns, joined by `|`, match what
    `pattern` matches, in the same order.
    """
    return tuple(map(_way, _alternatives(pattern)))


def plain_length(pattern: str) -> int:
    """The number of literal characters in a match, in the longest alternative."""
    return _plain(_parsed(pattern))


def _way(pattern: str) -> Way:
    tree = _tree(pattern)
    best = required_texts(pattern)
    others = {texts for texts in _all_covers(list(tree)) if min(map(len, texts)) >= _TELLING}
    rest = sorted(others - {best}, key=lambda texts: (_worth(texts), texts), reverse=True)
    within = not _leaves_line(list(tree), tree.state.flags)
    return Way(
        pattern=pattern,
        needs=(best, *rest[:_NEEDS]) if best else (),
        reach=0 if within else min(_REACH, max(_LEAST_REACH, tree.getwidth()[1])),
    )


def _alternatives(pattern: str) -> list[str]:
    """The outermost alternatives, each with the flags that hold for it."""
    begin, end = "", ""
    if head := _FLAGS.match(pattern):
        begin, end, inner = f"(?{head[1]}:", ")", pattern[head.end() :]
    elif (group := _GROUP.match(pattern)) and _closing(pattern, 0) == len(pattern) - 1:
        begin, end, inner = group[0], ")", pattern[group.end() : -1]
    elif len(parts := _split(pattern)) > 1:
        return [one for part in parts for one in _alternatives(part)]
    else:
        return [pattern]
    return [f"{begin}{one}{end}" for part in _split(inner) for one in _alternatives(part)]


def _split(pattern: str) -> list[str]:
    """The parts of a pattern between its outermost `|`."""
    parts, start, at = [], 0, 0
    while at < len(pattern):
        if pattern[at] == "|":
            parts.append(pattern[start:at])
            start = at + 1
        at = _closing(pattern, at) + 1
    return [*parts, pattern[start:]]


def _closing(pattern: str, at: int) -> int:
    """The offset at which what begins at `at` ends: a group, a class, or one character."""
    if pattern[at] == "\\":
        return at + 1
    if pattern[at] == "[":
        end = at + 2 + pattern.startswith("[^", at)
        while pattern[end - 1] != "]" or end - 1 == at + 1 + pattern.startswith("[^", at):
            end += 1 + (pattern[end - 1] == "\\")
        return end - 1
    if pattern[at] == "(":
        at += 1
        while pattern[at] != ")":
            at = _closing(pattern, at) + 1
    return at


def _leaves_line(nodes: _Nodes, flags: int) -> bool:
    """Whether a match, or what a match depends on, can reach beyond the line that it is on."""
    return any(_node_leaves_line(str(op), value, flags) for op, value in nodes)


def _node_leaves_line(name: str, value: Any, flags: int) -> bool:
    if name == "SUBPATTERN":
        return _leaves_line(value[3], (flags | value[1]) & ~value[2])
    if name == "BRANCH":
        return any(_leaves_line(part, flags) for part in value[1])
    if name in ("ASSERT", "ASSERT_NOT"):
        return _leaves_line(value[1], flags)
    if name in ("ATOMIC_GROUP", *_REPEATS):
        return _leaves_line(_body(name, value), flags)
    if name == "AT":
        whole = str(value) == "AT_END" and not flags & re.MULTILINE
        return whole or str(value) == "AT_END_STRING"
    if name == "ANY":
        return bool(flags & re.DOTALL)
    return 10 in _set(name, value)


def _parsed(pattern: str) -> _Nodes:
    """The parts of a pattern, as Python's own parser names them."""
    return list(_tree(pattern))


@lru_cache(maxsize=1024)
def _tree(pattern: str) -> Any:
    return parser.parse(pattern)


def _cover(nodes: _Nodes) -> tuple[str, ...] | None:
    """The best choice of texts such that every match contains one of them."""
    best: tuple[str, ...] | None = None
    for texts in _covers(nodes):
        if best is None or _worth(texts) > _worth(best):
            best = texts
    return best


def _worth(texts: tuple[str, ...]) -> tuple[bool, bool, int, int]:
    """The rank of a choice: rare words come before long texts, since they select less of a log."""
    shortest = min(map(len, texts))
    return shortest >= _SHORTEST, all(map(is_rare, texts)), shortest, -len(texts)


def _all_covers(nodes: _Nodes) -> Iterator[tuple[str, ...]]:
    """Every choice of texts, those inside groups included."""
    yield from _covers(nodes)
    for op, value in nodes:
        name = str(op)
        if name in ("SUBPATTERN", "ATOMIC_GROUP") or (name in _REPEATS and value[0]):
            yield from _all_covers(_body(name, value))


def _covers(nodes: _Nodes) -> Iterator[tuple[str, ...]]:
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
        if name in ("SUBPATTERN", "ATOMIC_GROUP", *_REPEATS):
            inner = _cover(_body(name, value)) if name not in _REPEATS or value[0] else None
            if inner:
                yield inner
        elif name == "BRANCH":
            parts = [_cover(part) for part in value[1]]
            if all(parts):
                yield tuple(dict.fromkeys(text for part in parts for text in part or ()))


def _letter(name: str, value: Any) -> str:
    """The one character that a node matches, in lower case; empty if there are several."""
    if name == "LITERAL":
        return chr(value).lower()
    if name == "IN" and all(str(op) == "LITERAL" for op, _ in value):
        letters = {chr(code).lower() for _, code in value}
        return letters.pop() if len(letters) == 1 else ""
    return ""


def _body(name: str, value: Any) -> _Nodes:
    """The nodes inside a group or a repetition."""
    nodes: _Nodes = value if name == "ATOMIC_GROUP" else value[-1]
    return nodes


def _plain(nodes: _Nodes) -> int:
    total = 0
    for op, value in nodes:
        name = str(op)
        if _letter(name, value):
            total += 1
        elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
            total += _plain(_body(name, value))
        elif name == "BRANCH":
            total += max(map(_plain, value[1]))
        elif name in _REPEATS:
            total += min(value[0], _SMALL) * _plain(value[-1])
    return total


# Keywords, by which a text is searched in a huge log. A symptom with an ordinary keyword makes
# `explain` search passages that it could skip.

_WORD = re.compile(r"[a-z_]{3,}")
#: Words of many logs and of ordinary prose, which say nothing about a failure.
_COMMON = Path(__file__).with_name("common_words.txt")


@cache
def _common_words() -> frozenset[str]:
    return frozenset(read_text(_COMMON, TEXT).split())


def keyword(text: str) -> str:
    """The rarest word of a text, in lower case; empty if it has none of three letters."""
    words: list[str] = _WORD.findall(text.lower())
    return max(words, key=_rarity, default="")


def is_rare(text: str) -> bool:
    """Some word of the text is in few logs."""
    word = keyword(text)
    return bool(word) and word not in _common_words()


def _rarity(word: str) -> tuple[bool, bool, int]:
    return word not in _common_words(), len(word) > 3, min(len(word), 12) + 4 * ("_" in word)


# Dangers


def pattern_faults(rule: Rule) -> Iterator[str]:
    """Patterns of a rule that could keep a reader of logs or facts busy forever."""
    for symptom in rule.symptoms:
        for pattern in symptom.patterns:
            for danger in dangers(pattern):
                yield f"symptom {pattern!r} {danger}"
        for pattern in symptom.exclusions:
            for danger in dangers(pattern, log=False):
                yield f"symptom {pattern!r} {danger}"
    for line in rule.conditions:
        if line.op == "matches" and not line.other:
            for danger in dangers(line.value, log=False):
                yield f"condition on {line.fact}: {line.value!r} {danger}"


def dangers(pattern: str, *, log: bool = True) -> list[str]:
    """Why `pattern` must not be used on a log, one sentence each; empty if it may be used.

    `log=False`: it is used on the value of a fact, which is short, so plain text is not required.
    """
    nodes = _parsed(pattern)
    found = list(dict.fromkeys(_constructs(nodes)))
    found += dict.fromkeys(_costs(nodes))
    if log and not any(len(text) >= _SHORTEST for text in required_texts(pattern)[:1]):
        found.append(
            f"has no plain text of {_SHORTEST} characters that every match contains; without it"
            " every line of a log would have to be searched"
        )
    return found


def _constructs(nodes: _Nodes, times: int = 1) -> Iterator[str]:
    """Constructs that cannot be matched in bounded time, or not by every engine.

    `times`: how often the repetitions around these nodes repeat them.
    """
    for op, value in nodes:
        name = str(op)
        if name in ("GROUPREF", "GROUPREF_EXISTS"):
            yield "refers back to a group; write out what is meant"
        elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
            yield from _constructs(_body(name, value), times)
        elif name in ("ASSERT", "ASSERT_NOT"):
            yield from _constructs(value[1], times)
        elif name == "BRANCH":
            for part in value[1]:
                yield from _constructs(part, times)
        elif name in _REPEATS:
            most = times * max(1, min(value[1], _ENDLESS))
            if value[1] > _SMALL:
                yield from _overlapping(value[-1])
            if most > _SMALL and value[1] > 1 and _ambiguous(_rows(value[-1])):
                yield (
                    "repeats a part whose length can vary and that can follow itself, as in"
                    " (a?){50}: each repeat doubles the ways; let it begin or end with a character"
                    " that the rest excludes"
                )
            yield from _constructs(value[-1], most)


def _overlapping(nodes: _Nodes) -> Iterator[str]:
    """Repeated alternatives with a common first character: each repeat doubles the ways."""
    for op, value in nodes:
        name = str(op)
        if name in ("SUBPATTERN", "ATOMIC_GROUP"):
            yield from _overlapping(_body(name, value))
        elif name == "BRANCH":
            firsts = [_firsts(part) for part in value[1]]
            clash = any(a & b for i, a in enumerate(firsts) for b in firsts[i + 1 :])
            if clash or not all(firsts):
                yield "repeats alternatives that can begin with the same character"


def _ambiguous(rows: list[_Row]) -> bool:
    """Whether a text can be divided among repeats of these rows in several ways."""
    if not all(any(piece.least for piece in row) for row in rows):
        return True  # it can be empty
    starts = frozenset[int]().union(*(_starts(row) for row in rows))
    for row in rows:
        for index, piece in enumerate(row):
            if piece.least == piece.most or piece.most >= _ENDLESS:
                continue  # `_costs` looks at repetitions without end
            rest = row[index + 1 :]
            follows = _starts(rest)
            if not any(one.least for one in rest):
                follows |= starts
            if follows & piece.chars:
                return True
    return False


def _starts(row: _Row) -> frozenset[int]:
    """The characters that a row can begin with."""
    chars: frozenset[int] = frozenset()
    for piece in row:
        chars |= piece.chars
        if piece.least:
            break
    return chars


class _Piece(NamedTuple):
    """Part of a row: the characters that it matches, and how often."""

    chars: frozenset[int]
    least: int
    most: int


_Row = list[_Piece]
#: An anchor or a lookaround: it matches no character.
_PLACE = _Piece(frozenset(), 0, 0)


def _costs(nodes: _Nodes) -> Iterator[str]:
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
    """The number of ways for one repetition and those that can share its text."""
    start = row[index]
    steps = _choices(start)
    if steps == 1:
        return 0
    between: _Row = []
    for piece in row[index + 1 :]:
        apart = any(not one.chars & start.chars or not one.chars & piece.chars for one in between)
        if piece.chars & start.chars and not apart:
            steps *= _choices(piece)
        if piece.least:
            between.append(piece)
    return steps


def _choices(piece: _Piece) -> int:
    """The number of lengths that a piece can have; for a long one its length, an upper bound."""
    return piece.most if piece.most > _SMALL else piece.most - piece.least + 1


def _lookarounds(nodes: _Nodes) -> Iterator[_Nodes]:
    for op, value in nodes:
        name = str(op)
        if name in ("ASSERT", "ASSERT_NOT"):
            yield value[1]
            yield from _lookarounds(value[1])
        elif name in ("SUBPATTERN", "ATOMIC_GROUP", *_REPEATS):
            yield from _lookarounds(_body(name, value))
        elif name == "BRANCH":
            for part in value[1]:
                yield from _lookarounds(part)


def _rows(nodes: _Nodes) -> list[_Row]:
    """The pattern as a flat row, once for each way through its alternatives."""
    rows: list[_Row] = [[]]
    for op, value in nodes:
        # Of a pattern with more ways than this, the first of them decide.
        rows = [row + way for row in rows for way in _ways(str(op), value)][:_WAYS]
    return rows


def _ways(name: str, value: Any) -> list[_Row]:
    if name in ("AT", "ASSERT", "ASSERT_NOT", "GROUPREF", "GROUPREF_EXISTS"):
        return [[_PLACE]]
    if name in ("SUBPATTERN", "ATOMIC_GROUP"):
        return _rows(_body(name, value))
    if name == "BRANCH":
        return [row for part in value[1] for row in _rows(part)]
    if name in _REPEATS:
        return _repeated(value[0], min(value[1], _ENDLESS), _rows(value[-1]))
    return [[_Piece(_set(name, value), 1, 1)]]


def _repeated(least: int, most: int, bodies: list[_Row]) -> list[_Row]:
    if most == 1 and least:
        return bodies
    pieces = [piece for row in bodies for piece in row]
    chars = frozenset[int]().union(*(piece.chars for piece in pieces))
    short = all(piece.most <= _SMALL for piece in pieces)
    if most == 1 and short and len(bodies) == 1:
        # One row in place of two: the ways through many optional parts would be too many.
        return [[piece._replace(least=0) for piece in pieces]]
    if most == 1 and short:
        return [[_Piece(chars, 0, min(_SMALL, max(map(_longest, bodies))))]]
    if most == 1:
        return [*bodies, []]
    if short:
        return [[_Piece(chars, min(least, 1), most)]]
    # A repetition inside a repetition: what the body ends with meets what it begins with.
    return [row + following for row in bodies for following in bodies]


def _longest(row: _Row) -> int:
    return sum(piece.most for piece in row)


def _set(name: str, value: Any) -> frozenset[int]:
    """The characters that a node matches, of the first 256; all others count as the last."""
    if name == "LITERAL":
        return frozenset({value if value < 256 else 255})
    if name == "NOT_LITERAL":
        return _EVERYTHING - {value}
    if name == "ANY":
        return _EVERYTHING - {10}
    if name == "IN":
        return _class(value)
    return _EVERYTHING


def _class(items: Sequence[_Node]) -> frozenset[int]:
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


def _firsts(nodes: _Nodes) -> frozenset[int]:
    """The characters that a part can begin with; empty if it can be empty."""
    chars: set[int] = set()
    for row in _rows(nodes):
        piece = next((one for one in row if one.most), None)
        if piece is None or not piece.least:
            return frozenset()
        chars |= piece.chars
    return frozenset(chars)
