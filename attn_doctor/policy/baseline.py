"""Suppresses known problems, so that `check` fails only on new ones.

A baseline is what `attn-doctor check --format json` wrote. A problem is the same one if its rule
and its subject are.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError
from attn_doctor.files import DATA, read_bytes
from attn_doctor.findings import Diagnosis, Finding, Verdict
from attn_doctor.json_files import JsonError, decode


class _Problem(Struct, frozen=True):
    rule: str
    subject: str = ""


class _Report(Struct, frozen=True):
    schema: int
    problems: tuple[_Problem, ...]


def read(path: Path) -> frozenset[tuple[str, str]]:
    """Return rule and subject of each problem in a baseline. Raises `AttnDoctorError`."""
    remedy = f"write one with `attn-doctor check --format json:{path}`"
    try:
        report = decode(read_bytes(path, DATA), _Report)
    except OSError as error:
        raise AttnDoctorError(f"{path}: cannot be read: {error.strerror}; {remedy}") from None
    except JsonError as error:
        raise AttnDoctorError(f"{path}: is not a baseline: {error}; {remedy}") from None
    return frozenset((one.rule, one.subject) for one in report.problems)


def suppress_known(diagnosis: Diagnosis, known: frozenset[tuple[str, str]], name: str) -> Diagnosis:
    """Return the diagnosis with the problems of the baseline `name` suppressed."""

    def suppressed(finding: Finding) -> Finding:
        same = (finding.rule, finding.subject) in known
        if not same or finding.verdict is not Verdict.PROBLEM or finding.suppressed:
            return finding
        return replace(finding, suppressed=f"known: in the baseline {name}")

    findings = [suppressed(finding) for finding in diagnosis.findings]
    hidden = {one.rule for one in findings if one.suppressed}
    # A new problem must be shown even if a known problem explains it.
    shown = [
        replace(one, caused_by="") if one.caused_by in hidden and not one.suppressed else one
        for one in findings
    ]
    return replace(diagnosis, findings=tuple(shown))
