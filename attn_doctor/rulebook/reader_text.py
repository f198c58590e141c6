"""A rule's conditions and texts for a reader who has no machine before them.

`wording.py` fills a rule with one machine's values; here the facts are named instead.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence

from attn_doctor.rulebook.conditions import Condition, show
from attn_doctor.rulebook.placeholders import PLACEHOLDER
from attn_doctor.rulebook.rule import FixFile, Group, Rule

#: An operator in words, and what it says where it must not hold.
_WORDS = {
    "==": ("is", "is not"),
    "!=": ("is not", "is"),
    "<": ("is below", "is at least"),
    "<=": ("is at most", "is above"),
    ">": ("is above", "is at most"),
    ">=": ("is at least", "is below"),
    "in": ("is one of", "is none of"),
    "not in": ("is none of", "is one of"),
    "contains": ("contains", "does not contain"),
    "satisfies": ("fits", "does not fit"),
    "matches": ("matches", "does not match"),
    "is known": ("is known", "is unknown"),
    "is unknown": ("is unknown", "is known"),
}


def named(text: str) -> str:
    """`text` with its facts named: `torch <torch.version> is a CPU build`."""
    return PLACEHOLDER.sub(r"<\1>", text)


def line(condition: Condition) -> str:
    """A condition as a rule file has it: `torch.build == "cpu"`."""
    if condition.op.startswith("is "):
        return f"{condition.fact} {condition.op}"
    value = condition.other or json.dumps(condition.value, ensure_ascii=False)
    return f"{condition.fact} {condition.op} {value}"


def phrase(condition: Condition, *, holds: bool = True) -> str:
    """A condition in words; `holds=False` says its opposite."""
    words = _WORDS[condition.op][not holds]
    if condition.op.startswith("is "):
        return f"{condition.fact} {words}"
    value = condition.other or show(condition.value) or "empty"
    if condition.kind == "boolean" and isinstance(condition.value, bool):
        # *is not yes* would make the reader think twice.
        return f"{condition.fact} is {show(condition.value == (words == 'is'))}"
    return f"{condition.fact} {words} {value}"


def phrases(group: Group) -> tuple[list[str], list[str]]:
    """A group in words: what all has to hold, and what of which one is enough."""
    every = [phrase(one) for one in group.all]
    every += [phrase(one, holds=False) for one in group.none]
    some = [phrase(one) for one in group.any]
    return (every, some) if len(some) != 1 else (every + some, [])


def commands(fix: FixFile) -> list[str]:
    """The commands of a fix as lines for a POSIX shell, with the facts they need named."""
    lines = [f"export {name}={_word(value)}" for name, value in fix.set.items()]
    lines += [f"unset {name}" for name in fix.unset]
    return lines + [" ".join(map(_word, argv)) for argv in fix.run]


def _word(part: str) -> str:
    """One argument, quoted if its own text needs it: `<torch.version>` alone does not."""
    name, equals, value = part.partition("=")
    if equals and name.isidentifier() and value:
        return f"{name}={_word(value)}"
    plain = PLACEHOLDER.sub("x", part)
    return named(part) if shlex.quote(plain) == plain else named(shlex.quote(part))


def conditions(rule: Rule) -> Iterator[Condition]:
    """Every condition line of a rule, those of its fixes included."""
    for group in (rule.applies, rule.when):
        yield from (*group.all, *group.any, *group.none)
    for lines in (*rule.fix_when, *rule.fix_done):
        yield from lines


def facts_named(rule: Rule) -> list[str]:
    """The facts that a rule judges or fills in, in the order in which it names them."""
    return list(dict.fromkeys(_facts(rule)))


def _facts(rule: Rule) -> Iterator[str]:
    for group in (rule.applies, rule.when):
        yield from _in_lines((*group.all, *group.any, *group.none))
    for text in (rule.title, rule.why):
        yield from PLACEHOLDER.findall(text)
    for fix, when, done in zip(rule.fixes, rule.fix_when, rule.fix_done, strict=True):
        yield from _in_lines(when)
        for text in (fix.title, fix.manual, fix.needs, *_parts(fix)):
            yield from PLACEHOLDER.findall(text)
        yield from _in_lines(done)


def _parts(fix: FixFile) -> Iterator[str]:
    """Every text of a fix's commands that may name a fact."""
    yield from fix.set.values()
    yield from (part for argv in fix.run for part in argv)


def _in_lines(lines: Sequence[Condition]) -> Iterator[str]:
    for one in lines:
        yield one.fact
        if one.other:
            yield one.other
