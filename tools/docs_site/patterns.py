"""The patterns of rules for a browser: Python's regular expressions as those of JavaScript.

A pattern is parsed by Python itself and written again without flags, since JavaScript has none
inside a pattern: a letter of any case becomes a class.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from attn_doctor.rulebook.patterns import plain_length
from attn_doctor.rulebook.rule import Rule, Symptom

if sys.version_info >= (3, 11):
    from re import _constants as codes
    from re import _parser as parser
else:
    import sre_constants as codes
    import sre_parse as parser

_CLASSES = {
    codes.CATEGORY_DIGIT: r"\d",
    codes.CATEGORY_NOT_DIGIT: r"\D",
    codes.CATEGORY_SPACE: r"\s",
    codes.CATEGORY_NOT_SPACE: r"\S",
    codes.CATEGORY_WORD: r"\w",
    codes.CATEGORY_NOT_WORD: r"\W",
}
_AT = {
    codes.AT_BEGINNING_STRING: r"^",
    codes.AT_END_STRING: r"$",
    codes.AT_BOUNDARY: r"\b",
    codes.AT_NON_BOUNDARY: r"\B",
}


def listed(rules: Iterable[Rule], titles: dict[str, str]) -> list[list[Any]]:
    """Each rule with symptoms: id, title, and for each symptom the pattern and its plain length."""
    return [
        [
            rule.id,
            titles[rule.id],
            [[_together(one), plain_length(one.pattern)] for one in rule.symptoms],
        ]
        for rule in rules
        if rule.symptoms
    ]


def _together(symptom: Symptom) -> str:
    """One pattern for all patterns of a symptom, in any order."""
    own = javascript(symptom.pattern)
    if symptom.without:
        denied = "|".join(map(javascript, symptom.without))
        own = rf"(?<![^\n])(?![^\n]*?(?:{denied}))[^\n]*?(?:{own})"
    others = "".join(rf"(?=[\s\S]*?(?:{javascript(pattern)}))" for pattern in symptom.near)
    others += "".join(rf"(?![\s\S]*?(?:{javascript(pattern)}))" for pattern in symptom.absent)
    return rf"^{others}[\s\S]*?(?:{own})" if others else own


def javascript(pattern: str) -> str:
    """`pattern` for JavaScript's `RegExp`, without flags. Raises `NotImplementedError`."""
    parsed: Any = parser.parse(pattern)
    return _sequence(parsed, parsed.state.flags)


def _sequence(items: Iterable[Any], flags: int) -> str:
    return "".join(_item(op, value, flags) for op, value in items)


def _item(op: Any, value: Any, flags: int) -> str:  # noqa: C901 - one line for each kind
    if op is codes.LITERAL:
        return _literal(value, flags)
    if op is codes.NOT_LITERAL:
        return f"[^{_in_class(value, flags)}]"
    if op is codes.ANY:
        return r"[\s\S]" if flags & re.DOTALL else r"[^\n]"
    if op is codes.IN:
        return _class(value, flags)
    if op is codes.AT:
        return _at(value, flags)
    if op is codes.BRANCH:
        return f"(?:{'|'.join(_sequence(one, flags) for one in value[1])})"
    if op is codes.SUBPATTERN:
        group, added, removed, items = value
        inner = _sequence(items, (flags | added) & ~removed)
        return f"({inner})" if group else f"(?:{inner})"
    if op in (codes.MAX_REPEAT, codes.MIN_REPEAT):
        return _repeat(value, flags) + ("?" if op is codes.MIN_REPEAT else "")
    if op in (codes.ASSERT, codes.ASSERT_NOT):
        direction, items = value
        sign = ("=" if op is codes.ASSERT else "!") if direction > 0 else None
        sign = sign or ("<=" if op is codes.ASSERT else "<!")
        return f"(?{sign}{_sequence(items, flags)})"
    if op is codes.GROUPREF:
        return f"(?:\\{value})"
    raise NotImplementedError(f"no JavaScript for {op}")


def _repeat(value: Sequence[Any], flags: int) -> str:
    least, most, items = value
    upper = "" if most is codes.MAXREPEAT else most
    return f"(?:{_sequence(items, flags)}){{{least},{upper}}}"


def _at(value: Any, flags: int) -> str:
    if value is codes.AT_BEGINNING:
        return r"(?<![^\n])" if flags & re.MULTILINE else "^"
    if value is codes.AT_END:
        return r"(?![^\n])" if flags & re.MULTILINE else r"(?=\n?$)"
    return _AT[value]


def _literal(code: int, flags: int) -> str:
    letters = _cases(code, flags)
    return f"[{''.join(map(_escaped, letters))}]" if len(letters) > 1 else _escaped(letters[0])


def _cases(code: int, flags: int) -> list[int]:
    if not flags & re.IGNORECASE:
        return [code]
    letter = chr(code)
    return sorted({ord(one) for one in (letter.lower(), letter.upper()) if len(one) == 1})


def _escaped(code: int) -> str:
    letter = chr(code)
    return letter if letter.isascii() and letter.isalnum() else f"\\u{code:04x}"


def _class(items: Sequence[Any], flags: int) -> str:
    negated = bool(items) and items[0][0] is codes.NEGATE
    parts = "".join(_member(op, value, flags) for op, value in items[negated:])
    return f"[{'^' if negated else ''}{parts}]"


def _member(op: Any, value: Any, flags: int) -> str:
    if op is codes.LITERAL:
        return _in_class(value, flags)
    if op is codes.CATEGORY:
        return _CLASSES[value]
    first, last = value  # a range
    shown = f"{_escaped(first)}-{_escaped(last)}"
    if flags & re.IGNORECASE and chr(first).isalpha():
        other = chr(first).swapcase(), chr(last).swapcase()
        shown += f"{_escaped(ord(other[0]))}-{_escaped(ord(other[1]))}"
    return shown


def _in_class(code: int, flags: int) -> str:
    return "".join(map(_escaped, _cases(code, flags)))
