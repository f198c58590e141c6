"""Removing files that will be built anew, each listed with its reason, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct


class Cleared(Struct, frozen=True, kw_only=True):
    """One file that was removed before building, or would be."""

    path: str
    """Absolute."""
    bytes: int
    why: str


def clear(
    wanted: Iterable[Cleared], roots: Sequence[str] = ()
) -> tuple[tuple[Cleared, ...], dict[str, str]]:
    """Remove files below `roots`, the cache folders they belong to.

    Returns what is gone, and what should be and is not → why.
    """
    from attn_doctor.kernels.caches.deletion import remove

    by_root: dict[str, dict[str, Cleared]] = {}
    kept: dict[str, str] = {}
    for one in wanted:
        root = next((root for root in roots if Path(one.path).is_relative_to(root)), "")
        if root:
            by_root.setdefault(root, {})[Path(one.path).relative_to(root).as_posix()] = one
        else:
            kept[one.path] = "it lies in none of the cache folders"
    done: list[Cleared] = []
    for root, files in by_root.items():
        removed = remove(root, files)
        done += [files[name] for name in removed.files]
        for name, why in removed.kept.items():
            if os.path.lexists(files[name].path):
                kept[files[name].path] = why
    return tuple(done), kept
