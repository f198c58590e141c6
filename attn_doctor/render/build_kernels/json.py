"""A build of kernels, or the plan of one, as one JSON object for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attn_doctor.kernels.builder.plan import Plan, PlannedBuild
from attn_doctor.kernels.builder.report import Report, Result
from attn_doctor.kernels.bundle.pack import Exported
from attn_doctor.render.build_kernels.off_gpu import plain
from attn_doctor.render.caches.bundle import exported_plain
from attn_doctor.render.json_text import result
from attn_doctor.shell.commands import shell_lines


def report_json(report: Report, code: int, exported: Exported | None = None) -> str:
    """What a build did; `code` is the exit code, `exported` the artifact that was written of it.

    `targets` holds the GPUs of other machines that it was built for; their kernels have the state
    `unverified`, with `reused` true and `verified` false.
    """
    return result(
        folder=report.folder,
        targets=plain(report.targets),
        python=report.facts.python.path,
        torch=report.facts.torch.version,
        jobs=report.jobs,
        limit=report.limit,
        seconds=round(report.seconds, 3),
        start_seconds=report.start_seconds,
        phases=report.phases,
        exit_code=code,
        kernels=[_kernel(one, report) for one in report.results],
        cleared=report.cleared,
        kept=report.kept,
        notes=report.notes,
        artifact=exported_plain(exported) if exported is not None else None,
    )


def plan_json(plan: Plan, folder: str, code: int, notes: Sequence[str] = ()) -> str:
    """What a build would do."""
    return result(
        folder=folder,
        targets=plain(plan.targets),
        notes=notes,
        jobs=plan.jobs,
        limit=plan.limit,
        seconds=round(plan.seconds, 1),
        exit_code=code,
        changes=plan.changes,
        kernels=[
            {
                **_planned(item, item.state),
                "refused": item.refused,
                "seconds": item.seconds if item.todo and not item.refused else 0.0,
            }
            for item in plan.kernels
        ],
        would_clear=plan.cleared,
    )


def _planned(item: PlannedBuild, state: str) -> dict[str, Any]:
    return {
        "id": item.spec.id,
        "title": item.spec.title,
        "spec": item.spec,
        "device": item.device,
        "device_slot": item.device_slot,
        "state": state,
        "why": item.why,
    }


def _kernel(done: Result, report: Report) -> dict[str, Any]:
    item, entry, match = done.kernel, done.entry, done.match
    build = entry.build if entry is not None else None
    shown: dict[str, Any] = {
        **_planned(item, _state(done)),
        "seconds": build.seconds if build else None,
        "reuse_seconds": build.reuse_seconds if build else None,
        "errors": build.errors if build else {},
        "compared": build.compared if build else {},
        "reused": bool(build and build.verified),
        "verified": bool(build and build.verified and entry and entry.state == "built"),
        "hits": build.hits if build else {},
        "limits": build.limits if build else [],
        "message": entry.message if entry is not None else "",
        "cause": entry.cause if entry is not None else "",
        "retried": done.retried,
        "log": done.log,
        "stages": report.stages.get(item.key, {}),
    }
    if match is not None:
        shown["fixes"] = [
            {"title": fix.title, "manual": fix.manual, "run": shell_lines(fix, report.facts)}
            for fix in match.fixes
        ]
    return shown


def _state(done: Result) -> str:
    if done.entry is None:
        return "not-begun"
    verified = done.entry.state == "built"
    return "up-to-date" if verified and not done.kernel.todo else done.entry.state
