"""Finds the policy file; most folders have none, so that reading one is another module."""

from __future__ import annotations

import os
from pathlib import Path

from attn_doctor.files import TEXT, read_bytes
from attn_doctor.worker import reach


def find(folder: Path) -> Path | None:
    """Return the nearest policy file at or above `folder`, or None."""
    for parent in (folder, *folder.parents):
        if reach.dead(parent):
            continue
        own, project = parent / "attn-doctor.toml", parent / "pyproject.toml"
        if os.path.lexists(own):
            return own  # also a pipe or a broken link, which `read` refuses
        if _mentions_us(project) and _has_table(project):
            return project
    return None


def _mentions_us(project: Path) -> bool:
    """A pyproject.toml that may have our table. Parsing each one would slow every check down."""
    try:
        return b"attn-doctor" in read_bytes(project, TEXT, cut=True)
    except OSError:
        return False


def _has_table(project: Path) -> bool:
    from attn_doctor.policy.policy import data_of, section_of

    return section_of(project, data_of(project)) is not None
