"""Triton's list of the files of one kernel, `__grp__<kernel>.json`, which names absolute paths.

A cache may be seen under two paths: a container mounts it as `/cache`. Its lists then name files
that do not exist under that path here, and nothing is wrong with them.
"""

from __future__ import annotations

import json
import os

from attn_doctor.kernels.caches.file_tree import Tree

PREFIX = "__grp__"


def children(data: bytes) -> list[str] | None:
    """The paths in a list; None if it is none."""
    try:
        found = json.loads(data)["child_paths"]
        paths = [str(path) for path in found.values()]
        for path in paths:
            os.fsencode(path)  # a `ValueError` for halves of letters, which no path has
        return paths
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def elsewhere(tree: Tree, path: str, named: list[str]) -> str:
    """The folder that a list at `path` names, if it is not the folder in which the list lies."""
    here = os.path.dirname(tree.full(path))
    for folder in dict.fromkeys(map(os.path.dirname, named)):
        if folder != here and not _same(folder, here):
            return folder
    return ""


def missing(tree: Tree, path: str, named: list[str]) -> str:
    """The first file that a list at `path` names and that is not beside it.

    Files of another kernel's folder are not looked for: what is there is not known.
    """
    key, here = path.split("/")[-2:-1], os.path.dirname(tree.full(path))
    for child in named:
        folder, name = os.path.split(child)
        if os.path.lexists(os.path.join(here, name)):
            continue
        if not os.path.basename(folder) or [os.path.basename(folder)] == key or folder == here:
            return child
    return ""


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
