"""The matrix of backends for a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_doctor.backends.catalogue_entries import Backend
from attn_doctor.backends.readiness import (
    Answer,
    Matrix,
    Outcome,
    Readiness,
    RequirementResult,
    Row,
)
from attn_doctor.backends.required import remedies
from attn_doctor.facts import Facts
from attn_doctor.findings import Fix
from attn_doctor.render.backends.labels import (
    head,
    label,
    labels,
    overall,
    reasons,
    shared_label,
    subject,
)
from attn_doctor.render.definition_list import labelled
from attn_doctor.render.findings.summary import blocks, caveats, opening
from attn_doctor.render.terminal import Terminal, clean, width_of
from attn_doctor.shell.commands import attn_doctor, in_text, shell_lines

_WORDS = {
    Readiness.READY: ("ready", "green"),
    Readiness.SLOW: ("slow", "yellow"),
    Readiness.UNKNOWN: ("?", "cyan"),
    Readiness.NOT_READY: ("no", "red"),
}
_MARKS = {
    Outcome.SATISFIED: ("✓", "green"),
    Outcome.UNSATISFIED: ("✗", "red"),
    Outcome.UNKNOWN: ("?", "cyan"),
    Outcome.NOT_APPLICABLE: ("·", "dim"),
}

_CELL = 12
#: Columns before the words of a labelled line.
_INDENT = 12


def text(matrix: Matrix, facts: Facts, terminal: Terminal) -> str:
    """The whole table."""
    lines = [*_top(matrix, facts, terminal)]
    shown = [row for row in matrix.rows if row.known and not row.hardware]
    usable = [row for row in shown if overall(row) in (Readiness.READY, Readiness.SLOW)]
    if usable:
        lines += [*_table(usable, matrix, facts, terminal), ""]
    for state, title in (
        (Readiness.NOT_READY, "Not ready"),
        (Readiness.UNKNOWN, "Unknown"),
    ):
        rows = [row for row in shown if overall(row) is state]
        if rows:
            lines += [*_grouped(title, rows, matrix, facts, terminal), ""]
    lines += _elsewhere(matrix, terminal)
    lines += _recommended(matrix, facts, terminal)
    return terminal.page(lines)


def why_text(
    backend: Backend,
    matrix: Matrix,
    name: str,
    results: Sequence[Sequence[RequirementResult]],
    facts: Facts,
    terminal: Terminal,
) -> str:
    """One name: every condition with the value seen. `results`: the requirements for each call."""
    row = matrix.row(name)
    lines = [*_top(matrix, facts, terminal)]
    lines.append(terminal.style(f"{name}: {backend.title}", "bold"))
    for call, answer in zip(matrix.calls, row.answers, strict=True):
        lines.append(f"  {label(call)}: {_state(answer.state, terminal)}")
    lines.append("")
    lines += _requirements(matrix, results, terminal)
    from attn_doctor.install.offered import possible_here

    for fix in (possible_here(one, facts) for one in remedies(row.answers)):
        words = f"{fix.title}: {fix.manual}" if fix.manual else fix.title
        lines += labelled("fix", words, terminal, indent=_INDENT)
        lines += _copied(fix, facts, terminal, _INDENT)
    for framework, words in backend.declares.items():
        lines += labelled("declared", f"by {framework}: {words}", terminal, indent=_INDENT)
    if backend.truth:
        lines += labelled("really", backend.truth, terminal, indent=_INDENT)
    if row.fallback:
        lines += labelled("otherwise", row.fallback, terminal, indent=_INDENT)
    if row.note:
        lines += labelled("note", row.note, terminal, indent=_INDENT)
    lines += labelled("source", backend.source, terminal, indent=_INDENT)
    return terminal.page(lines)


def _top(matrix: Matrix, facts: Facts, terminal: Terminal) -> Iterator[str]:
    yield from opening(facts, terminal)
    known = dict(blocks(facts))
    if facts.simulated:
        yield from terminal.wrap(clean(f"simulated: {', '.join(known['simulated'])}"), 0)
    machine = known["machine"][1:2] + known["torch"][:1]
    yield from terminal.wrap(clean(" · ".join((subject(matrix), *machine))), 0)
    for sentence in caveats(facts):
        yield from terminal.marked("i", sentence, "bold", "cyan")
    yield from terminal.wrap(f"Evaluated from files, nothing was run. Call: {head(matrix)}", 0)
    yield ""


def _table(rows: Sequence[Row], matrix: Matrix, facts: Facts, terminal: Terminal) -> Iterator[str]:
    """Rows with a word for each call and the reasons below; calls that do not fit follow."""
    width = max(len(row.name) for row in rows) + 2
    columns = labels(matrix)
    fitting = max(1, (terminal.width - width) // _CELL)
    for start in range(0, len(columns), fitting):
        part = range(start, min(start + fitting, len(columns)))
        for line in (0, 1):
            cells = "".join(terminal.pad(columns[n][line], _CELL) for n in part)
            yield terminal.style((" " * width + cells).rstrip(), "dim")
        last = part[-1] == len(columns) - 1
        for row in rows:
            cells = "".join(_cell(row.answers[n], terminal) for n in part)
            yield (terminal.style(row.name.ljust(width), "bold") + cells).rstrip()
            if last:
                yield from _short_of_ready(row, matrix, facts, terminal)
        if not last:
            yield ""


def _short_of_ready(row: Row, matrix: Matrix, facts: Facts, terminal: Terminal) -> Iterator[str]:
    for where, reason in reasons(row, matrix):
        prefix = f"{where}: " if where else ""
        yield from terminal.wrap(clean(f"{prefix}{reason.text}{_rule(reason.rule)}"), 4)
    yield from _remedies(row, facts, terminal, 4)


def _cell(answer: Answer, terminal: Terminal) -> str:
    word, colour = _WORDS[answer.state]
    if answer.wrong:
        word = "wrong"
    elif answer.state is Readiness.READY and answer.reasons:
        word = "ready, but"
    word = terminal.say(word)
    return terminal.style(word, colour) + " " * (_CELL - width_of(word))


def _grouped(
    title: str, rows: Sequence[Row], matrix: Matrix, facts: Facts, terminal: Terminal
) -> Iterator[str]:
    """Names that share their reasons and commands on one line."""
    groups: dict[tuple[tuple[str, ...], object], list[Row]] = {}
    for row in rows:
        sentences = tuple(
            (f"{where}: " if where else "") + one.text + _rule(one.rule)
            for where, one in reasons(row, matrix)
        )
        commands = tuple(fix.run for fix in remedies(row.answers))
        groups.setdefault((sentences, commands), []).append(row)
    yield terminal.style(title, "bold")
    for (sentences, _), same in groups.items():
        yield from terminal.wrap(", ".join(row.name for row in same), 2)
        for one in sentences:
            yield from terminal.wrap(clean(one), 6)
        yield from _remedies(same[0], facts, terminal, 6)
        yield from _fallbacks(same, terminal)


def _fallbacks(rows: Sequence[Row], terminal: Terminal) -> Iterator[str]:
    """What the framework does instead, for names that share it on one line."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if row.fallback:
            groups.setdefault(row.fallback, []).append(row.name)
    for words, names in groups.items():
        one = (
            words
            if len(groups) == 1 and len(names) == len(rows)
            else f"{', '.join(names)}: {words}"
        )
        yield from terminal.wrap(clean(f"otherwise: {one}"), 6)


def _remedies(row: Row, facts: Facts, terminal: Terminal, indent: int) -> Iterator[str]:
    """The remedies, once each."""
    from attn_doctor.install.offered import possible_here

    for remedy in remedies(row.answers):
        fix = possible_here(remedy, facts)
        yield from terminal.wrap(clean(f"fix: {fix.title}"), indent)
        if fix.manual:
            yield from terminal.wrap(clean(fix.manual), indent + 2)
        yield from _copied(fix, facts, terminal, indent + 2)


def _copied(fix: Fix, facts: Facts, terminal: Terminal, indent: int) -> Iterator[str]:
    """Code and commands, which are never wrapped, so that they can be copied."""
    for line in (*fix.code.splitlines(), *shell_lines(fix, facts)):
        yield " " * indent + terminal.code(clean(line), "green")


def _rule(rule: str) -> str:
    return f" [{rule}]" if rule else ""


def _elsewhere(matrix: Matrix, terminal: Terminal) -> Iterator[str]:
    """Names for other hardware and of other versions, on one line each."""
    others: dict[str, list[str]] = {}
    for row in matrix.rows:
        if row.hardware and row.known:
            others.setdefault(row.hardware, []).append(row.name)
    if others:
        words = "; ".join(f"{', '.join(names)} ({kind})" for kind, names in others.items())
        yield from terminal.wrap(f"For other hardware: {words}", 0)
    unknown = [*_not_in_this_release(matrix)]
    if unknown:
        yield from terminal.wrap(clean("; ".join(unknown)), 0)
    if matrix.note:
        yield from terminal.wrap(clean(matrix.note), 0)
    if others or unknown or matrix.note:
        yield ""


def _not_in_this_release(matrix: Matrix) -> Iterator[str]:
    """`Diffusers 0.35.1 has no flash_hub, sage_hub (since 0.36)`: names that share the rest."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in matrix.rows:
        if not row.known:
            text = row.answers[0].reasons[0].text
            before, found, behind = text.partition(row.name)
            if not found:
                yield text
                continue
            groups.setdefault((before, behind), []).append(row.name)
    before_last = ""
    for (before, behind), names in groups.items():
        yield f"{'no ' if before == before_last else before}{', '.join(names)}{behind}"
        before_last = before


def _recommended(matrix: Matrix, facts: Facts, terminal: Terminal) -> Iterator[str]:
    """One line for each recommendation that differs."""
    groups: dict[str, list[int]] = {}
    for number, one in enumerate(matrix.recommended):
        groups.setdefault(one.name, []).append(number)
    for name, numbers in groups.items():
        # The last one says most about the difference between the measurement and the call.
        first = matrix.recommended[numbers[-1]]
        where = shared_label(numbers, matrix)
        where = f"{where}: " if where else ""
        line = f"{where}use {name}: {first.why}" if name else f"{where}{first.why}"
        yield from terminal.marked("→", in_text(line, facts), "bold", "green")
    if best := next((one.name for one in matrix.recommended if one.name), ""):
        command = attn_doctor("backends", "--why", best, facts=facts)
        yield from terminal.wrap(f"`{command}` shows every condition with the value seen.", 2)
    elif matrix.recommended and any(row.known for row in matrix.rows):
        command = attn_doctor("check", facts=facts)
        yield from terminal.wrap(f"`{command}` with the same options shows what to repair.", 2)


def _requirements(
    matrix: Matrix, results: Sequence[Sequence[RequirementResult]], terminal: Terminal
) -> Iterator[str]:
    """Each requirement once, by its worst outcome, with the calls where it has that one."""
    order = (Outcome.UNSATISFIED, Outcome.UNKNOWN, Outcome.SATISFIED, Outcome.NOT_APPLICABLE)
    by_id: dict[str, list[tuple[int, RequirementResult]]] = {}
    for number, requirements in enumerate(results):
        for requirement in requirements:
            by_id.setdefault(requirement.id, []).append((number, requirement))
    worst = {
        id: min(group, key=lambda one: order.index(one[1].outcome))[1]
        for id, group in by_id.items()
    }
    for id, requirement in sorted(worst.items(), key=lambda one: order.index(one[1].outcome)):
        same = [number for number, one in by_id[id] if one.outcome is requirement.outcome]
        glyph, colour = _MARKS[requirement.outcome]
        words = requirement.label or id.replace("-", " ")
        if requirement.outcome in order[:2]:
            words = requirement.text
        elif requirement.outcome is Outcome.NOT_APPLICABLE:
            words = f"not applicable: {words}"
        where = shared_label(same, matrix)
        title = f"{words}{f' ({where})' if where else ''}{_rule(requirement.rule)}"
        yield from terminal.marked(glyph, title, colour)
        if requirement.outcome is Outcome.NOT_APPLICABLE:
            continue
        for line in requirement.because:
            gap = f" ({line.gap})" if line.gap else ""
            yield from terminal.wrap(clean(f"{line.in_words()}{gap}"), 6)
    yield ""


def _state(state: Readiness, terminal: Terminal) -> str:
    return terminal.style(state.value, _WORDS[state][1])
