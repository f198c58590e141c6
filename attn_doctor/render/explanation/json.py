"""An explanation as JSON for programs. `SCHEMA` increases when a key changes name or meaning."""

from __future__ import annotations

from typing import Any

import msgspec

from attn_doctor._version import __version__
from attn_doctor.explain.explanation import Explanation, RankedCause
from attn_doctor.render.findings.json import fix

SCHEMA = 1


def json(found: Explanation, code: int) -> str:
    """The explanation and the exit code as one JSON object."""
    data = {
        "schema": SCHEMA,
        "matches": [_match(one, found) for one in found.matches],
        "attn_doctor": __version__,
        "exit_code": code,
        "probed": found.probed,
        "logs": found.logs,
        "log_facts": found.log_facts,
        "rules": found.rules,
        "seconds": round(found.seconds, 3),
    }
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"


def _match(one: RankedCause, found: Explanation) -> dict[str, Any]:
    fixes = [fix(written, found.facts) for written in one.fixes]
    return {
        "rule": one.rule,
        "cause": one.cause,
        "confidence": one.confidence,
        "line": one.line,
        "file": one.file,
        "excerpt": one.excerpt,
        "verdict": one.confirmation,
        "reason": one.reason,
        "title": one.title,
        "why": one.why,
        "fixes": fixes,
    }
