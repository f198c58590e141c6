"""The condition language: one comparison a line, three truth values, no evaluation of code.

    line      = fact operator value | fact "is known" | fact "is unknown"
    operator  = == != < <= > >= in "not in" contains satisfies matches
    value     = "text" | number | true | false | ["…", …] | fact

A fact that could not be read makes its line *unknown*, and groups of lines follow Kleene's
logic: a gap causes neither a false alarm nor a false "ok". Versions compare by PEP 440;
a local part (`+cu130`) counts only if the line names one, and `2.10.0a0` counts as 2.10, since
builds of a release by vendors have such versions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from attn_doctor.errors import RuleError
from attn_doctor.json_files import JsonError, decode
from attn_doctor.requirement import AnyVersion, names_prerelease, parsed, satisfies, without_local

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attn_doctor.rulebook.fact_catalogue import Fact

#: Gives the value of a fact by its name, None if it is unknown.
Lookup = Callable[[str], Any]

_ORDERS = ("==", "!=", "<=", ">=", "<", ">")
_WORDS = ("not in", "in", "contains", "satisfies", "matches")
_OPPOSITE = {
    "==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">",
    "in": "not in", "not in": "in", "contains": "without", "satisfies": "not",
    "matches": "not matching", "is known": "unknown", "is unknown": "known",
}  # fmt: skip
#: Operators that can follow each kind of fact.
_OPERATORS = {
    "version": {*_ORDERS, "in", "not in", "satisfies", "matches"},
    "number": {*_ORDERS, "in", "not in"},
    "boolean": {"==", "!="},
    "text": {"==", "!=", "in", "not in", "contains", "matches"},
    "list": {"==", "!=", "contains"},
}


class Condition(Struct, frozen=True, array_like=True):
    """One line, parsed. `other` names the fact on the right where there is one."""

    fact: str
    op: str
    kind: str
    value: Any = None
    other: str = ""

    def truth(self, lookup: Lookup, *, partial: bool = False) -> bool | None:
        """True, false, or None where a fact it needs is unknown.

        `partial`: the facts are not all that could be known, as those of a log are not, so that
        `is known` is itself unknown for a fact without a value.
        """
        seen = lookup(self.fact)
        if self.op in ("is known", "is unknown"):
            return None if partial and seen is None else (seen is None) == (self.op == "is unknown")
        wanted = lookup(self.other) if self.other else self.value
        if seen is None or wanted is None:
            return None
        try:
            return _compare(self.kind, self.op, seen, wanted)
        except ValueError:  # no version, or no specifier
            # A version such as `unknown` or `2.4-custom`: it was read, but cannot be compared.
            return None

    def wanted(self, lookup: Lookup, *, fault: bool) -> str:
        """The value that the fact should have. `fault`: the truth of the line that is a fault."""
        op = _OPPOSITE[self.op] if fault else self.op
        if self.op.startswith("is "):
            return op.removeprefix("is ")
        value = lookup(self.other) if self.other else self.value
        text = "unknown" if value is None else show(value)
        if self.kind == "boolean" and isinstance(value, bool):
            return show(value == (op == "=="))
        if op in ("==", "satisfies"):
            return text or "none"
        if op == "!=" and text == "":
            return "some"
        if op == "<=" and text == "0":
            return "0"  # no number here is negative
        symbol = {"!=": "not", "<=": "≤", ">=": "≥", "in": "one of", "not in": "none of"}
        return f"{symbol.get(op, op)} {text}".strip()


def show(value: Any) -> str:
    """A fact's value as a reader sees it."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(show(item) or "empty" for item in value) or "none"
    return str(value)


def conjunction(truths: Iterable[bool | None]) -> bool | None:
    """Kleene's *and*: false if any is false, else unknown if any is unknown."""
    result: bool | None = True
    for truth in truths:  # what follows a false one is not evaluated
        if truth is False:
            return False
        if truth is None:
            result = None
    return result


def disjunction(truths: Iterable[bool | None]) -> bool | None:
    """Kleene's *or*: true if any is true, else unknown if any is unknown."""
    result: bool | None = False
    for truth in truths:  # what follows a true one is not evaluated
        if truth is True:
            return True
        if truth is None:
            result = None
    return result


def negation(truth: bool | None) -> bool | None:
    """Kleene's *not*: unknown stays unknown."""
    return None if truth is None else not truth


def parse(line: str, facts: Mapping[str, Fact], element: str = "") -> Condition:
    """Parse one line. `element` is the name that `for_each` gives; its facts may be used.

    Raises `RuleError` that says what is wrong and, for a misspelt fact, the nearest name.
    """
    name, op, text = _parts(line.strip())
    kind = _kind(name, facts, element)
    if not text:
        return Condition(name, op, kind)
    if op not in _OPERATORS[kind]:
        operators = " ".join(sorted(_OPERATORS[kind]))
        raise RuleError(f"`{op}` does not fit {name}, a {kind}; use one of {operators}")
    if "." in text and text.replace(".", "_").isidentifier():
        other = _kind(text, facts, element)
        _check_pair(name, kind, op, text, other)
        return Condition(name, op, kind, None, text)
    try:
        value = decode(text)
    except JsonError:
        raise RuleError(f"{text} is neither a value (text needs quotes) nor a fact") from None
    _check_value(name, kind, op, value)
    return Condition(name, op, kind, value)


def _parts(line: str) -> tuple[str, str, str]:
    """The fact, the operator and the rest of a line. Raises `RuleError`.

    Without a regular expression, which takes longer to compile than the lines of a check.
    """
    name, _, rest = line.partition(" ")
    rest = rest.lstrip(" ")
    if rest in ("is known", "is unknown"):
        return name, rest, ""
    op = next((one for one in (*_ORDERS, *_WORDS) if rest.startswith(f"{one} ")), "")
    text = rest[len(op) :].strip()
    if not op or not text or not name.replace(".", "_").isidentifier():
        operators = " ".join((*_ORDERS, *_WORDS, "is known", "is unknown"))
        raise RuleError(f"{line!r} is not `fact operator value`; operators: {operators}")
    return name, op, text


def _kind(name: str, facts: Mapping[str, Fact], element: str) -> str:
    fact = facts.get(name)
    if fact is not None and (not fact.element_of or name.split(".", maxsplit=1)[0] == element):
        return fact.kind
    if fact is not None:
        raise RuleError(f'{name} needs `for_each = "{fact.element_of}"`')
    from attn_doctor.suggest import hint

    raise RuleError(f"no fact {name!r}{hint(name, facts, count=1)}")


def _check_pair(name: str, kind: str, op: str, other: str, other_kind: str) -> None:
    """The kinds of two facts in one line must be comparable by the operator."""
    fits = {
        "satisfies": other_kind == "text",
        "in": other_kind == "list",
        "not in": other_kind == "list",
        "contains": True,
    }.get(op, kind == other_kind)
    if not fits:
        raise RuleError(f"`{name} {op} {other}` compares a {kind} with a {other_kind}")


def _check_value(name: str, kind: str, op: str, value: Any) -> None:
    """The value on the right must be one that the fact can have."""
    wanted: tuple[type, ...] = (str,)
    if op in ("in", "not in"):
        fits = isinstance(value, list) and bool(value)
    elif op == "contains":
        fits = isinstance(value, (str, int))
    else:
        wanted = {"number": (int, float), "boolean": (bool,), "list": (list,)}.get(kind, (str,))
        fits = isinstance(value, wanted) and (kind == "boolean") == isinstance(value, bool)
    if not fits:
        raise RuleError(f"{name} is a {kind}: {_written(value)} does not fit `{op}`")
    try:
        if op == "satisfies":
            names_prerelease(value)
        elif op == "matches":
            re.compile(value)
        elif kind == "version":
            for version in value if isinstance(value, list) else [value]:
                # The empty version means that there is none.
                _ = version and parsed(version)
    except (ValueError, re.error) as error:
        raise RuleError(f"{name} {op} {_written(value)}: {error}") from None


def _written(value: Any) -> str:
    """`value` as a line of a rule has it."""
    import json  # only mistakes need it

    return json.dumps(value)


def _compare(kind: str, op: str, seen: Any, wanted: Any) -> bool:
    if op in ("==", "!=") and kind != "version" and not isinstance(seen, tuple):
        return bool(seen == wanted) == (op == "==")  # nine comparisons of ten
    if op == "matches":
        return re.search(wanted, seen) is not None
    if op == "contains":
        return bool(wanted in seen)
    if op == "satisfies":
        return _satisfies(seen, wanted)
    if kind == "version":
        if op in ("in", "not in"):
            return any(_ordered("==", seen, version) for version in wanted) == (op == "in")
        return _ordered(op, seen, wanted)
    if op in ("in", "not in"):
        return bool(seen in wanted) == (op == "in")
    if isinstance(seen, tuple):
        wanted = tuple(wanted)
    return _apply(op, seen, wanted)


def _apply(op: str, left: Any, right: Any) -> bool:
    """A plain comparison."""
    if op in ("==", "!="):
        return bool(left == right) == (op == "==")
    if op in ("<", ">="):
        return bool(left < right) == (op == "<")
    return bool(left > right) == (op == ">")


def _ordered(op: str, seen: str, wanted: str) -> bool:
    if not seen or not wanted:
        # The empty version means that there is none; it equals only itself and has no order.
        if op in ("==", "!="):
            return (seen == wanted) == (op == "==")
        raise ValueError(seen or wanted)
    if op in ("<", ">=") and "+" not in wanted:
        # What was read is compared as a final version, for which both bounds are the same.
        wanted = wanted.removesuffix(".dev0")
    return _apply(op, _version(seen, "+" in wanted), _version(wanted, True))


@lru_cache(maxsize=512)
def _version(text: str, local: bool) -> AnyVersion:
    if local:
        return parsed(text)
    version = without_local(text)
    # Pre-release and development parts go, post-releases (`2.7.4.post1`) stay.
    post = "" if version.post is None else f".post{version.post}"
    return parsed(".".join(map(str, version.release)) + post)


@lru_cache(maxsize=512)
def _satisfies(seen: str, wanted: str) -> bool:
    # A package of a nightly requires that nightly: `==2.13.0.dev20261101`.
    whole = "+" in wanted or names_prerelease(wanted)
    return satisfies(str(_version(seen, whole)), wanted)
