"""A warm-up by a program of the user's own, as one JSON object for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from attn_doctor._version import __version__
from attn_doctor.kernels.builder.program_run import Program
from attn_doctor.kernels.builder.warmup import WarmupResult
from attn_doctor.render.build_kernels import artifact
from attn_doctor.render.build_kernels.artifact import Exported
from attn_doctor.render.build_kernels.target import plain

SCHEMA = 1


def warmups_json(
    rans: Sequence[tuple[WarmupResult, Program, int]], exported: Exported | None = None
) -> str:
    """What the program compiled and whether a second run reused it.

    One object; for several targets a list of them, in the order of the targets. With each run goes
    our exit code for it. `exported`: the artifact that was written of all.
    """
    written = artifact.plain(exported) if exported is not None else None
    shown = [{**_one(ran, program, code), "artifact": written} for ran, program, code in rans]
    whole: Any = shown[0] if len(shown) == 1 else shown
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"


def planned_json(found: Sequence[tuple[Program, str]], code: int) -> str:
    """What would be run, and why; one object, or for several targets a list of them."""
    shown = [
        {
            "schema": SCHEMA,
            "attn_doctor": __version__,
            "argv": list(program.argv),
            "folder": str(program.folder),
            "device": program.device,
            "targets": plain([program.target] if program.target is not None else []),
            "state": "would-run" if why else "up-to-date",
            "why": why,
            "exit_code": code,
        }
        for program, why in found
    ]
    whole: Any = shown[0] if len(shown) == 1 else shown
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"


def _one(ran: WarmupResult, program: Program, code: int) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "attn_doctor": __version__,
        "argv": list(program.argv),
        "folder": str(program.folder),
        "device": program.device,
        "targets": plain([program.target] if program.target is not None else []),
        "refused": list(ran.refused),
        "notes": list(ran.notes),
        "wrong": ran.wrong,
        "exit_code": code,
        "program_exit_code": ran.code,
        "late": ran.late,
        "first": ran.first,
        "new_files": ran.added,
        "warmup": msgspec.to_builtins(ran.warmup) if ran.warmup is not None else None,
        "cleared": msgspec.to_builtins(ran.cleared),
        "kept": ran.kept,
        "log": ran.log,
    }
