"""Which calls of a backend fall under an advisory: a known fault without an error message.

An advisory is a rule with a table `[advisory]`. Its conditions on facts say whether the fault is on
this machine, as those of any rule; `calls` says which calls it concerns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from attn_doctor.backends.attention_call import KINDS, AttentionCall
from attn_doctor.errors import RuleError
from attn_doctor.findings import Advisory
from attn_doctor.rulebook.conditions import Condition, conjunction, parse

if TYPE_CHECKING:
    from attn_doctor.rulebook.fact_catalogue import Fact

#: Values of a call that follow from a size.
_FROM = {"past_128": "seq_len", "unfused_mib": "seq_len", "math_mib": "seq_len"}


#: Lines that a program has at most.
_LINES = 15


@cache
def call_facts() -> dict[str, Fact]:
    """The facts that `calls` may name."""
    from attn_doctor.rulebook.fact_catalogue import Fact

    return {
        name: Fact(name, kind, "")
        for kind, names in KINDS.items()
        for name in names
        if name.startswith("call.")
    }


@cache
def conditions(advisory: Advisory) -> tuple[Condition, ...]:
    """The parsed conditions of `calls`. Raises `RuleError`."""
    return tuple(parse(line, call_facts()) for line in advisory.calls)


def concerns(advisory: Advisory, call: AttentionCall) -> bool | None:
    """Whether a call falls under an advisory; None if that depends on what is not known of it."""

    def value(name: str) -> Any:
        field = name.partition(".")[2]
        return None if _FROM.get(field, field) in call.assumed else getattr(call, field)

    found = conjunction(line.truth(value) for line in conditions(advisory))
    return None if found and advisory.sometimes else found


def sentence(advisory: Advisory, *, certain: bool) -> str:
    """What is wrong, as the reason of a verdict."""
    where = advisory.where or "some calls"
    if certain:
        return (
            f"wrong results: {advisory.effect} ({where})"
            if advisory.where
            else (f"wrong results: {advisory.effect}")
        )
    return f"ready, except for {where}: {advisory.effect}"


def faults(advisory: Advisory) -> Iterator[str]:
    """What is wrong with an advisory itself, for the linter."""
    try:
        conditions(advisory)
    except RuleError as error:
        yield f"advisory.calls: {error}"
    lines = advisory.reproducer.strip().splitlines()
    if len(lines) > _LINES:
        yield f"advisory.reproducer has {len(lines)} lines; at most {_LINES} are read"
    try:
        re.compile(advisory.shows)
    except re.error as error:
        yield f"advisory.shows: {error}"
    if advisory.shows and not advisory.reproducer:
        yield "advisory.shows needs a reproducer"
    if not advisory.seen and not advisory.reported:
        yield "advisory needs `seen` (what we ran) or `reported` (what others did)"
    if advisory.sometimes and not advisory.where:
        yield "advisory.where has to say which of these calls are wrong"
