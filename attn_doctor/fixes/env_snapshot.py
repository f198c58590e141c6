"""Copies the folders of the examined environment before a step, and restores them.

A copy is beside site-packages, so that hard links are possible, in `.attn-doctor-undo/<run>`;
removing the environment removes it. Folders outside (such as conda's packages) are not copied.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.fixes import link_copy
from attn_doctor.fixes.distributions import Installed, owners
from attn_doctor.fixes.installers import installer_environment
from attn_doctor.fixes.journal import MARKER, Journal
from attn_doctor.json_files import JsonError, decode
from attn_doctor.processes import run

UNDO = ".attn-doctor-undo"
_ASK = "import json, sysconfig; print(json.dumps(sysconfig.get_paths()))"


class Part(Struct, frozen=True):
    """One folder and its copy."""

    folder: str
    copy: str


def places(facts: Facts, environ: Mapping[str, str], folder: Path) -> list[str]:
    """Return the folders that an installer writes to, site-packages first.

    Raises `AttnDoctorError` if the interpreter does not name them.
    """
    python = facts.python.path or sys.executable
    env = installer_environment(environ, {})
    ended = run([python, "-I", "-B", "-c", _ASK], 30, env=env, cwd=str(folder))
    try:
        paths = decode(ended.out, dict[str, str])
        found = [paths["purelib"], paths["platlib"], paths["scripts"]]
    except (JsonError, KeyError):
        raise AttnDoctorError(
            f"{python} does not name its package folders ({ended.status}); nothing was changed"
        ) from None
    if facts.python.environment == "venv" and facts.python.prefix:
        found += [os.path.join(facts.python.prefix, name) for name in ("share", "etc", "include")]
    return [one for one in dict.fromkeys(map(os.path.realpath, found)) if os.path.isdir(one)]


def keep(journal: Journal, folders: Sequence[str], label: str) -> tuple[Part, ...]:
    """Copy `folders`, journalled first.

    Raises `AttnDoctorError` if that fails; no copy remains then.
    """
    root = os.path.join(os.path.dirname(folders[0]), UNDO, journal.id, label)
    parts = tuple(Part(one, os.path.join(root, str(n))) for n, one in enumerate(folders))
    journal.note("packages", label=label, parts=[[one.folder, one.copy] for one in parts])
    try:
        os.makedirs(root, mode=0o700)
        Path(root, MARKER).write_text(journal.id + "\n", encoding="utf-8")
        for one in parts:
            link_copy.keep(one.folder, one.copy)
    except BaseException as error:
        forget(parts)
        journal.note("unkept", label=label)
        if isinstance(error, OSError):
            raise AttnDoctorError(
                f"{folders[0]} cannot be copied for undo: {error.strerror}; nothing was changed"
            ) from None
        raise
    journal.note("kept", label=label)
    return parts


def roll_back(parts: Iterable[Part], left: Callable[[str], bool] = lambda _: False) -> list[str]:
    """Restore the folders. Returns what could not be restored, a sentence each.

    `left` is true for absolute paths that must not change.
    """
    faults = []
    for part in parts:

        def stays(path: str, folder: str = part.folder) -> bool:
            return left(os.path.normpath(os.path.join(folder, path.rstrip("/"))))

        try:
            wanted = link_copy.changes(part.folder, part.copy).without(stays)
            link_copy.restore(part.folder, part.copy, wanted)
        except OSError as error:
            faults.append(f"{error.filename or part.folder} cannot be restored: {error.strerror}")
    return faults


def forget(parts: Iterable[Part]) -> None:
    """Remove copies; only a folder with our marker is ever removed, and links are not followed."""
    for root in {os.path.dirname(one.copy) for one in parts}:
        if os.path.islink(root) or not os.path.isfile(os.path.join(root, MARKER)):
            continue
        shutil.rmtree(root, ignore_errors=True)
        for _ in range(2):  # the folder of the run and that of all runs, if empty
            root = os.path.dirname(root)
            with contextlib.suppress(OSError):
                os.rmdir(root)


def owned_by(parts: Iterable[Part], names: Iterable[str]) -> Callable[[str], bool]:
    """Return a test for absolute paths that belong to these distributions, before or now."""
    wanted = {*names}
    paths = set()
    for part in parts:
        for base in (part.folder, part.copy):
            for path, name in owners(base).items():
                if name in wanted:
                    paths.add(os.path.normpath(os.path.join(part.folder, path)))
    return lambda path: path in paths


def marks(there: Mapping[str, Installed]) -> dict[str, list[str]]:
    """Return what is installed, in the form for a journal."""
    return {name: [one.version, one.mark] for name, one in there.items()}


def unmarked(data: Mapping[str, Sequence[str]]) -> dict[str, Installed]:
    """Return what was installed, from a journal."""
    return {name: Installed(one[0], one[1]) for name, one in data.items()}
