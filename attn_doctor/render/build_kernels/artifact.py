"""An artifact that a build has written, in words and as plain values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct

from attn_doctor.kernels.bundle.artifact import Artifact


class Exported(Struct, frozen=True, kw_only=True):
    """What was written, and where."""

    artifact: Artifact
    file: Path
    digest: str
    """SHA-256 of the whole file."""
    bytes: int
    left_out: dict[str, str] = {}
    """What stayed behind → why."""


def words(one: Exported) -> str:
    """What was written, what was not, and the command for the other machine."""
    from attn_doctor.render.caches.bundle import exported_text

    return exported_text(one.artifact, one.file, one.digest, one.bytes, one.left_out, None)


def plain(one: Exported) -> dict[str, Any]:
    """The same for programs."""
    return {
        "file": str(one.file),
        "sha256": one.digest,
        "bytes": one.bytes,
        "kernels": len(one.artifact.entries),
        "left_out": one.left_out,
    }
