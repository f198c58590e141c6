"""The matrix of backends as Markdown: one table, every name a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_doctor._version import __version__
from attn_doctor.backends.catalogue_entries import Backend
from attn_doctor.backends.readiness import Matrix, Outcome, RequirementResult
from attn_doctor.facts import Facts
from attn_doctor.render.backends.labels import head, label, reasons, subject
from attn_doctor.render.findings.markdown import escape
from attn_doctor.render.findings.summary import caveats, header


def markdown(matrix: Matrix, facts: Facts) -> str:
    """The whole page."""
    return "\n".join([*_top(matrix, facts), *rows(matrix), *_recommended(matrix)]) + "\n"


def rows(matrix: Matrix) -> Iterator[str]:
    """The table."""
    titles = [label(call) for call in matrix.calls]
    yield "| backend | " + " | ".join(map(escape, titles)) + " | why |"
    yield "|---" * (len(titles) + 2) + "|"
    for row in matrix.rows:
        states = " | ".join(answer.state.value for answer in row.answers)
        words = "; ".join(
            f"{where}: {one.text}" if where else one.text for where, one in reasons(row, matrix)
        )
        yield f"| `{row.name}` | {states} | {escape(words)} |"
    yield ""


def why_markdown(
    backend: Backend,
    matrix: Matrix,
    name: str,
    results: Sequence[Sequence[RequirementResult]],
    facts: Facts,
) -> str:
    """One name with every requirement for every call."""
    row = matrix.row(name)
    lines = [*_top(matrix, facts), f"#### `{name}`: {escape(backend.title)}", ""]
    for call, answer, requirements in zip(matrix.calls, row.answers, results, strict=True):
        lines += [f"**{escape(label(call))}: {answer.state.value}**", ""]
        lines += ["| requirement | outcome | seen | wanted |", "|---|---|---|---|"]
        lines += [line for requirement in requirements for line in _requirement(requirement)]
        lines.append("")
    for framework, words in backend.declares.items():
        lines.append(f"- declared by {framework}: {escape(words)}")
    if backend.truth:
        lines.append(f"- really: {escape(backend.truth)}")
    if row.fallback:
        lines.append(f"- otherwise: {escape(row.fallback)}")
    return "\n".join([*lines, f"- <{backend.source}>"]) + "\n"


def _requirement(requirement: RequirementResult) -> Iterator[str]:
    text = (
        requirement.text
        if requirement.outcome in (Outcome.UNSATISFIED, Outcome.UNKNOWN)
        else requirement.id
    )
    first = f"| {escape(text)} | {requirement.outcome.value} |"
    if requirement.outcome is Outcome.NOT_APPLICABLE or not requirement.because:
        yield f"{first} | |"
        return
    for line in requirement.because:
        yield f"{first} `{line.fact}` is {escape(line.seen)} | {escape(line.wanted)} |"
        first = "| | |"


def _top(matrix: Matrix, facts: Facts) -> Iterator[str]:
    yield f"### attn-doctor {__version__}: {escape(subject(matrix))}"
    yield ""
    yield f"Examined: {escape(header(facts))}. For {escape(head(matrix))}."
    if facts.simulated:
        yield f"Simulated: {escape(', '.join(facts.simulated))}."
    for sentence in caveats(facts):
        yield f"{escape(sentence)}."
    yield ""


def _recommended(matrix: Matrix) -> Iterator[str]:
    for call, one in zip(matrix.calls, matrix.recommended, strict=True):
        words = f"use `{one.name}`: {escape(one.why)}" if one.name else escape(one.why)
        yield f"- {escape(label(call))}: {words}"
