"""Joins the commands that install what packages require of each other into one.

pip makes fit what one command names. Of two commands the second can change what the first
installed, and what it brings may need a third one.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from attn_doctor.findings import Diagnosis, Finding, Verdict
from attn_doctor.fixes.pip_arguments import PipCall, pip_call
from attn_doctor.probes.installed.agreement import brought_fits
from attn_doctor.requirement import combined, normal_name, satisfiable

_RULES = ("python/requirement-unmet", "python/requirements-contradict")


def joined(diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis with one first command for all requirements that are not met."""
    wanted: dict[str, str] = {}
    taken = {id(one) for one in diagnosis.findings if (call := _call(one)) and _add(call, wanted)}
    for unmet in diagnosis.facts.unmet_requirements or () if taken else ():
        changed = re.split("[<>=!~]", unmet.renewed or unmet.together or "")[0]
        if unmet.along and normal_name(changed) in wanted:
            call = pip_call(("pip", "install", *unmet.along.split()))
            if call is not None:
                _add(call, wanted)
    if not taken:
        return diagnosis
    run = (("pip", "install", *(name + specifier for name, specifier in wanted.items())),)
    return replace(
        diagnosis,
        findings=tuple(
            replace(one, fixes=(replace(one.fixes[0], run=run), *one.fixes[1:]))
            if id(one) in taken
            else one
            for one in diagnosis.findings
        ),
    )


def _call(finding: Finding) -> PipCall | None:
    """The command of the first fix, if it is a plain one that installs by name."""
    if finding.rule not in _RULES or finding.verdict is not Verdict.PROBLEM or not finding.fixes:
        return None
    run = finding.fixes[0].run
    call = pip_call(run[0]) if len(run) == 1 else None
    if call is None or call.verb != "install" or call.flags or call.indexes or call.variables:
        return None
    return None if any(one.url or one.extras for one in call.wanted) else call


def _add(call: PipCall, wanted: dict[str, str]) -> bool:
    """Add what a command installs; nothing if it excludes what is wanted already."""
    added = dict(wanted)
    try:
        for one in call.wanted:
            if not satisfiable(one.specifier, added.get(one.name, "")):
                return False
            added[one.name] = combined((added.get(one.name, ""), one.specifier))
        if not brought_fits(added):
            return False
    except ValueError:  # a version that cannot be read
        return False
    wanted |= added
    return True
