"""The one command that comes next after a check.

Imported by each check that finds a problem, so it does not make a plan, which takes longer.
"""

from __future__ import annotations

from attn_doctor.facts import Facts
from attn_doctor.findings import Diagnosis, Finding, Fix, Safety, Severity
from attn_doctor.shell.commands import attn_doctor, shell_lines, split_assignments
from attn_doctor.shell.installers import conda_named, obstacle


def next_command(diagnosis: Diagnosis) -> str:
    """Return the command that cures the first problem that has one; empty if only a person can.

    That is `attn-doctor fix` where it can install what helps: it shows its plan first, and can undo
    it. It changes no machine that is only assumed.
    """
    facts = diagnosis.facts
    for finding in diagnosis.problems:
        if finding.caused_by or finding.severity is Severity.INFO:
            continue
        if _by_attn_doctor(finding, facts):
            return attn_doctor("fix", facts=facts)
        for fix in finding.fixes:
            if lines := _lines(fix, facts):
                return lines[0]
    return ""


def _by_attn_doctor(finding: Finding, facts: Facts) -> bool:
    """Whether `attn-doctor fix` applies a fix of it: it installs packages, and only with pip."""
    if facts.simulated or finding.location is not None or obstacle(facts):
        return False
    usable = (one for one in finding.fixes if one.safety is not Safety.MANUAL)
    fix = next((one for one in usable if one.run or one.exports), None)
    if fix is None or not fix.rule or not fix.run:
        return False
    commands = [split_assignments(argv)[1] for argv in fix.run]
    return all(
        words[:1] == ("pip",)
        and words[1:2] in (("install",), ("uninstall",))
        and not conda_named(words, facts)
        for words in commands
    )


def _lines(fix: Fix, facts: Facts) -> list[str]:
    """The commands of a fix; none of one that begins with work by hand."""
    return [] if fix.safety is Safety.MANUAL and fix.manual else shell_lines(fix, facts)
