"""A warm-up by a program of the user's own, as one JSON object for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attn_doctor._version import __version__
from attn_doctor.kernels.builder.program_run import Program
from attn_doctor.kernels.builder.warmup import WarmupResult
from attn_doctor.kernels.bundle.pack import Exported
from attn_doctor.render.build_kernels.off_gpu import plain
from attn_doctor.render.caches.bundle import exported_plain
from attn_doctor.render.json_text import SCHEMA, json_text


def warmups_json(
    rans: Sequence[tuple[WarmupResult, Program, int]], exported: Exported | None = None
) -> str:
    """What the program compiled and whether a second run reused it.

    One object; for several targets a list of them, in the order of the targets. With each run goes
    our exit code for it. `exported`: the artifact that was written of all.
    """
    written = exported_plain(exported) if exported is not None else None
    return _one_or_all([{**_ran(*run), "artifact": written} for run in rans])


def planned_json(found: Sequence[tuple[Program, str]], code: int) -> str:
    """What would be run, and why; one object, or for several targets a list of them."""
    return _one_or_all(
        [
            {
                **_program(program),
                "state": "would-run" if why else "up-to-date",
                "why": why,
                "exit_code": code,
            }
            for program, why in found
        ]
    )


def _one_or_all(runs: Sequence[dict[str, Any]]) -> str:
    return json_text(runs[0] if len(runs) == 1 else runs)


def _program(program: Program) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "attn_doctor": __version__,
        "argv": program.argv,
        "folder": str(program.folder),
        "device": program.device,
        "targets": plain([program.target] if program.target is not None else []),
    }


def _ran(ran: WarmupResult, program: Program, code: int) -> dict[str, Any]:
    return {
        **_program(program),
        "refused": ran.refused,
        "notes": ran.notes,
        "wrong": ran.wrong,
        "exit_code": code,
        "program_exit_code": ran.code,
        "late": ran.late,
        "first": ran.first,
        "new_files": ran.added,
        "warmup": ran.warmup,
        "cleared": ran.cleared,
        "kept": ran.kept,
        "log": ran.log,
    }
