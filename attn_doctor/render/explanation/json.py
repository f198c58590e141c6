"""An explanation as JSON for programs."""

from __future__ import annotations

from typing import Any

from attn_doctor.explain.explanation import Explanation, RankedCause
from attn_doctor.render.findings.json import fix, page_of
from attn_doctor.render.json_text import result


def json(found: Explanation, code: int) -> str:
    """The explanation and the exit code as one JSON object."""
    return result(
        outcome=found.outcome,
        matches=[_match(one, found) for one in found.matches],
        guess=_guess(found),
        note=found.note,
        exit_code=code,
        probed=found.probed,
        logs=found.logs,
        log_facts=found.log_facts,
        conflicts=found.conflicts,
        known_lines=found.known_lines,
        rules=found.rules,
        newer_releases=found.facts.newer_releases or (),
        seconds=round(found.seconds, 3),
    )


def _match(one: RankedCause, found: Explanation) -> dict[str, Any]:
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
        "fixes": [fix(written, found.facts_for(one)) for written in one.fixes],
        **page_of(one.rule),
    }


def _guess(found: Explanation) -> dict[str, Any] | None:
    guess = found.guess
    if guess is None:
        return None
    return {
        "component": guess.component,
        "kind": guess.kind,
        "line": guess.line,
        "file": guess.file,
        "excerpt": guess.excerpt,
        "title": guess.title,
        "frame": guess.frame,
        "source": guess.source,
        "condition": guess.condition,
        "found": guess.seen,
        "wanted": guess.wanted,
        "fixes": [fix(written, found.facts) for written in guess.fixes],
    }
