"""A warm-up by a program of the user's own, as one JSON object for programs."""

from __future__ import annotations

from typing import Any

import msgspec

from attn_doctor import __version__
from attn_doctor.builder.warmup import Program, Ran

__all__ = ["warmup_json"]

SCHEMA = 1


def warmup_json(ran: Ran, program: Program, code: int) -> str:
    """What the program compiled and whether a second run reused it; `code` is our exit code."""
    told: dict[str, Any] = {
        "schema": SCHEMA,
        "attn_doctor": __version__,
        "argv": list(program.argv),
        "folder": str(program.folder),
        "device": program.device,
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
    return msgspec.json.format(msgspec.json.encode(told), indent=2).decode() + "\n"
