"""The matrix of backends as Markdown: one table, every name a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_doctor._version import __version__
from attn_doctor.backends.catalogue_entries import Backend
from attn_doctor.backends.readiness import Demand, Matrix, Outcome
from attn_doctor.facts import Facts
from attn_doctor.render.findings.markdown import escape
from attn_doctor.render.findings.readiness import head, label, reasons, subject
from attn_doctor.render.findings.summary import header


def markdown(matrix: Matrix, facts: Facts) -> str:
    """The whole page."""
    return "\n".join([*_top(matrix, facts), *rows(matrix), *_recommended(matrix)]) + "\n"


def rows(matrix: Matrix) -> Iterator[str]:
    """The table."""
    titles = [label(wish) for wish in matrix.wishes]
    yield "| backend | " + " | ".join(map(escape, titles)) + " | why |"
    yield "|---" * (len(titles) + 2) + "|"
    for row in matrix.rows:
        states = " | ".join(answer.state.value for answer in row.answers)
        told = "; ".join(
            f"{where}: {one.text}" if where else one.text for where, one in reasons(row, matrix)
        )
        yield f"| `{row.name}` | {states} | {escape(told)} |"
    yield ""


def why_markdown(
    backend: Backend,
    matrix: Matrix,
    name: str,
    told: Sequence[Sequence[Demand]],
    facts: Facts,
) -> str:
    """One name with every demand for every wish."""
    row = matrix.row(name)
    lines = [*_top(matrix, facts), f"#### `{name}`: {escape(backend.title)}", ""]
    for wish, answer, demands in zip(matrix.wishes, row.answers, told, strict=True):
        lines += [f"**{escape(label(wish))}: {answer.state.value}**", ""]
        lines += ["| demand | outcome | seen | wanted |", "|---|---|---|---|"]
        lines += [line for demand in demands for line in _demand(demand)]
        lines.append("")
    for framework, words in backend.declares.items():
        lines.append(f"- declared by {framework}: {escape(words)}")
    if backend.truth:
        lines.append(f"- in truth: {escape(backend.truth)}")
    return "\n".join([*lines, f"- <{backend.source}>"]) + "\n"


def _demand(demand: Demand) -> Iterator[str]:
    text = demand.text if demand.outcome in (Outcome.UNMET, Outcome.UNKNOWN) else demand.id
    first = f"| {escape(text)} | {demand.outcome.value} |"
    if demand.outcome is Outcome.NOT_DEMANDED or not demand.because:
        yield f"{first} | |"
        return
    for line in demand.because:
        yield f"{first} `{line.fact}` is {escape(line.seen)} | {escape(line.wanted)} |"
        first = "| | |"


def _top(matrix: Matrix, facts: Facts) -> Iterator[str]:
    yield f"### attn-doctor {__version__}: {escape(subject(matrix))}"
    yield ""
    yield f"Examined: {escape(header(facts))}. For {escape(head(matrix))}."
    if facts.simulated:
        yield f"Simulated: {escape(', '.join(facts.simulated))}."
    yield ""


def _recommended(matrix: Matrix) -> Iterator[str]:
    for wish, one in zip(matrix.wishes, matrix.recommended, strict=True):
        told = f"use `{one.name}`: {escape(one.why)}" if one.name else escape(one.why)
        yield f"- {escape(label(wish))}: {told}"
