"""Rules held against facts for an explanation: what the log says of a rule, what a machine does.

A fact that a log does not state is unknown, and so is whether it is known: a rule's line `is known`
asks about a machine, and a log is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attn_doctor.explain.partial_text import worded
from attn_doctor.facts import ELEMENTS, Facts
from attn_doctor.findings import Finding, Fix, Verdict
from attn_doctor.rulebook.conditions import (
    Condition,
    Lookup,
    conjunction,
    disjunction,
    negation,
    show,
)
from attn_doctor.rulebook.evaluate import filled, judge_rule, lookup_in
from attn_doctor.rulebook.placeholders import PLACEHOLDER, unknown_in
from attn_doctor.rulebook.rule import Group, Rule


class Opinion:
    """What one side says of a rule: true, false or unknown, and the first reason."""

    def __init__(self, truth: bool | None, reason: str = "") -> None:
        self.truth = truth
        self.reason = reason


def lookup_told(facts: Facts, rule: Rule) -> Lookup:
    """Looks up what a log states: the GPU it names, and no variable that it does not show."""
    inner = lookup_here(facts, rule)

    def lookup(name: str) -> Any:
        head, _, rest = name.partition(".")
        return facts.env.get(rest) if head == "env" else inner(name)

    return lookup


def lookup_here(facts: Facts, rule: Rule) -> Lookup:
    """Looks facts up on a machine, in the first element of the rule's list."""
    element = ELEMENTS.get(rule.for_each, "")
    members: tuple[Any, ...] = getattr(facts, rule.for_each, None) or () if element else ()
    return lookup_in(facts, element, members[0] if members else None)


def by_log(rule: Rule, facts: Facts) -> Opinion:
    """What the facts that a log states say of a rule."""
    lookup = lookup_told(facts, rule)
    applies = conjunction((_platform(rule, facts), _group(rule.applies, lookup)))
    if applies is False:
        return Opinion(False, _denied(rule.applies, facts, lookup))
    if not rule.judges:
        return Opinion(None)
    wrong = _group(rule.when, lookup)
    if wrong is False:
        return Opinion(False, _denied(rule.when, facts, lookup))
    return Opinion(True if applies and wrong else None)


def by_machine(rule: Rule, facts: Facts) -> tuple[Opinion, Finding | None]:
    """What a machine's facts say of a rule, and the finding if it is so."""
    if not rule.judges:
        if _platform(rule, facts) is False:
            return Opinion(False, f"this is {facts.system.os}"), None
        return Opinion(None, "no fact of a machine tells it"), None
    findings = judge_rule(rule, facts)
    for finding in findings:
        if finding.verdict is Verdict.PROBLEM:
            return Opinion(True), finding
    for finding in findings:
        if finding.verdict is Verdict.UNKNOWN:
            open_lines = [one for one in (*finding.context, *finding.because) if one.truth is None]
            reason = next((one.gap for one in open_lines if one.gap), "")
            names = ", ".join(dict.fromkeys(one.fact for one in open_lines))
            return Opinion(None, reason or f"{names} unknown"), None
    if not findings:
        return Opinion(False, f"{rule.for_each} is none"), None
    lookup = lookup_here(facts, rule)
    applies = conjunction((_platform(rule, facts), _group(rule.applies, lookup)))
    group = rule.applies if applies is False else rule.when
    return Opinion(False, _denied(group, facts, lookup)), None


def _platform(rule: Rule, facts: Facts) -> bool | None:
    system = facts.system
    if not rule.platforms or system.os in rule.platforms:
        return True
    if system.os is None:
        return None
    return "wsl" in rule.platforms and (None if system.wsl is None else bool(system.wsl))


def _group(group: Group, lookup: Lookup) -> bool | None:
    parts = [conjunction(_truth(line, lookup) for line in group.all)]
    if group.any:
        parts.append(disjunction(_truth(line, lookup) for line in group.any))
    parts.extend(negation(_truth(line, lookup)) for line in group.none)
    return conjunction(parts)


def _truth(line: Condition, lookup: Lookup) -> bool | None:
    if line.op in ("is known", "is unknown") and lookup(line.fact) is None:
        return None
    return line.truth(lookup)


def _denied(group: Group, facts: Facts, lookup: Lookup) -> str:
    """The first line that says no, as `fact is value`."""
    for line in (*group.all, *group.any):
        if _truth(line, lookup) is False:
            return f"{line.fact} is {show(lookup(line.fact)) or 'empty'}"
    for line in group.none:
        if _truth(line, lookup):
            return f"{line.fact} is {show(lookup(line.fact)) or 'empty'}"
    return f"this is {facts.system.os}"


def fixes(rule: Rule, facts: Facts, lookup: Lookup) -> tuple[Fix, ...]:
    """What to do: the remedies that the facts call for, else those of which they say nothing."""
    called: list[Fix] = []
    doubtful: list[Fix] = []
    for index, lines in enumerate(rule.fix_when):
        truth = conjunction(_truth(line, lookup) for line in lines)
        if truth is not False:
            (called if truth else doubtful).append(_written(rule, index, facts, lookup))
    return (*called, *doubtful)


def _written(rule: Rule, index: int, facts: Facts, lookup: Lookup) -> Fix:
    """A remedy in words; a command that needs a fact nobody knows is shown with the gap named."""
    from msgspec.structs import replace

    file = rule.fixes[index]
    fix = replace(
        filled(rule, index, facts, lookup),
        title=worded(file.title, lookup),
        manual=worded(file.manual, lookup),
        needs=worded(file.needs, lookup),
    )
    parts = [*(part for argv in file.run for part in argv), *file.set.values()]
    missing = dict.fromkeys(name for part in parts if (name := unknown_in(part, lookup)))
    if not missing:
        return fix
    lines = [f"export {name}={_gapped(value, lookup)}" for name, value in file.set.items()]
    lines += [" ".join(_gapped(part, lookup) for part in argv) for argv in file.run]
    commands = ", then ".join(f"`{line}`" for line in lines)
    where = f"with {' and '.join(missing)} of the machine (`attn-doctor check` shows it)"
    return replace(fix, manual=f"{fix.manual} Run {commands}, {where}.".strip())


def _gapped(part: str, lookup: Lookup) -> str:
    def put(name: str) -> str:
        value = lookup(name)
        return f"<{name}>" if value in (None, "") else show(value)

    return PLACEHOLDER.sub(lambda match: put(match[1]), part)


def differing(told: Mapping[str, Any], facts: Facts) -> Iterable[tuple[str, str, str]]:
    """Facts that the log states and this machine has otherwise: name, there, here."""
    for name in ("system.os", "python.version", "torch.version"):
        there, here = told.get(name), lookup_in(facts)(name)
        if there is None or here in (None, ""):
            continue
        short = str(there)
        if not (str(here) == short or str(here).startswith((f"{short}.", f"{short}+"))):
            yield name, short, str(here)
