"""The results of a live run as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from attn_doctor.backends.live.outcome import LiveReport
from attn_doctor.backends.live.ranking import fastest
from attn_doctor.backends.live.static_disagreements import Disagreement
from attn_doctor.render.json_text import result


def json(report: LiveReport, differing: Sequence[Disagreement], code: int) -> str:
    """The report and the exit code as one JSON object."""
    return result(exit_code=code, live=as_data(report, differing))


def as_data(report: LiveReport, differing: Sequence[Disagreement]) -> dict[str, Any]:
    """The report as plain data, to stand by itself or beside a diagnosis."""
    data: dict[str, Any] = msgspec.to_builtins(report)
    for plain, one in zip(data["results"], report.results, strict=True):
        plain["verdict"] = one.verdict.value
    best = fastest(report.results)
    data["fastest"] = best.name if best is not None else None
    data["disagreements"] = [
        {"backend": one.name, "phase": one.phase, "static": one.static, "live": one.live}
        for one in differing
    ]
    return data
