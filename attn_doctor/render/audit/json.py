"""The results of an audit as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from attn_doctor.backends.audit.outcome import AuditReport
from attn_doctor.render.audit.words import verdict
from attn_doctor.render.json_text import result


def json(report: AuditReport, code: int) -> str:
    """The report and the exit code as one JSON object."""
    return result(exit_code=code, audit=as_data(report))


def as_data(report: AuditReport) -> dict[str, Any]:
    """The report as plain data, to stand by itself or beside that of `--live`."""
    data: dict[str, Any] = msgspec.to_builtins(report)
    data["complete"] = report.complete
    for plain, one in zip(data["results"], report.results, strict=True):
        plain["verdict"] = verdict(one)
    return data
