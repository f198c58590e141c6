"""A finding as plain lines, for formats that carry text in a field of their own."""

from __future__ import annotations

from collections.abc import Iterator

from attn_doctor.findings import Diagnosis, Finding, Fix
from attn_doctor.render.terminal import clean
from attn_doctor.shell.commands import shell_lines


def headline(finding: Finding) -> str:
    """The title with the subject."""
    return clean(finding.title + (f" ({finding.subject})" if finding.subject else ""))


def details(finding: Finding, diagnosis: Diagnosis, fixes: int | None = None) -> str:
    """Why, the values seen and wanted, and the first `fixes` fixes (None: all), line by line."""
    return "\n".join(line for line in _lines(finding, diagnosis, fixes) if line)


def _lines(finding: Finding, diagnosis: Diagnosis, fixes: int | None) -> Iterator[str]:
    yield clean(finding.why)
    for line in finding.because:
        if line.truth is not False:
            yield clean(line.in_words())
    for fix in finding.fixes[:fixes]:
        yield from _fix(fix, diagnosis)
    if finding.caused_by:
        yield f"explained by {finding.caused_by}"


def _fix(fix: Fix, diagnosis: Diagnosis) -> Iterator[str]:
    yield f"fix: {clean(fix.title)}"
    yield clean(fix.manual)
    yield from (f"  {clean(line)}" for line in fix.code.splitlines())
    yield from (f"  {clean(command)}" for command in shell_lines(fix, diagnosis.facts))
