"""The results of an audit as Markdown, to attach to an issue."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attn_doctor._version import __version__
from attn_doctor.backends.audit.outcome import AuditReport
from attn_doctor.render.audit import words
from attn_doctor.render.findings.markdown import escape, fenced


def markdown(report: AuditReport, anonymous: Callable[[str], str] = str) -> str:
    """The result. `anonymous` takes the machine's identity out of a text."""
    lines = ["## audit of attention backends", "", escape(words.machine(report)) + ".", ""]
    lines += [f"- {escape(line)}" for line in words.advisories(report)]
    lines += _table(report)
    for one in report.results:
        lines += [line for note in words.notes(one) for line in ("", escape(note) + ".")]
        for fault in one.faults:
            lines += ["", f"### {escape(words.headline(one, fault))}", ""]
            lines += [f"- {label}: {escape(value)}" for label, value in words.details(fault)]
            if fault.program:
                lines += ["", *fenced("python", fault.program.splitlines())]
            if fault.printed:
                lines += ["", "It printed:", "", *fenced("text", fault.printed.splitlines())]
    lines += ["", f"{escape(words.last_line(report))} (attn-doctor {__version__})"]
    return anonymous("\n".join(lines)) + "\n"


def _table(report: AuditReport) -> Iterator[str]:
    yield ""
    yield "| backend | version | verdict | right | wrong | refused | to do |"
    yield "|---|---|---|---|---|---|---|"
    for one in report.results:
        yield (
            f"| `{one.title}` | {escape(one.version)} | {words.verdict(one)} | {one.right} |"
            f" {one.wrong} | {one.refused + one.not_counted} | {one.planned - one.done} |"
        )
