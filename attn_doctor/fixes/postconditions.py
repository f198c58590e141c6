"""Whether a step did what its rule promises: the rule's `done` lines, judged on new facts."""

from __future__ import annotations

from collections.abc import Iterable

from attn_doctor.facts import ELEMENTS, Facts
from attn_doctor.findings import Finding, Fix
from attn_doctor.fixes.pip_arguments import pip_call
from attn_doctor.fixes.steps import Step
from attn_doctor.rulebook.conditions import Lookup, conjunction
from attn_doctor.rulebook.evaluate import filled, lookup_in
from attn_doctor.rulebook.rule import Rule


def promises(step: Step, rules: Iterable[Rule], facts: Facts) -> list[tuple[Rule, int, int]]:
    """For each rule of a step: its remedy (by number) and, with `for_each`, the element's number.

    The remedy is found by filling each with the facts that the plan was made from.
    """
    wanted = {*step.rules}
    found = []
    for rule in rules:
        if rule.id not in wanted:
            continue
        for index, fix in enumerate(rule.fixes):
            for number, lookup in enumerate(_lookups(rule, facts)):
                made = filled(fix, facts, lookup)
                if _is(made, step):
                    found.append((rule, index, number))
                    break
    return found


def _is(fix: Fix, step: Step) -> bool:
    """The remedy is what the step was made from, if need be joined with that of another rule."""
    if step.title.startswith(fix.title) and fix.safety == step.safety:
        return True
    calls = [call for call in map(pip_call, fix.run) if call]
    names = {name for call in calls for name in call.names}
    return bool(names) and names == {*step.packages} and calls[-1].verb == "install"


def _lookups(rule: Rule, facts: Facts) -> list[Lookup]:
    if not rule.for_each:
        return [lookup_in(facts)]
    members = getattr(facts, rule.for_each) or ()
    return [lookup_in(facts, ELEMENTS[rule.for_each], one) for one in members]


def unkept(promised: Iterable[tuple[Rule, int, int]], facts: Facts) -> list[str]:
    """The `done` lines that do not hold, or cannot be told, with the value seen."""
    faults = []
    for rule, index, number in promised:
        lookups = _lookups(rule, facts)
        if number >= len(lookups):
            continue
        lookup = lookups[number]
        for line in rule.fix_done[index]:
            truth = conjunction([line.truth(lookup)])
            if truth is not True:
                seen = lookup(line.fact)
                value = "unknown" if seen is None else str(seen) or "empty"
                wanted = line.wanted(lookup, held=False)
                faults.append(f"{line.fact} is {value}, wanted {wanted}")
    return faults


def gone(
    before: Iterable[Finding], after: Iterable[Finding]
) -> tuple[list[Finding], list[Finding]]:
    """Problems that vanished, and those that appeared."""
    old = {(one.rule, one.subject): one for one in before}
    new = {(one.rule, one.subject): one for one in after}
    vanished = [one for key, one in old.items() if key not in new]
    appeared = [one for key, one in new.items() if key not in old]
    return vanished, appeared
