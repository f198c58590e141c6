"""A diagnosis for GitHub Actions: workflow commands for annotations, Markdown for the summary.

GitHub shows ten errors and ten warnings of a step as annotations and drops the rest, so root
problems come first and consequences are left out.
Source: docs.github.com, "Workflow commands for GitHub Actions".
"""

from __future__ import annotations

from attn_doctor.findings import Diagnosis, Severity
from attn_doctor.redact import redact
from attn_doctor.render.findings.locations import location
from attn_doctor.render.findings.plain import details
from attn_doctor.render.findings.summary import caveats
from attn_doctor.render.grouping import Problem, problems, tally
from attn_doctor.render.terminal import clean

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def github(diagnosis: Diagnosis, file: str = "") -> str:
    """One workflow command a line for each root problem, then the tally as plain text.

    `file`: what annotations without a place of their own point at.
    """
    lines = [_command(problem, diagnosis, file) for problem in problems(diagnosis)]
    lines += [f"::notice title=attn-doctor::{_data(one)}" for one in caveats(diagnosis.facts)]
    return "\n".join([*lines, f"attn-doctor: {tally(diagnosis)}"]) + "\n"


def _command(problem: Problem, diagnosis: Diagnosis, file: str) -> str:
    finding = problem.finding
    subject = f" ({problem.subjects})" if problem.subjects else ""
    properties = {"title": f"{finding.title}{subject} [{finding.rule}]"}
    at = location(finding, file)
    if at.file:
        properties["file"] = at.file
    if finding.location:
        properties["line"] = str(at.line)
    written = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    message = details(finding, diagnosis, fixes=1)
    return f"::{_COMMANDS[problem.severity]} {written}::{_data(redact(message))}"


def _data(text: str) -> str:
    """`text` as the message of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """`text` as a property of a workflow command."""
    return _data(redact(clean(text))).replace(":", "%3A").replace(",", "%2C")
