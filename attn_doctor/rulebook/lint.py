"""The linter for rules: each must say what it must, and every line of it must matter.

A rule that loads is well formed (`reading.py`). Here its examples are run, each of its condition
lines is dropped in turn to see whether an example notices, each symptom is held against the real
lines it claims to match, and its references are followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.findings import Verdict
from attn_doctor.rulebook.evaluate import judge_rule
from attn_doctor.rulebook.library import read_folder, read_tables
from attn_doctor.rulebook.reading import example_facts
from attn_doctor.rulebook.rule import Example, Group, Rule

__all__ = ["Complaint", "lint", "lint_rule"]

_WORST = (Verdict.PROBLEM, Verdict.UNKNOWN, Verdict.OK, Verdict.NOT_APPLICABLE)


class Complaint(Struct, frozen=True):
    """One thing that is wrong with one rule, or with a table."""

    rule: str
    text: str


def lint(folder: Path) -> tuple[tuple[Rule, ...], list[Complaint]]:
    """The rules of a folder and all complaints about them.

    Raises `RuleError` where a file cannot be read as a rule at all.
    """
    rules = read_folder(folder)
    causes = read_tables(folder).get("causes", {}).get("cause", {})
    complaints = [
        Complaint(rule.id, text)
        for rule in rules
        for text in (*lint_rule(rule), *_references(rule, rules, causes))
    ]
    return rules, complaints


def lint_rule(rule: Rule) -> Iterator[str]:
    """What is wrong with one rule by itself."""
    if rule.judges:
        expected = {example.expect for example in rule.examples}
        missing = [verdict for verdict in ("problem", "ok", "unknown") if verdict not in expected]
        if missing:
            yield f"needs an example with expect = {' and one with '.join(map(repr, missing))}"
        yield from _examples(rule)
        yield from _guards(rule)
    if rule.severity != "info" and not rule.fixes:
        yield "has no [[fix]]; say at least what a person should do (`manual`)"
    for fix in rule.fixes:
        if not (fix.run or fix.set or fix.unset or fix.manual):
            yield f"fix {fix.title!r} has neither `run`, `set`, `unset` nor `manual`"
    for symptom in rule.symptoms:
        for line in symptom.logs:
            if not re.search(symptom.pattern, line):
                yield f"symptom {symptom.pattern!r} does not match its own line {line!r}"
    if rule.checked > date.today():
        yield f"was checked on {rule.checked}, which is to come"


def outcome(rule: Rule, example: Example) -> tuple[Verdict, list[str]]:
    """The worst verdict of a rule on an example's facts, and the commands it offers."""
    findings = judge_rule(rule, example_facts(example.name, example.facts))
    verdicts = {finding.verdict for finding in findings}
    worst = next((one for one in _WORST if one in verdicts), Verdict.NOT_APPLICABLE)
    commands = [" ".join(argv) for one in findings for fix in one.fixes for argv in fix.run]
    return worst, commands


def _examples(rule: Rule) -> Iterator[str]:
    for example in rule.examples:
        verdict, commands = outcome(rule, example)
        if verdict.value != example.expect:
            yield f"example {example.name!r}: expected {example.expect}, got {verdict.value}"
        elif example.run is not None and list(example.run) != commands:
            yield f"example {example.name!r}: expected {list(example.run)}, got {commands}"


def _guards(rule: Rule) -> Iterator[str]:
    """Lines that could be deleted without any example noticing."""
    outcomes = [outcome(rule, example)[0] for example in rule.examples]
    for name, without in _reduced(rule):
        if [outcome(without, example)[0] for example in rule.examples] == outcomes:
            yield f"{name} is guarded by no example: all give the same verdict without it"


def _reduced(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """The rule without each of its condition lines in turn, and which line it was."""
    for group_name in ("applies", "when"):
        group: Group = getattr(rule, group_name)
        for part in ("all", "any", "none"):
            lines: Sequence[object] = getattr(group, part)
            for index in range(len(lines)):
                rest = (*lines[:index], *lines[index + 1 :])
                smaller = replace(group, **{part: rest})
                yield (
                    f"{group_name}.{part} line {index + 1}",
                    replace(rule, **{group_name: smaller}),
                )
    if rule.platforms:
        yield "platforms", replace(rule, platforms=())


def _references(rule: Rule, rules: tuple[Rule, ...], causes: dict[str, object]) -> Iterator[str]:
    known = {one.id for one in rules}
    for needed in rule.requires:
        if needed not in known:
            yield f"requires {needed!r}, which is no rule"
        elif needed == rule.id:
            yield "requires itself"
        elif rule.id in _behind(needed, {one.id: one.requires for one in rules}):
            # Each would be explained by the other, and neither be shown as the root.
            yield f"requires {needed!r}, which requires it in turn"
    if causes and rule.cause not in causes:
        yield f"cause {rule.cause!r} is not in tables/causes.toml"


def _behind(id: str, requires: Mapping[str, Sequence[str]]) -> set[str]:
    """Every rule that the rule `id` requires, by way of others too."""
    found: set[str] = set()
    pending = [id]
    while pending:
        for needed in requires.get(pending.pop(), ()):
            if needed not in found:
                found.add(needed)
                pending.append(needed)
    return found
