"""The matrix of backends as a page: a table of states, then the reasons and what changes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from attn_doctor.backends.readiness import Answer, Matrix, Row
from attn_doctor.backends.required import remedies
from attn_doctor.facts import Facts
from attn_doctor.install.offered import possible_here
from attn_doctor.render.backends.labels import head, label, reasons, shared_label, subject
from attn_doctor.render.backends.standings import WORDS, cell, shown_rows, used
from attn_doctor.render.findings.summary import blocks, caveats, header
from attn_doctor.render.html.elements import (
    Html,
    fixes,
    join,
    listed,
    prose,
    rule_name,
    section,
    table,
    tag,
)
from attn_doctor.render.html.page import page


def html(matrix: Matrix, facts: Facts) -> str:
    """The whole page."""
    rows = shown_rows(matrix)
    return page(
        "backends",
        _verdict(matrix, facts),
        f"{subject(matrix)}, {header(facts)}",
        [
            section("Backends", matrix_table(matrix, facts), _legend(rows, facts)),
            section("Recommended", listed(_recommended(matrix, facts))),
            section("Reasons", *_groups(rows, matrix, facts)),
            section("Limits", listed(map(prose, _limits(matrix, facts)))),
        ],
    )


def matrix_table(matrix: Matrix, facts: Facts) -> Html:
    """The table: a row for each name, a column for each call."""
    return table(
        f"{subject(matrix)}: {head(matrix)}",
        ["backend", *map(label, matrix.calls)],
        (
            [tag("code", *_parts(row.name)), *(_cell(answer, facts) for answer in row.answers)]
            for row in shown_rows(matrix)
        ),
    )


def _parts(name: str) -> Iterator[str]:
    """A name that may go on in a new line behind an underscore."""
    first, *rest = re.split("(?<=[a-z0-9]_)", name)
    yield first
    for part in rest:
        yield from (Html("<wbr>"), part)


def _cell(answer: Answer, facts: Facts) -> Html:
    state, words = cell(answer, facts)
    return tag("td", words, class_=f"state {state.value}")


def _verdict(matrix: Matrix, facts: Facts) -> Html:
    names = list(dict.fromkeys(one.name for one in matrix.recommended if one.name))
    words = f"Use {' or '.join(names)}." if names else "None is ready."
    machine = " · ".join(dict(blocks(facts))["machine"][1:2])
    return (
        join([tag("strong", words), prose(f" On {machine}.")]) if machine else tag("strong", words)
    )


def _legend(rows: Sequence[Row], facts: Facts) -> Html:
    items = (
        tag("li", tag("span", f"{sign} {words}", class_=f"state {state.value}"), f" {meaning}")
        for state in used(rows, facts)
        for sign, words, meaning in [WORDS[state]]
    )
    return tag("ul", *items, class_="legend", aria_label="states")


def _recommended(matrix: Matrix, facts: Facts) -> Iterator[Html]:
    """One line for each recommendation that differs."""
    groups: dict[str, list[int]] = {}
    for number, one in enumerate(matrix.recommended):
        groups.setdefault(one.name, []).append(number)
    for name, numbers in groups.items():
        where = shared_label(numbers, matrix)
        # The last one says most about the difference between the measurement and the call.
        why = matrix.recommended[numbers[-1]].why
        use = f"use `{name}`: {why}" if name else why
        yield prose(f"{where}: {use}" if where else use, facts)


def _groups(rows: Sequence[Row], matrix: Matrix, facts: Facts) -> Iterator[Html]:
    """Names that share their reasons, with what changes them."""
    groups: dict[tuple[tuple[tuple[str, str], ...], object], list[Row]] = {}
    for row in rows:
        sentences = tuple(
            ((f"{where}: " if where else "") + one.text, one.rule)
            for where, one in reasons(row, matrix)
        )
        if sentences:
            commands = tuple(fix.run for fix in remedies(row.answers))
            groups.setdefault((sentences, commands), []).append(row)
    for (sentences, _), same in groups.items():
        names = [tag("code", row.name) for row in same]
        fallbacks = dict.fromkeys(
            (f"otherwise: {row.fallback}", "") for row in same if row.fallback
        )
        cures = (possible_here(one, facts) for one in remedies(same[0].answers))
        yield tag(
            "article",
            tag("h3", Html(", ".join(names))),
            listed(_reason(*one, facts) for one in (*sentences, *fallbacks)),
            *fixes(cures, facts),
        )


def _reason(words: str, rule: str, facts: Facts) -> Html:
    """A reason, and the rule that says more about it."""
    shown = prose(words, facts)
    return Html(f"{shown} [{rule_name(rule)}]") if rule else shown


def _limits(matrix: Matrix, facts: Facts) -> Iterator[str]:
    yield "Evaluated from files; nothing was run."
    if facts.simulated:
        yield f"Simulated: {', '.join(facts.simulated)}."
    yield from (f"{one.rstrip('.')}." for one in caveats(facts))
    others: dict[str, list[str]] = {}
    for row in matrix.rows:
        if row.hardware and row.known:
            others.setdefault(row.hardware, []).append(f"`{row.name}`")
    for kind, names in others.items():
        yield f"For other hardware ({kind}): {', '.join(names)}."
    if unknown := [f"`{row.name}`" for row in matrix.rows if not row.known]:
        yield f"Not in this release: {', '.join(unknown)}."
    if matrix.note:
        yield matrix.note
