"""The matrix of backends as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from attn_doctor.backends.catalogue_entries import Backend
from attn_doctor.backends.readiness import Matrix, RequirementResult
from attn_doctor.facts import Facts
from attn_doctor.findings import Fix, Safety
from attn_doctor.install.offered import possible_here
from attn_doctor.render.findings.summary import tables_state
from attn_doctor.render.json_text import result
from attn_doctor.shell.commands import shell_lines


def json(matrix: Matrix, facts: Facts) -> str:
    """The whole table as one JSON object."""
    return result(**_common(facts), **plain(matrix, facts), facts=facts)


def why_json(
    backend: Backend,
    matrix: Matrix,
    name: str,
    results: Sequence[Sequence[RequirementResult]],
    facts: Facts,
) -> str:
    """One name with every requirement for every call."""
    calls = [msgspec.to_builtins(call) for call in matrix.calls]
    row: dict[str, Any] = msgspec.to_builtins(matrix.row(name))
    answers = [
        {
            "call": call,
            **_with_commands(answer, facts),
            "requirements": [_result(one, facts) for one in msgspec.to_builtins(requirements)],
        }
        for call, answer, requirements in zip(calls, row.pop("answers"), results, strict=True)
    ]
    about = {"declares": backend.declares, "truth": backend.truth, "source": backend.source}
    table = plain(matrix, facts)
    head = {key: table[key] for key in ("framework", "version", "installed", "context")}
    return result(**_common(facts), **head, **row, **about, answers=answers)


def _common(facts: Facts) -> dict[str, Any]:
    """What limits every answer."""
    return {
        "simulated": facts.simulated,
        "newer_releases": facts.newer_releases or (),
        "tables": tables_state(),
    }


def plain(matrix: Matrix, facts: Facts) -> dict[str, Any]:
    """The matrix as dictionaries, lists and scalars."""
    data: dict[str, Any] = msgspec.to_builtins(matrix)
    for row in data["rows"]:
        row["answers"] = [_with_commands(answer, facts) for answer in row["answers"]]
    for call, best in zip(data["calls"], data.pop("recommended"), strict=True):
        call["recommended"] = best
    return data


def _with_commands(answer: dict[str, Any], facts: Facts) -> dict[str, Any]:
    return {**answer, "reasons": [_result(one, facts) for one in answer["reasons"]]}


def _result(reason: dict[str, Any], facts: Facts) -> dict[str, Any]:
    """A requirement whose remedy is what works here, with commands as lines for the shell."""
    run = tuple(map(tuple, reason.pop("run")))
    exports = dict.fromkeys(reason.pop("unset"), "")
    fix = Fix(title=reason["remedy"], safety=Safety.ASK, run=run, exports=exports)
    if run:
        fix = possible_here(fix, facts)
    remedy = f"{fix.title}: {fix.manual}" if fix.manual else fix.title
    return {**reason, "remedy": remedy, "commands": shell_lines(fix, facts)}
