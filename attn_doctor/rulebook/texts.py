"""Texts and commands of a rule, filled for three readers.

`fill` puts a machine's values in, `fill_known` leaves out what a log does not say, and `named`
names the facts for a reader of the rule itself. `phrase` puts a condition into words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from attn_doctor.rulebook.conditions import Condition, Lookup, show
from attn_doctor.rulebook.rule import FixFile, Group, Rule

#: `{torch.version}` in a rule's text or command.
# A fact without a group is named here, since other words in braces are not facts.
PLACEHOLDER = r"\{([a-z_]\w*(?:\.\w+)+|unreadable_files)\}"
#: Values that no sentence or command can use.
_EMPTY = (None, "", ())

# With a machine's values


def fill(text: str, lookup: Lookup) -> str:
    """`text` with each `{fact}` replaced by its value, or by `unknown`."""
    if "{" not in text:
        return text
    return re.sub(PLACEHOLDER, lambda match: show(lookup(match[1])), text)


def unknown_in(text: str, lookup: Lookup) -> str:
    """The first fact in `text` that is unknown or empty, so that a command cannot use it."""
    names: list[str] = re.findall(PLACEHOLDER, text) if "{" in text else []
    return next((name for name in names if lookup(name) in _EMPTY), "")


# With the few values that a log gives

#: Written in place of an unknown fact that a sentence needs.
_SUBSTITUTES = {
    "extension.archs": "other GPUs",
    "extension.package": "the package",
    "extension.ptx": "other GPUs",
    "gpu.name": "the GPU",
    "incomplete.package": "a package",
    "incomplete.reason": "damaged",
    "manifest.device": "another GPU",
    "python.implementation": "another Python than CPython",
    "python.path": "python",
    "system.os": "this system",
    "torch.archs": "other GPUs",
    "xformers.built_torch": "of another release",
}
_SENTENCE = r"(?<=\.) +"
_CLAUSE = r"(?<=;) +|(?<=,) +(?=and |but |so |which )"
#: Signs that a sentence is incomplete without the values that were left out of it.
_INCOMPLETE = (
    r"\b(?:is|are|CUDA|for|with|in|to|beside|under|names)\.?$|:\.?$|``|^(?:is|points)\b"
    r"|\b(?:is|are|in|to|for|under)[,.]|built (?:for|with) \w+,|: MiB"
    r"|\b(?:in|to) is\b|\b(?:for|to) (?:and|itself)\b"
)


def fill_known(text: str, lookup: Lookup) -> str:
    """`text` with known facts filled in, and without the clauses that need unknown ones.

    The first clause stays without the unknown value, since it says what is wrong. A sentence that
    is incomplete without its value is left out, unless it is the only one.
    """
    if not _unknown(text, lookup):
        return fill(text, lookup)
    first, *others = re.split(_SENTENCE, text)
    kept = [_without_unknown(one, lookup) for one in others if not _needed(one, lookup)]
    joined = _complete(first, lookup)
    if joined or not kept:
        kept.insert(0, joined or first)
    return re.sub(PLACEHOLDER, lambda match: _or_dots(match[1], lookup), " ".join(kept))


def _complete(sentence: str, lookup: Lookup) -> str:
    """The sentence without unknown values; empty if it is incomplete without them."""
    main, *clauses = re.split(_CLAUSE, sentence)
    kept = [_without_unknown(main, lookup), *(c for c in clauses if not _needed(c, lookup))]
    joined = " ".join(kept).rstrip(",; ")
    if sentence.endswith(".") and not joined.endswith("."):
        joined += "."
    cut = re.search(_INCOMPLETE, joined) or (sentence[0] == "{" and joined[:1] != "{")
    return "" if cut else joined


def in_general(text: str) -> str:
    """`text` for no machine in particular: without the clauses that need a value."""
    return fill_known(text, lambda _: None)


def _or_dots(name: str, lookup: Lookup) -> str:
    value = lookup(name)
    return _SUBSTITUTES.get(name, "…") if value in _EMPTY else show(value)


def _unknown(text: str, lookup: Lookup) -> list[str]:
    names = re.findall(PLACEHOLDER, text) if "{" in text else ()
    return [name for name in names if lookup(name) in _EMPTY]


def _needed(text: str, lookup: Lookup) -> list[str]:
    """Unknown facts of a text that have no substitute."""
    return [name for name in _unknown(text, lookup) if name not in _SUBSTITUTES]


def _without_unknown(text: str, lookup: Lookup) -> str:
    """The text without unknown values: `torch {torch.version} is old` is `torch is old`."""
    for name in _unknown(text, lookup):
        text = re.sub(rf" ?\([^()]*{re.escape('{' + name + '}')}[^()]*\)", "", text)
    before, colon, behind = text.rpartition(": ")
    if colon and _needed(behind, lookup):
        text = before
    for name in _needed(text, lookup):
        value = re.escape("{" + name + "}")
        text = re.sub(rf"^{value} | ?(?:[=~<>+]+|\b(?:sm_|cu|cp|v))?{value}", "", text)
    return text


# With the facts named

#: An operator in words, and its opposite in words.
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
    return re.sub(PLACEHOLDER, r"<\1>", text)


def line(condition: Condition) -> str:
    """A condition as a rule file has it: `torch.build == "cpu"`."""
    if condition.op.startswith("is "):
        return f"{condition.fact} {condition.op}"
    import json

    value = condition.other or json.dumps(condition.value, ensure_ascii=False)
    return f"{condition.fact} {condition.op} {value}"


def phrase(condition: Condition, *, holds: bool = True) -> str:
    """A condition in words; `holds=False` says its opposite."""
    words = _WORDS[condition.op][not holds]
    if condition.op.startswith("is "):
        return f"{condition.fact} {words}"
    value = condition.other or show(condition.value) or "empty"
    if condition.kind == "boolean" and isinstance(condition.value, bool):
        # A double negation such as *is not yes* is hard to read.
        return f"{condition.fact} is {show(condition.value == (words == 'is'))}"
    return f"{condition.fact} {words} {value}"


def phrases(group: Group) -> tuple[list[str], list[str]]:
    """A group in words: the phrases that must all hold, and those of which one is enough."""
    every = [phrase(condition) for condition in group.all]
    every += [phrase(condition, holds=False) for condition in group.none]
    some = [phrase(condition) for condition in group.any]
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
    import shlex

    plain = re.sub(PLACEHOLDER, "x", part)
    return named(part) if shlex.quote(plain) == plain else named(shlex.quote(part))


def facts_named(rule: Rule) -> list[str]:
    """The facts that a rule evaluates or fills in, in the order in which it names them."""
    return list(dict.fromkeys(_facts(rule)))


def _facts(rule: Rule) -> Iterator[str]:
    for group in (rule.applies, rule.when):
        yield from _in_lines(group.lines)
    for text in (rule.title, rule.why):
        yield from re.findall(PLACEHOLDER, text)
    for fix, when, done in zip(rule.fixes, rule.fix_when, rule.fix_done, strict=True):
        yield from _in_lines(when)
        for text in (fix.title, fix.manual, fix.needs, *fix.set.values(), *sum(fix.run, ())):
            yield from re.findall(PLACEHOLDER, text)
        yield from _in_lines(done)


def _in_lines(conditions: Sequence[Condition]) -> Iterator[str]:
    for condition in conditions:
        yield from filter(None, (condition.fact, condition.other))
