"""Copies the folders of the examined environment before a step, and records what the step changed.

A copy is beside site-packages, so that hard links are possible, in `.attn-doctor-undo/<run>`;
removing the environment removes it. Folders outside (such as conda's packages) are not copied. Once
a step has ended, its copy holds only what the step replaced or removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.files import DATA, read_text
from attn_doctor.fixes import link_copy
from attn_doctor.fixes.attribution import Part, Printed, Stop, changes_of, read_output
from attn_doctor.fixes.installers import installer_environment
from attn_doctor.fixes.journal import MARKER, Journal, Run
from attn_doctor.fixes.path_state import Changes
from attn_doctor.json_files import JsonError, decode
from attn_doctor.processes import run

UNDO = ".attn-doctor-undo"
_ASK = "import json, sysconfig; print(json.dumps(sysconfig.get_paths()))"


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
    inside = []
    if facts.python.environment == "venv" and facts.python.prefix:
        # An installer makes those that are missing.
        inside = [os.path.join(facts.python.prefix, name) for name in ("share", "etc", "include")]
    there = [one for one in map(os.path.realpath, found) if os.path.isdir(one)]
    return [*dict.fromkeys((*there, *map(os.path.realpath, inside)))]


class Copies:
    """The copies from before one step."""

    def __init__(self, label: str, parts: Sequence[Part]) -> None:
        self.label = label
        self.parts = tuple(parts)
        self.asked: list[frozenset[str]] = []
        """The distributions that each command of the step is known to change."""

    @property
    def root(self) -> str:
        """The folder of the copies."""
        return os.path.dirname(self.parts[0].copy)

    @property
    def mark(self) -> str:
        """The file that is touched while the step runs."""
        return os.path.join(self.root, MARKER)

    def changes(self, log: Path, stopped: Stop | None = None) -> Changes:
        """Return what the step changed; `log`: what its installer printed."""
        try:
            printed = read_output(read_text(log, DATA, cut=True))
        except OSError:
            printed = Printed()
        if stopped:  # commands before the last have ended, and have said what they changed
            return changes_of(self.parts, frozenset().union(*self.asked[-1:]), printed, stopped)
        names = printed.changed or frozenset().union(*self.asked)
        return changes_of(self.parts, names, printed)

    def last_sign(self, log: Path) -> Stop:
        """Return when the run or its installer was last known to be alive."""
        found = [one.time for one in (last_sign(self.root), _written(log)) if one]
        return Stop(max(found, default=0.0))


def last_sign(folder: str) -> Stop | None:
    """Return when the run that made `folder` was last known to be alive."""
    return _written(Path(folder, MARKER))


def _written(path: Path) -> Stop | None:
    try:
        return Stop(path.stat().st_mtime)
    except OSError:
        return None


def keep(journal: Journal, folders: Sequence[str], label: str) -> Copies:
    """Copy `folders`, journalled first.

    Raises `AttnDoctorError` if that fails; no copy remains then.
    """
    root = os.path.join(os.path.dirname(folders[0]), UNDO, journal.id, label)
    parts = tuple(Part(one, os.path.join(root, str(n))) for n, one in enumerate(folders))
    journal.note("packages", label=label, parts=[[one.folder, one.copy] for one in parts])
    copies = Copies(label, parts)
    try:
        os.makedirs(root, mode=0o700)
        Path(root, MARKER).write_text(journal.id + "\n", encoding="utf-8")
        for one in parts:
            link_copy.keep(one.folder, one.copy)
    except BaseException as error:
        forget(root)
        journal.note("unkept", label=label)
        if isinstance(error, OSError):
            raise AttnDoctorError(
                f"{folders[0]} cannot be copied for undo: {error.strerror}; nothing was changed"
            ) from None
        raise
    journal.note("kept", label=label)
    return copies


def record(journal: Journal, copies: Copies, changes: Changes) -> None:
    """Record what a step changed, and reduce its copies to that. Raises `AttnDoctorError`."""
    journal.record(copies.label, changes)
    wanted = {one.kept for one in changes.items if one.kept}
    for part in copies.parts:
        inside = (os.path.relpath(one, part.copy) for one in wanted if _is_in(one, part.copy))
        link_copy.prune(part.copy, {*inside})


def _is_in(path: str, folder: str) -> bool:
    return path.startswith(folder + os.sep)


def copies_of(run: Run) -> list[Copies]:
    """Return the copies of a run's steps, in order; those that were rolled back are left out."""
    found: dict[str, Copies] = {}
    whole: dict[str, Copies] = {}
    for line in run.lines:
        label = str(line.get("label", ""))
        if line["event"] == "packages":
            found[label] = last = Copies(label, [Part(*one) for one in line["parts"]])
        elif line["event"] == "child" and found:
            last.asked.append(frozenset(line["names"]))
        elif line["event"] == "kept":
            whole[label] = found[label]
        elif line["event"] in ("rolled back", "unkept"):
            whole.pop(label, None)
    return list(whole.values())


def roots(run: Run) -> list[str]:
    """Return the folders in which a run keeps copies and what an undo took away."""
    copies = (part[1] for line in run.all("packages") for part in line["parts"])
    return sorted({os.path.dirname(os.path.dirname(copy)) for copy in copies})


def forget(root: str) -> None:
    """Remove copies; only a folder with our marker is ever removed, and links are not followed."""
    if os.path.islink(root) or not os.path.isfile(os.path.join(root, MARKER)):
        return
    shutil.rmtree(root, ignore_errors=True)
    for _ in range(2):  # the folder of the run and that of all runs, if empty
        root = os.path.dirname(root)
        with contextlib.suppress(OSError):
            os.rmdir(root)


def forget_all(run: Run) -> list[str]:
    """Remove all copies of a run. Returns the folders that could not be removed."""
    for root in roots(run):
        for name in os.listdir(root) if os.path.isdir(root) else ():
            forget(os.path.join(root, name))
    return [root for root in roots(run) if os.path.lexists(root)]
