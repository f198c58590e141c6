"""A diagnosis to paste into an issue: a few lines that all see, and the rest to unfold."""

from __future__ import annotations

from collections.abc import Iterator

from attn_doctor._version import __version__
from attn_doctor.backends.readiness import Matrix
from attn_doctor.findings import Diagnosis, Severity
from attn_doctor.render.backends.labels import short_form
from attn_doctor.render.findings.markdown import escape, markdown, prose
from attn_doctor.render.findings.summary import blocks, header
from attn_doctor.render.grouping import problems, tally

#: Lines before the part to unfold.
LIMIT = 12
_MARKS = {Severity.ERROR: "✗", Severity.WARNING: "!", Severity.INFO: "i"}


def issue(diagnosis: Diagnosis, backends: Matrix) -> str:
    """The block. Identities must have been replaced in what is given; secrets are hidden here."""
    facts = diagnosis.facts
    found = [*_problems(diagnosis)]
    shown = [("examined", [header(facts)]), *blocks(facts)]
    shown.append(("backends", _backends(backends, diagnosis)))
    head = [f"- {name}: {escape(' · '.join(lines))}" for name, lines in shown]
    room = LIMIT - 1 - len(head)
    if len(found) > room:
        found = [*found[: room - 1], f"- and {len(found) - room + 1} more, below"]
    return "\n".join(
        [
            f"**attn-doctor {__version__}: {tally(diagnosis)}**",
            *head,
            *found,
            "",
            "<details><summary>All that attn-doctor found</summary>",
            "",
            markdown(diagnosis, backends),
            "</details>",
            "",
        ]
    )


def _backends(matrix: Matrix, diagnosis: Diagnosis) -> list[str]:
    """What is ready, slow and not ready, without the command that says why."""
    lines = short_form(matrix, diagnosis.facts)
    return lines[:-1] or lines


def _problems(diagnosis: Diagnosis) -> Iterator[str]:
    for one in problems(diagnosis):
        subject = f" ({one.subjects})" if one.subjects else ""
        title = prose(one.finding.title + subject)
        yield f"- {_MARKS[one.severity]} {title} (`{one.finding.rule}`)"
