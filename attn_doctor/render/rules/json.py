"""Rules as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from attn_doctor.render.json_text import result
from attn_doctor.rulebook.conditions import Condition
from attn_doctor.rulebook.rule import Group, Rule
from attn_doctor.rulebook.texts import commands, line


def list_json(rules: Sequence[Rule]) -> str:
    """A summary of each rule."""
    short = [
        {
            "id": rule.id,
            "severity": rule.severity,
            "title": rule.title,
            "cause": rule.cause,
            "backends": rule.backends,
            "platforms": rule.platforms,
            "has_conditions": rule.has_conditions,
            "reads_logs": bool(rule.symptoms),
        }
        for rule in rules
    ]
    return result(count=len(rules), rules=short)


def rule_json(rule: Rule, *, meaning: str, explains: Sequence[str], file: str) -> str:
    """One rule in full; its texts have `{fact}` for the values of a machine."""
    return result(**_rule(rule, meaning, explains), file=file)


def cause_json(
    cause: str, meaning: str, rules: Iterable[Rule], explains: Mapping[str, Sequence[str]]
) -> str:
    """A cause, and all of its rules."""
    found = [_rule(rule, meaning, explains.get(rule.id, ())) for rule in rules]
    return result(cause=cause, cause_meaning=meaning, rules=found)


def _rule(rule: Rule, meaning: str, explains: Sequence[str]) -> dict[str, Any]:
    fixes = []
    for fix, when, done in zip(rule.fixes, rule.fix_when, rule.fix_done, strict=True):
        plain: dict[str, Any] = msgspec.to_builtins(fix)
        plain |= {"when": _lines(when), "done": _lines(done), "commands": commands(fix)}
        fixes.append(plain)
    return {
        "id": rule.id,
        "severity": rule.severity,
        "title": rule.title,
        "why": rule.why,
        "cause": rule.cause,
        "cause_meaning": meaning,
        "backends": rule.backends,
        "platforms": rule.platforms,
        "for_each": rule.for_each,
        "subject": rule.subject,
        "requires": rule.requires,
        "explains": explains,
        "row": rule.row,
        "applies": _group(rule.applies),
        "when": _group(rule.when),
        "advisory": rule.advisory,
        "symptoms": rule.symptoms,
        "fixes": fixes,
        "evidence": rule.evidence,
        "checked": rule.checked,
    }


def _group(group: Group) -> dict[str, list[str]]:
    return {"all": _lines(group.all), "any": _lines(group.any), "none": _lines(group.none)}


def _lines(conditions: Iterable[Condition]) -> list[str]:
    return [line(condition) for condition in conditions]
