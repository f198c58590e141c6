"""Shared by the renderers of backends: labels of calls, reasons by row, names by state."""

from __future__ import annotations

from collections.abc import Sequence

from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.readiness import Matrix, Readiness, RequirementResult, Row
from attn_doctor.facts import Facts
from attn_doctor.render.terminal import clean
from attn_doctor.shell.commands import in_text

#: A reason, with a label of the calls that it decides.
LabelledReason = tuple[str, RequirementResult]


def label(call: AttentionCall) -> str:
    """`inference`, `training with a bool mask`."""
    return call.phase + (f" with a {call.mask} mask" if call.masked else "")


def labels(matrix: Matrix) -> list[tuple[str, str]]:
    """Two lines over each column: the phase and the mask."""
    return [
        (call.phase, f"{call.mask} mask" if call.masked else "no mask") for call in matrix.calls
    ]


def subject(matrix: Matrix) -> str:
    """`Diffusers 0.42.1 (not installed; assumed: the newest known release)`."""
    text = f"{matrix.title} {matrix.version or '(version unknown)'}"
    if matrix.installed is False:
        text += " (not installed; assumed: the newest known release)"
    return text


def head(matrix: Matrix) -> str:
    """The properties that all columns share."""
    call = matrix.calls[0]
    parts = [call.dtype, f"heads of {call.head_dim}", f"{call.seq_len} tokens"]
    parts += [name for name, on in (("causal", call.causal), ("grouped heads", call.gqa)) if on]
    parts.append("compiled" if call.compiled else "not compiled")
    return ", ".join(parts)


def overall(row: Row) -> Readiness:
    """The best state that a row has for any call."""
    best = (Readiness.READY, Readiness.SLOW, Readiness.UNKNOWN, Readiness.NOT_READY)
    states = [answer.state for answer in row.answers]
    return next(state for state in best if state in states)


def reasons(row: Row, matrix: Matrix) -> list[LabelledReason]:
    """The reason that decides each answer, once for all calls that share it.

    Of a backend that is ready, every known fault of other calls.
    """
    found: dict[str, tuple[RequirementResult, list[int]]] = {}
    for number, answer in enumerate(row.answers):
        shown = answer.reasons if answer.state is Readiness.READY else answer.reasons[:1]
        for one in shown:
            found.setdefault(one.text, (one, []))[1].append(number)
    return [(shared_label(numbers, matrix), reason) for reason, numbers in found.values()]


def shared_label(numbers: Sequence[int], matrix: Matrix) -> str:
    """A label for the calls with these numbers; empty for all calls."""
    every = range(len(matrix.calls))
    chosen = [matrix.calls[number] for number in numbers]
    if len(numbers) == len(every):
        return ""
    for text, fits in (
        ("with a mask", [n for n in every if matrix.calls[n].masked]),
        ("without a mask", [n for n in every if not matrix.calls[n].masked]),
        ("in training", [n for n in every if matrix.calls[n].phase == "training"]),
        ("in inference", [n for n in every if matrix.calls[n].phase == "inference"]),
    ):
        if list(numbers) == fits:
            return text
    return "; ".join(map(label, chosen))


def _short(matrix: Matrix) -> dict[Readiness, str]:
    """Names by the best state that they reach, with the calls for which they do.

    Names for other hardware and names that this version does not know are left out. A package
    with no working backend is one word.
    """
    lists: dict[Readiness, dict[str, list[str]]] = {state: {} for state in Readiness}
    folded: set[str] = set()
    for row in matrix.rows:
        if row.hardware or not row.known or row.package in folded:
            continue
        state = overall(row)
        same = _alike(row, matrix)
        if len(same) > 1:
            folded.add(row.package)
            lists[state].setdefault("", []).append(f"{_pattern(same)} ({len(same)})")
            continue
        numbers = [n for n, answer in enumerate(row.answers) if answer.state is state]
        where = shared_label(numbers, matrix).replace("in ", "for ", 1)
        lists[state].setdefault(where, []).append(row.name)
    return {state: _grouped(groups) for state, groups in lists.items()}


def _grouped(groups: dict[str, list[str]]) -> str:
    """`native, flash; for inference: sage`."""
    parts = [", ".join(names) for where, names in groups.items() if not where]
    parts += [f"{where}: {', '.join(names)}" for where, names in groups.items() if where]
    return "; ".join(parts)


def _pattern(rows: Sequence[Row]) -> str:
    """One word for the names of a package: `sage*`, or `*_hub` for kernels of the Hub."""
    ends = {row.name.rpartition("_")[2] for row in rows}
    of_hub = rows[0].package == "kernels" and len(ends) == 1
    return f"*_{ends.pop()}" if of_hub else f"{rows[0].name}*"


def _alike(row: Row, matrix: Matrix) -> list[Row]:
    """All of a package's rows, if not one of them is ready for anything or slow."""
    same = [one for one in matrix.rows if one.known and one.package and one.package == row.package]
    states = {answer.state for one in same for answer in one.answers}
    bad = ({Readiness.NOT_READY}, {Readiness.UNKNOWN})
    return [one for one in same if not one.hardware] if states in bad else []


def short_form(matrix: Matrix, facts: Facts) -> list[str]:
    """What is ready, slow and not ready in three lines, and the recommendation."""
    if not any(row.known for row in matrix.rows):
        return [clean(matrix.recommended[0].why)]
    lists = _short(matrix)
    if not any(lists[state] for state in Readiness if state is not Readiness.NOT_READY):
        common = {row.answers[0].reasons[0].text for row in matrix.rows if row.known}
        why = f": {common.pop()}" if len(common) == 1 else ""
        return [clean(f"none is ready{why}")]
    lines = [
        f"{state.value}: {lists[state] or 'none'}"
        for state in (Readiness.READY, Readiness.SLOW, Readiness.NOT_READY)
    ]
    if lists[Readiness.UNKNOWN]:
        lines.append(f"unknown: {lists[Readiness.UNKNOWN]}")
    best = matrix.recommended[0]
    use = f"use {best.name}: {best.short}; " if best.name else ""
    lines.append(f"{use}`attn-doctor backends` says why (names of {_named(matrix)})")
    return [clean(in_text(line, facts)) for line in lines]


def _named(matrix: Matrix) -> str:
    """`Diffusers 0.42.1`, or `Diffusers`, if it is not installed."""
    installed = matrix.installed is not False
    return f"{matrix.title} {matrix.version}" if installed and matrix.version else matrix.title
