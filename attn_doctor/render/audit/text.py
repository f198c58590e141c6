"""What an audit showed, for a person at a terminal: one table, then each fault with its program."""

from __future__ import annotations

from collections.abc import Iterator

from attn_doctor.backends.audit.outcome import Audited, AuditReport, Fault
from attn_doctor.backends.live.outcome import Failure
from attn_doctor.facts import Facts
from attn_doctor.render.audit import words
from attn_doctor.render.backends.live_text import printed_lines
from attn_doctor.render.definition_list import labelled
from attn_doctor.render.findings.summary import opening
from attn_doctor.render.terminal import Terminal, clean
from attn_doctor.shell.commands import attn_doctor

_MARKS = {
    "no fault": ("✓", "green"),
    "faulty": ("✗", "red"),
    "not finished": ("?", "yellow"),
    "not run": ("?", "yellow"),
}
_HEAD = ("right", "wrong", "refused", "to do")
_WIDTH = 9


def text(report: AuditReport, facts: Facts, terminal: Terminal, *, top: bool = True) -> str:
    """The whole result. `top`: with the line on which interpreter was examined."""
    lines = [*opening(facts, terminal), ""] if top else []
    if report.torch:
        lines += terminal.wrap(clean(words.machine(report)), 0)
    for line in words.advisories(report):
        lines += terminal.wrap(clean(line), 0)
    if report.results:
        lines += ["", *_table(report, terminal)]
    for one in report.results:
        for note in words.notes(one):
            lines += ["", *terminal.wrap(clean(note), 0)]
    for name, module in report.absent.items():
        lines += ["", *terminal.marked("·", f"{name}: {module} is not installed")]
    for one in report.results:
        for fault in one.faults:
            lines += ["", *_fault(one, fault, terminal)]
    lines += [*([""] if lines[-1:] != [""] else []), *terminal.wrap(words.last_line(report), 0)]
    if report.failure is not None:
        lines += _next(report.failure, facts, terminal)
    return terminal.page(lines)


def _next(failure: Failure, facts: Facts, terminal: Terminal) -> Iterator[str]:
    if not failure.type:  # it ended without an exception: only these lines can say why
        yield from printed_lines(failure, terminal)
    # One command to copy: never wrapped.
    yield f"  Next: {attn_doctor('check', facts=facts)}  (says why, and what to install)"


def _table(report: AuditReport, terminal: Terminal) -> Iterator[str]:
    wide = max(len(one.title) for one in report.results)
    head = "".join(terminal.right(name, _WIDTH) for name in _HEAD)
    first = f"  {terminal.pad('backend', wide)}  {terminal.pad('verdict', 13)}"
    yield terminal.style(first + head, "dim")
    for one in report.results:
        verdict = words.verdict(one)
        glyph, colour = _MARKS[verdict]
        numbers = (one.right, one.wrong, one.refused + one.not_counted, one.planned - one.done)
        cells = "".join(str(number).rjust(_WIDTH) for number in numbers)
        yield (
            f"{terminal.style(glyph, colour)} {one.title.ljust(wide)}"
            f"  {terminal.style(terminal.pad(verdict, 13), colour)}{cells}"
        )


def _fault(one: Audited, fault: Fault, terminal: Terminal) -> Iterator[str]:
    first, *rest = terminal.wrap(clean(words.headline(one, fault)), 2)
    yield terminal.style("✗", "bold", "red") + " " + terminal.style(first[2:], "bold")
    yield from (terminal.style(line, "bold") for line in rest)
    for label, value in words.details(fault):
        yield from labelled(label, value, terminal, indent=11)
    # A program is never wrapped, so that it can be copied.
    for line in fault.program.splitlines():
        yield "  " + terminal.code(clean(line) if line.strip() else "", "green")
