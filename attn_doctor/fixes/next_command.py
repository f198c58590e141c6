"""What comes next after a check: one command, or the lines of one fix.

Imported by each check that finds a problem, so it does not make a plan, which takes longer.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from attn_doctor.facts import Facts
from attn_doctor.findings import Diagnosis, Finding, Fix, Safety, Severity
from attn_doctor.shell.commands import attn_doctor, shell_lines, split_assignments
from attn_doctor.shell.installers import conda_named, obstacle


def next_commands(diagnosis: Diagnosis) -> list[str]:
    """Return the commands that cure the first problem that has some; empty if only a person can.

    That is `attn-doctor fix` where it can install what helps: it shows its plan first, and can undo
    it. It changes no machine that is only assumed.
    """
    facts = diagnosis.facts
    for finding in diagnosis.problems:
        if finding.caused_by or finding.severity is Severity.INFO:
            continue
        if _by_attn_doctor(finding, facts):
            return [attn_doctor("fix", facts=facts)]
        for fix in finding.fixes:
            if lines := _lines(fix, facts):
                return lines
    return []


#: Variable that switches the package index off → the variable that names a folder of wheels.
_OFFLINE = {"PIP_NO_INDEX": "PIP_FIND_LINKS", "UV_OFFLINE": "UV_FIND_LINKS"}


def without_index(diagnosis: Diagnosis, commands: list[str]) -> str:
    """Return what to do first where `commands` install packages and no index is to be asked."""
    facts = diagnosis.facts
    off = [name for name in _OFFLINE if facts.env.get(name, "").lower() not in ("", "0", "false")]
    if not off or not any("attn-doctor fix" in one or " install " in one for one in commands):
        return ""
    return (
        f"{off[0]} switches the package index off here. First unset it, or name a folder with the"
        f" wheels in {_OFFLINE[off[0]]}."
    )


def _by_attn_doctor(finding: Finding, facts: Facts) -> bool:
    """Whether `attn-doctor fix` applies a fix of it: it installs packages, and only with pip."""
    if facts.simulated or finding.location is not None or obstacle(facts):
        return False
    usable = (one for one in finding.fixes if one.safety is not Safety.MANUAL)
    fix = next((one for one in usable if one.run or one.exports), None)
    if fix is None or not fix.rule or not fix.run:
        return False
    commands = [split_assignments(argv)[1] for argv in fix.run]
    others = [words for words in commands if words[:1] != ("pip",)]
    return len(others) < len(commands) and all(
        words[1:2] in (("install",), ("uninstall",)) and not conda_named(words, facts)
        if words[:1] == ("pip",)
        else deletes_metadata(words, facts)
        for words in commands
    )


def deletes_metadata(argv: Sequence[str], facts: Facts) -> bool:
    """It deletes the metadata of a distribution, in the environment that `fix` makes a copy of."""
    inside = os.path.join(facts.python.prefix or os.devnull, "")
    return (
        len(argv) == 3
        and (argv[0], argv[1]) == ("rm", "-r")
        and argv[2].startswith(inside)
        and argv[2].endswith(".dist-info")
    )


def _lines(fix: Fix, facts: Facts) -> list[str]:
    """The commands of a fix; none of one that begins with work by hand."""
    return [] if fix.safety is Safety.MANUAL and fix.manual else shell_lines(fix, facts)
