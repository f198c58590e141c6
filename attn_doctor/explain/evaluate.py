"""Rules evaluated for an explanation: on the facts of a log, and on those of a machine."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from attn_doctor.facts import ELEMENTS, Facts
from attn_doctor.findings import Finding, Fix, Verdict
from attn_doctor.rulebook.evaluate import (
    FactLookup,
    denial,
    evaluate_rule,
    fill_fix,
    fitting_fixes,
    lookups,
    verdict_on,
)
from attn_doctor.rulebook.rule import Rule
from attn_doctor.rulebook.texts import fill_known, fill_or_name, unknown_in


class Evaluation(NamedTuple):
    """Whether facts confirm a rule, with the reason if they do not."""

    truth: bool | None
    reason: str = ""


def first_lookup(rule: Rule, facts: Facts, *, partial: bool = False) -> FactLookup:
    """Looks facts up in the first element of the rule's list: a log names one GPU."""
    element = ELEMENTS.get(rule.for_each, "")
    subjects = lookups(rule, facts, partial=partial)
    return subjects[0] if subjects else FactLookup(facts, element, partial=partial)


def evaluate_on_log(rule: Rule, facts: Facts) -> Evaluation:
    """Whether the facts that a log states confirm a rule."""
    lookup = first_lookup(rule, facts, partial=True)
    verdict = verdict_on(rule, lookup)
    if verdict in (Verdict.OK, Verdict.NOT_APPLICABLE):
        return Evaluation(False, denial(rule, lookup))
    confirmed = verdict is Verdict.PROBLEM and rule.has_conditions
    return Evaluation(True if confirmed else None)


def evaluate_on_machine(rule: Rule, facts: Facts) -> tuple[Evaluation, Finding | None]:
    """Whether a machine's facts confirm a rule, and the finding if they do."""
    lookup = first_lookup(rule, facts)
    if not rule.has_conditions:
        if verdict_on(rule, lookup) is Verdict.NOT_APPLICABLE:
            return Evaluation(False, denial(rule, lookup)), None
        return Evaluation(None, "this rule matches logs only"), None
    findings = evaluate_rule(rule, facts)
    for finding in findings:
        if finding.verdict is Verdict.PROBLEM:
            return Evaluation(True), finding
    for finding in findings:
        if finding.verdict is Verdict.UNKNOWN:
            lines = [line for line in (*finding.context, *finding.because) if line.truth is None]
            gap = next((line.gap for line in lines if line.gap), "")
            names = ", ".join(dict.fromkeys(line.fact for line in lines))
            return Evaluation(None, gap or f"{names} unknown"), None
    if not findings:
        return Evaluation(False, f"there are no {rule.for_each}"), None
    return Evaluation(False, denial(rule, lookup)), None


def fixes(rule: Rule, lookup: FactLookup) -> tuple[Fix, ...]:
    """The fixes that the facts call for, then those that they do not exclude."""
    certain, possible = fitting_fixes(rule, lookup)
    return tuple(_written(rule, index, lookup) for index in (*certain, *possible))


def _written(rule: Rule, index: int, lookup: FactLookup) -> Fix:
    """A fix in words; a command that needs an unknown fact is shown with that fact named."""
    file = rule.fixes[index]
    fix = replace(
        fill_fix(rule, index, lookup),
        title=fill_known(file.title, lookup),
        manual=fill_known(file.manual, lookup),
        needs=fill_known(file.needs, lookup),
    )
    parts = [*sum(file.run, ()), *file.set.values()]
    missing = dict.fromkeys(name for part in parts if (name := unknown_in(part, lookup)))
    if not missing:
        return fix
    lines = [f"export {name}={fill_or_name(value, lookup)}" for name, value in file.set.items()]
    lines += [" ".join(fill_or_name(part, lookup) for part in argv) for argv in file.run]
    commands = ", then ".join(f"`{line}`" for line in lines)
    values = f"with {' and '.join(missing)} of the machine (`attn-doctor check` shows it)"
    return replace(fix, manual=f"{fix.manual} Run {commands}, {values}.".strip())
