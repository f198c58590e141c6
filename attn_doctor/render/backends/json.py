"""The matrix of backends as JSON. `SCHEMA` rises when a key is renamed or changes meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from attn_doctor._version import __version__
from attn_doctor.backends.catalogue_entries import Backend
from attn_doctor.backends.readiness import Demand, Matrix
from attn_doctor.facts import Facts

SCHEMA = 1


def json(matrix: Matrix, facts: Facts) -> str:
    """The whole table as one JSON object."""
    return _written({**_head(facts), **plain(matrix), "facts": facts})


def why_json(
    backend: Backend,
    matrix: Matrix,
    name: str,
    told: Sequence[Sequence[Demand]],
    facts: Facts,
) -> str:
    """One name with every demand for every wish."""
    wishes = [msgspec.to_builtins(wish) for wish in matrix.wishes]
    row: dict[str, Any] = msgspec.to_builtins(matrix.row(name))
    answers = [
        {"wish": wish, **answer, "demands": msgspec.to_builtins(demands)}
        for wish, answer, demands in zip(wishes, row.pop("answers"), told, strict=True)
    ]
    about = {"declares": backend.declares, "truth": backend.truth, "source": backend.source}
    table = plain(matrix)
    head = {key: table[key] for key in ("framework", "version", "installed", "use")}
    return _written({**_head(facts), **head, **row, **about, "answers": answers})


def plain(matrix: Matrix) -> dict[str, Any]:
    """The matrix as dictionaries, lists and scalars."""
    data: dict[str, Any] = msgspec.to_builtins(matrix)
    for wish, best in zip(data["wishes"], data.pop("recommended"), strict=True):
        wish["recommended"] = best
    return data


def _head(facts: Facts) -> dict[str, Any]:
    return {"schema": SCHEMA, "attn_doctor": __version__, "simulated": facts.simulated}


def _written(data: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"
