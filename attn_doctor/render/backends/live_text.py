"""What running the backends showed, for a person at a terminal: one table a phase, then the why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_doctor.backends.live.outcome import (
    Cause,
    Failure,
    Figures,
    LiveReport,
    LiveResult,
    PhaseResult,
    Verdict,
)
from attn_doctor.backends.live.ranking import fastest
from attn_doctor.backends.live.static_disagreements import Disagreement
from attn_doctor.facts import Facts
from attn_doctor.render.backends.figures import cells, error, gib, shape_of
from attn_doctor.render.definition_list import (
    INDENT,
    fix_lines,
    labelled,
    titled,
)
from attn_doctor.render.findings.summary import caveats, opening
from attn_doctor.render.grouping import plural, rows_of_all_heads
from attn_doctor.render.terminal import Terminal, clean, width_of
from attn_doctor.shell.commands import attn_doctor

_MARKS = {
    Verdict.VERIFIED: ("✓", "green"),
    Verdict.SLOW: ("!", "yellow"),
    Verdict.WRONG: ("✗", "red"),
    Verdict.FAILED: ("✗", "red"),
    Verdict.CRASHED: ("✗", "red"),
    Verdict.HUNG: ("✗", "red"),
    Verdict.OUT_OF_MEMORY: ("!", "yellow"),
    Verdict.NOT_RUN: ("?", "yellow"),
    Verdict.ABSENT: ("·", "dim"),
}
#: Titles of tables, by phase.
PHASES = {"inference": "Inference (forward)", "training": "Training (forward and backward)"}
_HEAD = ("max diff", "time", "TFLOP/s", "memory", "ratio")
_WIDTHS = (9, 10, 9, 11, 7)
#: Columns in the order in which a narrow terminal loses them, and the width of all before them.
_LOST, _BEFORE = (4, 2, 3), 17
#: How many fixes of a cause are shown.
_FIXES = 3
#: Lines of what was printed that are shown where no rule explains them.
_LINES = 14


def text(
    report: LiveReport,
    facts: Facts,
    terminal: Terminal,
    differing: Sequence[Disagreement] = (),
    *,
    verbose: bool = False,
    top: bool = True,
) -> str:
    """The whole result. `top`: with the line on which interpreter was examined."""
    lines: list[str] = []
    if top:
        lines += opening(facts, terminal)
        for sentence in caveats(facts):
            lines += terminal.marked("i", sentence, "bold", "cyan")
        lines.append("")
    lines += _machine(report, terminal)
    lines += _imports(report, terminal)
    if report.failure is None:
        for phase in dict.fromkeys(phase for one in report.results for phase in one.outcomes):
            lines += _table(phase, report, terminal, verbose)
        words = compared(report)
        lines += ["", *terminal.wrap(words, 0)] if words else []
        lines += _absent(report, terminal)
        lines += _failures(report, facts, terminal, verbose)
    else:
        lines += _failure_lines(report.failure, facts, terminal, verbose)
    lines += _differing(differing, terminal)
    lines += ["", terminal.style(last_line(report), "bold")]
    if report.failure is not None:
        # One command to copy: never wrapped.
        lines.append(
            f"  Next: {attn_doctor('check', facts=facts)}  (says why, and what to install)"
        )
    return terminal.page(lines)


def _machine(report: LiveReport, terminal: Terminal) -> Iterator[str]:
    device = report.device
    if device.device:
        memory = ""
        if device.total_mib is not None and device.free_mib is not None:
            memory = f", {gib(device.free_mib)} of {gib(device.total_mib)} free"
        words = f"torch {report.torch} on {device.name or device.device} ({device.device}){memory}"
        yield from terminal.wrap(clean(words), 0)
    if device.note:
        yield from terminal.wrap(clean(device.note), 0)
    if device.failure is not None:
        first = (device.failure.message.splitlines() or [""])[0]
        yield from terminal.wrap(clean(f"the GPU: {device.failure.type}: {first}"), 2)
        if device.failure.cause is not None:
            yield from labelled("cause", _cause(device.failure.cause), terminal)


def _imports(report: LiveReport, terminal: Terminal) -> Iterator[str]:
    good = [
        f"{one.module.split('.')[0]} {one.version}".strip()
        for one in report.imports
        if one.verdict.works
    ]
    if good:
        yield from terminal.wrap(clean(f"imported: {', '.join(good)}"), 0)
    for imported in report.imports:
        if not imported.verdict.works:
            glyph, colour = _MARKS[imported.verdict]
            yield from terminal.marked(glyph, f"{imported.module}: {imported.sentence}", colour)
    for pid in report.left_behind:
        yield f"process {pid} could not be killed and is left behind"


def _table(phase: str, report: LiveReport, terminal: Terminal, verbose: bool) -> Iterator[str]:
    shown = [one for one in report.results if one.outcomes[phase].verdict is not Verdict.ABSENT]
    if not shown:
        return
    shown.sort(key=lambda one: _order(one.outcomes[phase]))
    figures = [one for each in shown for one in each.outcomes[phase].figures]
    wide = max(len(one.title) for one in shown)
    columns = _columns(terminal.width - wide - _BEFORE)
    failed = (one.outcomes[phase] for one in shown if not one.outcomes[phase].verdict.works)
    sentences = [one.sentence for one in failed]
    repeated = {one for one in sentences if sentences.count(one) > 1}
    yield ""
    yield from titled(PHASES.get(phase, phase), shape_of(figures, report.dtype), terminal, 0)
    head = "".join(terminal.right(_HEAD[at], _WIDTHS[at]) for at in columns)
    first = f"  {terminal.pad('backend', wide)}  {terminal.pad('verdict', 13)}"
    yield terminal.style(first + head, "dim")
    for result in shown:
        outcome = result.outcomes[phase]
        reason = "see below" if outcome.sentence in repeated else outcome.sentence
        main = _main(outcome.figures)
        yield _row(result.title.ljust(wide), outcome, main, terminal, columns, reason)
        if verbose:
            for small in outcome.figures[:-1]:
                yield _row(
                    f"  {small.shape.title}".ljust(wide),
                    outcome,
                    small,
                    terminal,
                    columns,
                    outcome.sentence,
                    mark=False,
                )
            yield from terminal.wrap(clean(outcome.sentence), 6)


def _columns(room: int) -> list[int]:
    """The numbers of the columns of figures that fit; error and time always stay."""
    kept = [*range(len(_WIDTHS))]
    for lost in _LOST:
        if sum(_WIDTHS[at] for at in kept) > room:
            kept.remove(lost)
    return kept


def _order(outcome: PhaseResult) -> tuple[int, float]:
    main = _main(outcome.figures)
    works = 0 if outcome.verdict.works else 1
    return works, main.milliseconds if main and main.milliseconds else float("inf")


def _main(figures: Sequence[Figures]) -> Figures | None:
    """The figures that are shown: of the largest shape that was run."""
    return figures[-1] if figures else None


def _row(
    name: str,
    outcome: PhaseResult,
    figures: Figures | None,
    terminal: Terminal,
    columns: Sequence[int],
    reason: str,
    *,
    mark: bool = True,
) -> str:
    """One row. `columns`: the figures that fit; `reason`: why it does not work."""
    glyph, colour = _MARKS[outcome.verdict] if mark else (" ", "dim")
    verdict = terminal.pad(outcome.verdict.value if mark else "", 13)
    if figures is None or (figures.milliseconds is None and not outcome.verdict.works):
        words = "" if figures is None else f"max diff {error(figures)}; "
        room = max(10, terminal.width - len(name) - _BEFORE)
        tail = _cut(clean(words + terminal.say(reason)), room)
    else:
        shown = cells(figures)
        tail = "".join(shown[at].rjust(_WIDTHS[at]) for at in columns)
    small = " (small)" if figures is not None and mark and figures.shape.name == "small" else ""
    return f"{terminal.style(glyph, colour)} {name}  {terminal.style(verdict, colour)}{tail}{small}"


def _cut(words: str, room: int) -> str:
    if width_of(words) <= room:
        return words
    while width_of(words) >= room:
        words = words[:-1]
    return f"{words}…"


def compared(report: LiveReport) -> str:
    """How much was compared, at least, of every backend that works; empty if none does."""
    found = [
        figures.compared
        for one in report.results
        for outcome in one.outcomes.values()
        if outcome.verdict.works
        for figures in outcome.figures
    ]
    if not found:
        return ""
    calls, share = min(one.calls for one in found), min(one.share for one in found)
    return (
        f"compared with float64: {plural(calls, 'call')} of each shape with different inputs;"
        f" {rows_of_all_heads(share)}"
    )


def _absent(report: LiveReport, terminal: Terminal) -> Iterator[str]:
    groups: dict[str, list[str]] = {}
    for result in report.results:
        if result.verdict is Verdict.ABSENT:
            groups.setdefault(result.outcome.sentence, []).append(result.name)
    if groups:
        yield ""
    for why, names in groups.items():
        yield from terminal.marked("·", f"{why}: {', '.join(names)}")


def _failures(report: LiveReport, facts: Facts, terminal: Terminal, verbose: bool) -> Iterator[str]:
    """Every failure once, with the backends and phases it struck."""
    groups: dict[tuple[str, str, str], list[tuple[LiveResult, str, PhaseResult]]] = {}
    for result in report.results:
        for phase, outcome in result.outcomes.items():
            if not outcome.verdict.works and outcome.verdict is not Verdict.ABSENT:
                failure = outcome.failure
                first = (failure.message.splitlines() or [""])[0] if failure else outcome.sentence
                key = (outcome.verdict.value, failure.type if failure else "", first)
                groups.setdefault(key, []).append((result, phase, outcome))
    for (verdict, _, _), members in groups.items():
        outcome = members[0][2]
        glyph, colour = _MARKS[outcome.verdict]
        struck: dict[str, list[str]] = {}
        for one, phase, _ in members:
            struck.setdefault(one.title, []).append(phase)
        every = {phase for one in report.results for phase in one.outcomes}
        names = [
            title
            if set(phases) == every
            else f"{title} {' and '.join(terminal.say(f'in {phase}') for phase in phases)}"
            for title, phases in struck.items()
        ]
        yield ""
        head = f"{', '.join(names)}: {terminal.say(verdict)}"
        first, *rest = terminal.wrap(clean(head), 2)
        yield terminal.style(glyph, "bold", colour) + " " + terminal.style(first[2:], "bold")
        yield from rest
        yield from terminal.wrap(clean(outcome.sentence), 2)
        if outcome.failure is not None:
            yield from _failure_lines(outcome.failure, facts, terminal, verbose, with_error=False)


def _failure_lines(
    failure: Failure, facts: Facts, terminal: Terminal, verbose: bool, *, with_error: bool = True
) -> Iterator[str]:
    if with_error:
        yield from terminal.wrap(clean(f"{failure.type}: {failure.message}".strip(": ")), 2)
    cause = failure.cause
    if cause is not None:
        yield from labelled("cause", _cause(cause), terminal)
        yield from terminal.wrap(clean(cause.why), INDENT)
        yield from fix_lines(cause.fixes[:_FIXES], facts, terminal)
    if verbose or (cause is None and not failure.type):
        yield from printed_lines(failure, terminal, None if verbose else _LINES)


def printed_lines(failure: Failure, terminal: Terminal, most: int | None = _LINES) -> Iterator[str]:
    """The last lines that the process printed."""
    for line in failure.text.splitlines()[:most]:
        yield "  " + terminal.code(f"| {clean(line)}", "dim")


def _cause(cause: Cause) -> str:
    return f"{cause.title} [{cause.rule}; {cause.verdict}]"


def _differing(differing: Sequence[Disagreement], terminal: Terminal) -> Iterator[str]:
    for disagreement in differing:
        yield ""
        name, phase = disagreement.name, disagreement.phase
        words = f"attn-doctor was wrong about {name} ({phase})"
        if disagreement.outcome.verdict is Verdict.WRONG:
            words = f"{name} computes wrong results ({phase}), and the facts do not show it"
        yield terminal.style("✗ " + words, "bold", "red")
        yield from labelled("facts", f"say {disagreement.static}", terminal)
        yield from labelled("run", f"shows {disagreement.live}", terminal)
    verdicts = {one.outcome.verdict for one in differing}
    if verdicts - {Verdict.WRONG}:
        words = (
            "This is a bug in attn-doctor. A report to paste into an issue, without names and"
            " secrets, is written by: attn-doctor backends --live --format markdown"
        )
        yield from terminal.wrap(words, 2)
    if Verdict.WRONG in verdicts:
        words = "Use another backend, and report the wrong results to the project of this one."
        yield from terminal.wrap(words, 2)


def last_line(report: LiveReport) -> str:
    """How it went, in one line."""
    if report.failure is not None:
        first = (report.failure.message.splitlines() or [""])[0]
        return f"Nothing could be run: {first or report.failure.type}."
    counts: dict[str, int] = {}
    for result in report.results:
        if result.verdict is not Verdict.ABSENT:
            counts[result.verdict.value] = counts.get(result.verdict.value, 0) + 1
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "nothing to run"
    best = fastest(report.results)
    first = f" · fastest: {best.name}" if best is not None else ""
    ran = plural(sum(counts.values()), "backend")
    return f"{ran} in {report.seconds:.0f} s: {words}{first}"
