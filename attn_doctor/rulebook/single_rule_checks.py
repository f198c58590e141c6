"""In what one rule is at fault by itself: examples, lines and patterns, each as one sentence.

`lint` asks this of every rule, `rules test` shows it for each, and a team's rules are refused for
patterns alone. What a rule says of others is not seen here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from attn_doctor.findings import Verdict
from attn_doctor.rulebook.evaluate import judge_rule
from attn_doctor.rulebook.patterns import dangers
from attn_doctor.rulebook.reader_text import conditions
from attn_doctor.rulebook.rule import Example, Rule, Symptom
from attn_doctor.rulebook.rule_files import example_facts

_WORST = (Verdict.PROBLEM, Verdict.UNKNOWN, Verdict.OK, Verdict.NOT_APPLICABLE)


def outcome(rule: Rule, example: Example) -> tuple[Verdict, list[str]]:
    """The worst verdict of a rule on an example's facts, and the commands it offers."""
    findings = judge_rule(rule, example_facts(example.name, example.facts))
    commands = [" ".join(argv) for one in findings for fix in one.fixes for argv in fix.run]
    return worst({finding.verdict for finding in findings}), commands


def example_fault(rule: Rule, example: Example) -> str:
    """In what the rule disagrees with an example; empty if it does not."""
    verdict, commands = outcome(rule, example)
    if verdict.value != example.expect:
        return f"example {example.name!r}: expected {example.expect}, got {verdict.value}"
    if example.run is not None and list(example.run) != commands:
        return f"example {example.name!r}: expected {list(example.run)}, got {commands}"
    return ""


def pattern_faults(rule: Rule) -> Iterator[str]:
    """Patterns that could keep a reader of logs or facts busy for ever."""
    for symptom in rule.symptoms:
        for danger in dangers(symptom.pattern):
            yield f"symptom {symptom.pattern!r} {danger}"
    for line in conditions(rule):
        if line.op == "matches" and not line.other:
            for danger in dangers(line.value, log=False):
                yield f"condition on {line.fact}: {line.value!r} {danger}"


def symptom_fault(symptom: Symptom, line: str) -> str:
    """Says so if a symptom does not match a line that it claims; else empty."""
    if re.search(symptom.pattern, line):
        return ""
    return f"symptom {symptom.pattern!r} does not match its own line {line!r}"


def worst(found: set[Verdict]) -> Verdict:
    """The verdict of those found that an example names; not applicable where none was."""
    return next((one for one in _WORST if one in found), Verdict.NOT_APPLICABLE)
