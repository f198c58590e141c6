"""A rule as Markdown, for a wiki or an issue. Text between backticks stays code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from attn_doctor.render.findings.markdown import code_language, escape, fenced
from attn_doctor.render.rules.text import SAFETY, advisory_keys, rule_keys
from attn_doctor.render.terminal import clean
from attn_doctor.rulebook.conditions import Condition
from attn_doctor.rulebook.programs import with_options
from attn_doctor.rulebook.rule import FixFile, Group, Rule
from attn_doctor.rulebook.texts import (
    commands,
    named,
    phrase,
    phrases,
)

#: A fact in a command, which stands for its value.
_VALUE = re.compile(r"<[a-z_]\w*(?:\.\w+)+>")


def rule_markdown(rule: Rule, *, meaning: str = "", explains: Sequence[str] = ()) -> str:
    """The page. `meaning` is the cause's, `explains` the rules that this one explains."""
    lines = [
        f"### `{rule.id}`: {prose(rule.title)}",
        "",
        prose(rule.why),
        "",
        *keys(rule, meaning, explains),
        "",
        *conditions("Applies where", rule.applies),
        *conditions("Is a problem if", rule.when),
        *advisory(rule),
        *_symptoms(rule),
        *(line for number, fix in enumerate(rule.fixes) for line in remedy(rule, number, fix)),
        f"**Evidence**, read on {rule.checked.isoformat()}:",
        "",
        *(f"- <{link}>" for link in rule.evidence),
    ]
    return "\n".join(lines) + "\n"


def cause_markdown(cause: str, meaning: str, rules: Sequence[Rule]) -> str:
    """A cause and its rules."""
    lines = [f"### Cause `{cause}`", ""]
    lines += [prose(meaning), ""] if meaning else []
    lines += [f"- `{rule.id}` ({rule.severity}): {prose(rule.title)}" for rule in rules]
    return "\n".join(lines) + "\n"


def keys(rule: Rule, meaning: str, explains: Sequence[str]) -> Iterator[str]:
    """What is stated of a rule in one line each."""
    yield f"- severity: {rule.severity}"
    yield f"- cause: `{rule.cause}`" + (f" ({prose(meaning.rstrip('.'))})" if meaning else "")
    for label, values, identifiers in rule_keys(rule, explains):
        yield f"- {label}: {_code(values) if identifiers else prose(', '.join(values))}"


def conditions(heading: str, group: Group) -> Iterator[str]:
    """A group in words; nothing for an empty one."""
    every, some = phrases(group)
    if not every and not some:
        return
    yield from (f"**{heading}**", "")
    yield from (f"- {escape(line)}" for line in every)
    if some:
        yield "- at least one of these holds:"
        yield from (f"    - {escape(line)}" for line in some)
    yield ""


def advisory(rule: Rule) -> Iterator[str]:
    """What a fault without an error does, and the program that shows it."""
    if rule.advisory is None:
        return
    yield from ("**Wrong results without an error**", "")
    for label, values in advisory_keys(rule.advisory):
        yield f"- {label}: {escape('; '.join(values))}"
    yield ""
    if rule.advisory.reproducer:
        program = rule.advisory.reproducer.strip().splitlines()
        yield from ("**Program that shows it**", "", *fenced("python", program), "")


def _symptoms(rule: Rule) -> Iterator[str]:
    if not rule.symptoms:
        return
    yield from ("**Appears in a log as**", "")
    lines = (line for one in rule.symptoms for line in one.lines[0].rstrip().splitlines())
    yield from (*fenced("text", lines), "")


def remedy(rule: Rule, number: int, fix: FixFile) -> Iterator[str]:
    """One fix with its commands; `number` is its place in the rule, counted from 0."""
    fix = with_options(fix) if fix.instead_of else fix
    notes = [SAFETY[fix.safety], *([f"needs {fix.needs}"] if fix.needs else [])]
    yield f"**Fix:** {prose(fix.title)} ({prose('; '.join(notes))})"
    yield ""
    if rule.fix_when[number]:
        yield f"Where {_joined(rule.fix_when[number])}."
        yield ""
    if fix.printed:
        yield f"Where the log matches {_code(fix.printed)}."
        yield ""
    if fix.manual:
        yield prose(fix.manual)
        yield ""
    if fix.code:
        yield from (*fenced(code_language(fix.code), fix.code.splitlines()), "")
    if fix.run or fix.set or fix.unset:
        lines = [clean(one) for one in commands(fix)]
        yield from (*fenced("sh", lines), "")
        if values := dict.fromkeys(_VALUE.findall("\n".join(lines))):
            yield f"`attn-doctor check` prints it with your machine's values for {_code(values)}."
            yield ""
    if rule.fix_done[number]:
        yield f"Done when {_joined(rule.fix_done[number])}."
        yield ""


def _joined(lines: Iterable[Condition]) -> str:
    return escape(" and ".join(phrase(one) for one in lines))


def prose(text: str) -> str:
    """Text with facts named, in which only code between backticks is markup."""
    parts = re.split(r"(`[^`\n]+`)", named(" ".join(text.split())))
    return "".join(clean(part) if part.startswith("`") else escape(part) for part in parts)


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
