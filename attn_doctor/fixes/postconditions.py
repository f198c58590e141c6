"""Evaluates on new facts what a step promised, and which problems it resolved."""

from __future__ import annotations

from collections.abc import Iterable

from attn_doctor.facts import Facts
from attn_doctor.findings import Finding, Fix
from attn_doctor.rulebook.evaluate import FactLookup


def unmet(fixes: Iterable[Fix], facts: Facts) -> list[str]:
    """Return the `done` conditions that do not hold or are unknown, each with the value seen."""
    faults = []
    lookup = FactLookup(facts)
    for line in (line for fix in fixes for line in fix.done):
        if line.truth(lookup):
            continue
        seen = lookup(line.fact)
        value = "unknown" if seen is None else str(seen) or "empty"
        faults.append(f"{line.fact} is {value}, wanted {line.wanted(lookup, fault=False)}")
    return [*dict.fromkeys(faults)]


def compare_problems(
    before: Iterable[Finding], after: Iterable[Finding]
) -> tuple[list[Finding], list[Finding]]:
    """Return the problems that were resolved, and those that were introduced."""
    old = {(finding.rule, finding.subject): finding for finding in before}
    new = {(finding.rule, finding.subject): finding for finding in after}
    resolved = [finding for key, finding in old.items() if key not in new]
    introduced = [finding for key, finding in new.items() if key not in old]
    return resolved, introduced
