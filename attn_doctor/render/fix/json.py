"""Writes plans, results and runs of `fix` as JSON. `SCHEMA` rises if a key changes its meaning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from attn_doctor._version import __version__
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding
from attn_doctor.fixes import installers
from attn_doctor.fixes.apply import Applied
from attn_doctor.fixes.journal import Run
from attn_doctor.fixes.steps import Plan
from attn_doctor.fixes.undo import Undo, Undone
from attn_doctor.fixes.wheel_check import Verdict
from attn_doctor.render.json_text import json_text

SCHEMA = 1


def fix_json(plan: Plan, facts: Facts, code: int, applied: Applied | None = None) -> str:
    """Return the plan, and its results if it was applied."""
    data: dict[str, Any] = {
        "exit_code": code,
        "python": facts.python.path,
        "newer_releases": facts.newer_releases or (),
        "plan": plan_data(plan, facts),
    }
    if applied is not None:
        data["applied"] = {
            "id": applied.id,
            "ok": applied.ok,
            "steps": [
                {
                    "number": one.step.number,
                    "rules": one.step.rules,
                    "state": one.state,
                    "detail": one.detail,
                    "causes": one.causes,
                    "log": one.log,
                    "seconds": round(one.seconds, 1),
                }
                for one in applied.results
            ],
            "changes": [msgspec.to_builtins(one) for one in applied.changes],
            "resolved": [_finding(one) for one in applied.resolved],
            "introduced": [_finding(one) for one in applied.introduced],
            "remaining": [_finding(one) for one in applied.after.problems],
        }
    return _written(data)


def plan_data(plan: Plan, facts: Facts) -> dict[str, Any]:
    """Return a plan with its commands for this environment, as plain data."""
    plain: dict[str, Any] = msgspec.to_builtins(plan)
    for step, written in zip(plain["steps"], plan.steps, strict=True):
        step["commands"] = [list(installers.command(argv, facts, None)) for argv in written.run]
        step["ready"] = written.ready
        step["remedies"] = [
            {"rule": fix.rule, "remedy": fix.remedy} for fix in written.fixes if fix.rule
        ]
        del step["fixes"]
    return plain


def _finding(one: Finding) -> dict[str, str]:
    return {"rule": one.rule, "title": one.title, "subject": one.subject}


def undo_json(wanted: Undo, code: int, undone: Undone | None = None) -> str:
    """Return what undoing a run would do, and the result."""
    plan = msgspec.to_builtins(wanted)
    plan["exchanges"] = [one.path for one in wanted.exchanges]
    data: dict[str, Any] = {"exit_code": code, "undo": plan}
    if undone is not None:
        data["undone"] = msgspec.to_builtins(undone)
    return _written(data)


def history_json(runs: Iterable[Run]) -> str:
    """Return all runs, the newest first."""
    return _written(
        {
            "runs": [
                {
                    "id": one.id,
                    "state": one.state,
                    "title": one.title,
                    "python": one.python,
                    "time": one.when,
                    "folder": str(one.folder),
                }
                for one in runs
            ]
        }
    )


def wheels_json(verdicts: Sequence[tuple[Verdict, tuple[str, ...]]]) -> str:
    """Return the verdicts on wheels, each with notes on compiling it here."""
    return _written(
        {"wheels": [{**msgspec.to_builtins(one), "build": notes} for one, notes in verdicts]}
    )


def _written(data: dict[str, Any]) -> str:
    whole = {"schema": SCHEMA, "attn_doctor": __version__, **data}
    return json_text(whole)
