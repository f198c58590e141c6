"""The fixes of a diagnosis that can work on this machine, with builds prepared as `fix` does them.

A build from source that would stop here is offered with what stops it, after the other fixes; a
toolkit that it needs comes first. flash-attn is pinned to the release whose prebuilt wheel fits.
"""

from __future__ import annotations

from msgspec.structs import replace

from attn_doctor.facts import Facts
from attn_doctor.findings import Diagnosis, Finding, Fix, Safety, Verdict
from attn_doctor.fixes.pip_arguments import pip_call
from attn_doctor.fixes.source_builds import Preflight, built_by, pinned, preflight
from attn_doctor.shell.commands import split_assignments


def offered(diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis with fixes that can work here first, each as `fix` would apply it."""
    facts = diagnosis.facts
    return replace(
        diagnosis, findings=tuple(_finding(finding, facts) for finding in diagnosis.findings)
    )


def _finding(finding: Finding, facts: Facts) -> Finding:
    if finding.verdict is not Verdict.PROBLEM or not any(fix.run for fix in finding.fixes):
        return finding
    fixes = [possible_here(fix, facts) for fix in finding.fixes]
    fixes.sort(key=lambda fix: fix.title.startswith(_LATER))  # stable: the best first
    return replace(finding, fixes=tuple(fixes))


#: The start of the title of a fix that cannot work yet.
_LATER = "Not possible here yet: "


def possible_here(fix: Fix, facts: Facts) -> Fix:
    """Return the fix as `fix` would apply it; without its command if its build would stop here."""
    run: list[tuple[str, ...]] = []
    for argv in fix.run:
        call = pip_call(argv)
        name = built_by(call, facts) if call else ""
        if call is None:
            run.append(argv)
        elif not name:
            ready = pinned(call, facts)
            run.append(argv if ready is call else ready.argv)
        else:
            found = preflight(name, facts)
            if found.obstacles:
                return _not_yet(fix, found)
            run.append(_prepared(argv, found))
    return replace(fix, run=tuple(run))


def _prepared(argv: tuple[str, ...], found: Preflight) -> tuple[str, ...]:
    """A build with the variables that fit this machine; those of the rule give way."""
    assignments, words = split_assignments(argv)
    kept = {name: value for name, _, value in (one.partition("=") for one in assignments)}
    variables = {**kept, **found.variables}
    return (*(f"{name}={value}" for name, value in variables.items()), *words)


def _not_yet(fix: Fix, found: Preflight) -> Fix:
    """A build that would stop, without its command: with the reason in its place."""
    reasons = "; ".join(found.obstacles)
    return replace(
        fix,
        title=_LATER + fix.title[0].lower() + fix.title[1:],
        safety=Safety.MANUAL,
        run=(),
        manual=f"{reasons[0].upper()}{reasons[1:]}.",
    )
