"""The fixes of a diagnosis that can work on this machine, with builds prepared as `fix` does them.

A build from source that would stop here is offered with what stops it, after the other fixes; a
toolkit that it needs comes first. So is a package of which no release fits this Python. flash-attn
is pinned to the release whose prebuilt wheel fits.
"""

from __future__ import annotations

from msgspec.structs import replace

from attn_doctor.explain.explanation import Explanation
from attn_doctor.facts import Facts
from attn_doctor.findings import Diagnosis, Finding, Fix, Safety, Verdict
from attn_doctor.fixes import python_support
from attn_doctor.fixes.pip_arguments import pip_call
from attn_doctor.fixes.source_builds import PARALLELISM, Preflight, built_by, pinned, preflight
from attn_doctor.shell.commands import split_assignments


def offered(diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis with fixes that can work here first, each as `fix` would apply it."""
    facts = diagnosis.facts
    return replace(
        diagnosis, findings=tuple(_finding(finding, facts) for finding in diagnosis.findings)
    )


def _finding(finding: Finding, facts: Facts) -> Finding:
    if finding.verdict is not Verdict.PROBLEM:
        return finding
    return replace(finding, fixes=_fixes(finding.fixes, facts))


def _fixes(fixes: tuple[Fix, ...], facts: Facts) -> tuple[Fix, ...]:
    """The fixes as `fix` would apply them, those that cannot work yet at the end."""
    if not any(fix.run for fix in fixes):
        return fixes
    possible = [possible_here(fix, facts) for fix in fixes]
    possible.sort(key=lambda fix: fix.title.startswith((_LATER, _NEVER)))  # stable: best first
    return tuple(possible)


def offered_for_log(found: Explanation) -> Explanation:
    """Return the explanation with the fixes that can work on the machine of its log first.

    That machine is known in part only: what the log does not state excludes no fix.
    """
    facts, guess = found.facts, found.guess
    matches = tuple(replace(one, fixes=_fixes(one.fixes, facts)) for one in found.matches)
    if guess is not None:
        guess = replace(guess, fixes=_fixes(guess.fixes, facts))
    return replace(found, matches=matches, guess=guess)


#: The start of the title of a fix that cannot work yet.
_LATER = "Not possible yet: "
#: The start of the title of a fix that this Python excludes.
_NEVER = "Not possible with this Python: "


def possible_here(fix: Fix, facts: Facts) -> Fix:
    """Return the fix as `fix` would apply it; without its command if its build would stop here."""
    run: list[tuple[str, ...]] = []
    for argv in fix.run:
        call = pip_call(argv)
        if call is not None and (unfit := python_support.obstacle(call, facts)):
            return _not_here(fix, unfit)
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
            run.append(_prepared(argv, found, facts))
    return replace(fix, run=tuple(run))


def _prepared(argv: tuple[str, ...], found: Preflight, facts: Facts) -> tuple[str, ...]:
    """A build with the variables that fit this machine; those of the rule give way."""
    assignments, words = split_assignments(argv)
    kept = {name: value for name, _, value in (one.partition("=") for one in assignments)}
    fitting = {
        name: value
        for name, value in found.variables.items()
        if facts.build.jobs is not None or name not in PARALLELISM
    }
    variables = {**kept, **fitting}
    return (*(f"{name}={value}" for name, value in variables.items()), *words)


def _not_yet(fix: Fix, found: Preflight) -> Fix:
    """A build that would stop, without its command: with the reason in its place."""
    reasons = "; ".join(found.obstacles)
    return _by_hand(fix, _LATER, f"{reasons[0].upper()}{reasons[1:]}.")


def _not_here(fix: Fix, reason: str) -> Fix:
    """A fix that this Python excludes, with what makes it possible."""
    words = (
        f"{reason}. It needs an environment with another Python, in which all is installed anew."
    )
    return _by_hand(fix, _NEVER, words)


def _by_hand(fix: Fix, head: str, manual: str) -> Fix:
    title = head + fix.title[0].lower() + fix.title[1:]
    return replace(fix, title=title, safety=Safety.MANUAL, run=(), manual=manual)
