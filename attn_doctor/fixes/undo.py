"""Undoes a run of `fix`: the environment's packages, the files it changed, the folders it made.

Files and distributions that were changed since the run are kept and reported; the copies from
before are kept too. The whole undo is planned and shown before anything is changed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from attn_doctor.errors import AttnDoctorError
from attn_doctor.files import DATA, read_bytes, read_text
from attn_doctor.fixes import env_snapshot
from attn_doctor.fixes.distributions import (
    Change,
    Installed,
    compared,
    installed,
)
from attn_doctor.fixes.env_snapshot import Part
from attn_doctor.fixes.journal import MARKER, Run, digest, reopen, runs
from attn_doctor.json_files import JsonError, decode


class Undo(Struct, frozen=True, kw_only=True):
    """What undoing a run would do."""

    run: str
    title: str
    state: str
    changes: tuple[Change, ...] = ()
    """Distributions, now and afterwards."""
    files: tuple[tuple[str, str], ...] = ()
    """Each changed file with its action: `restore`, `remove`, or `unchanged`."""
    folders: tuple[str, ...] = ()
    """Folders that are removed with their contents."""
    refused: tuple[str, ...] = ()
    """What is not changed, and why, a sentence each."""
    parts: tuple[Part, ...] = ()
    kept: tuple[str, ...] = ()
    """Distributions that were changed since the run."""
    new: tuple[str, ...] | None = None
    """Files that the run added; None if it was killed before it could record them."""


class Undone(Struct, frozen=True, kw_only=True):
    """The result of an undo."""

    run: str
    faults: tuple[str, ...] = ()
    """What was not restored, and why, a sentence each."""
    changes: tuple[Change, ...] = ()
    """How the distributions still differ from before the run."""


def chosen(environ: Mapping[str, str], id: str) -> Run:
    """Return the run to undo: the one named, or the newest that changed something.

    Raises `AttnDoctorError` if there is none, or it is still running.
    """
    every = runs(environ)
    if id:
        found = [one for one in every if one.id.startswith(id)]
        if len(found) != 1:
            what = "several runs" if found else "no run"
            raise AttnDoctorError(f"{what} {id}: `attn-doctor fix history` lists them")
    else:
        found = [one for one in every if one.changed and one.state not in ("undone", "kept")][:1]
        if not found:
            raise AttnDoctorError("there is nothing to undo: no run of fix changed anything")
    run = found[0]
    if run.state == "undone":
        raise AttnDoctorError(f"run {run.id} is undone already")
    if run.state == "kept":
        raise AttnDoctorError(f"run {run.id} cannot be undone: `fix forget` deleted its copies")
    if run.state == "running":
        end_orphan(run)
    return run


def undo_plan(run: Run) -> Undo:
    """Return what undoing `run` would do. Raises `AttnDoctorError` if its copies are gone."""
    refused: list[str] = []
    files = _files(run, refused)
    folders = tuple(_folders(run, refused))
    parts = _parts(run)
    before, after, now = _distributions(run, parts)
    kept_since: set[str] = set()
    changes: list[Change] = []
    if parts:
        ours = {one.name for one in compared(before, after if after is not None else now)}
        since = {one.name for one in compared(after, now)} if after is not None else set()
        refused.extend(
            f"{name} was changed again since run {run.id}; it is kept"
            for name in sorted(since & ours)
        )
        kept_since = since
        changes = [one for one in compared(now, before) if one.name not in kept_since]
    return Undo(
        run=run.id,
        title=run.title,
        state=run.state,
        changes=tuple(changes),
        files=tuple(files),
        folders=folders,
        refused=tuple(refused),
        parts=parts,
        kept=tuple(sorted(kept_since)),
        new=_new(run),
    )


def _files(run: Run, refused: list[str]) -> list[tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for path, lines in _by_path(run).items():
        first, last = lines[0], lines[-1]
        now = _digest(path)
        if now == first["before"]:
            found[path] = (path, "unchanged")
        elif now not in {line["after"] for line in lines} and now != last["after"]:
            kept = run.folder / first["kept"] if first["kept"] else None
            where = f"; the earlier file is in {kept}" if kept else ""
            refused.append(f"{path} was changed since run {run.id}; it is kept{where}")
        else:
            found[path] = (path, "restore" if first["kept"] else "remove")
    return list(found.values())


def _by_path(run: Run) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for line in run.all("file"):
        found.setdefault(str(line["path"]), []).append(line)
    return found


def _digest(path: str) -> str:
    try:
        return digest(Path(path))
    except OSError:
        return "unreadable"


def _folders(run: Run, refused: list[str]) -> list[str]:
    found = []
    for line in run.all("folder"):
        path = str(line["path"])
        try:
            seen = os.lstat(path)
            mark = read_text(Path(path, MARKER), 1 << 10).strip()
        except FileNotFoundError:
            if os.path.lexists(path):
                refused.append(f"{path} has no mark of run {run.id}; it is kept")
            continue
        except OSError as error:
            refused.append(f"{path} cannot be read: {error.strerror}; it is kept")
            continue
        mine = not hasattr(os, "getuid") or seen.st_uid == os.getuid()
        if stat.S_ISDIR(seen.st_mode) and mine and mark == run.id:
            found.append(path)
        else:
            refused.append(f"{path} was not made by run {run.id}; it is kept")
    return found


def _parts(run: Run) -> tuple[Part, ...]:
    """The copies to restore: those from before the first step that was not rolled back."""
    back = {str(line["label"]) for line in (*run.all("rolled back"), *run.all("unkept"))}
    whole = {str(line["label"]) for line in run.all("kept")}
    for line in run.all("packages"):
        label = str(line["label"])
        if label in back or label not in whole:
            continue
        parts = tuple(Part(one[0], one[1]) for one in line["parts"])
        missing = [one.copy for one in parts if not os.path.isdir(one.copy)]
        if missing:
            raise AttnDoctorError(
                f"the copies of run {run.id} are gone ({missing[0]}); install its packages by hand:"
                f" {run.folder / 'journal.jsonl'} lists them under `freeze`"
            )
        return parts
    return ()


def _distributions(
    run: Run, parts: Sequence[Part]
) -> tuple[dict[str, Installed], dict[str, Installed] | None, dict[str, Installed]]:
    """What was installed before the run and after it (if it ended), and what is installed now."""
    before = installed([one.copy for one in parts])
    folders = [one.folder for one in parts]
    now = installed(folders)
    recorded = run.first("after").get("installed")
    if recorded is None:
        return before, None, now
    # Folders that were not copied (a user's own site-packages) do not count.
    elsewhere = (
        env_snapshot.unmarked(run.first("before").get("installed", {})).keys() - before.keys()
    )
    after = env_snapshot.unmarked(recorded)
    return before, {name: one for name, one in after.items() if name not in elsewhere}, now


def _new(run: Run) -> tuple[str, ...] | None:
    try:
        return tuple(decode(read_bytes(run.folder / "new.json", DATA), list[str]))
    except (OSError, JsonError):
        return None


def undo(run: Run, plan: Undo) -> Undone:
    """Undo `run` as planned, and record it. Can be repeated after an interruption."""
    faults = list(plan.refused)
    with reopen(run) as journal:
        journal.note("undoing")
        faults += _restore_files(run, plan)
        for path in plan.folders:
            shutil.rmtree(path, ignore_errors=True)
            if os.path.lexists(path):
                faults.append(f"{path} could not be removed completely")
        faults += _restore_packages(plan)
        still = _still(plan)
        if faults:
            journal.note("end", result="partly undone", faults=faults)
        else:
            journal.note("undone")
    if not faults:
        for line in run.all("packages"):
            env_snapshot.forget(Part(one[0], one[1]) for one in line["parts"])
    return Undone(run=run.id, faults=tuple(faults), changes=tuple(still))


def _restore_files(run: Run, plan: Undo) -> list[str]:
    faults = []
    lines = _by_path(run)
    for path, what in plan.files:
        if what == "unchanged":
            continue
        first = lines[path][0]
        try:
            if what == "remove":
                os.unlink(path)
                continue
            kept = run.folder / first["kept"]
            if digest(kept) != first["before"]:
                faults.append(f"{kept} is not the file that was copied; {path} is kept")
                continue
            part = f"{path}.attn-doctor-undo"
            shutil.copy2(kept, part)
            os.replace(part, path)
        except OSError as error:
            faults.append(
                f"{path} cannot be restored: {error.strerror}; its copy is in {run.folder}"
            )
    return faults


def _restore_packages(plan: Undo) -> list[str]:
    if not plan.parts:
        return []
    belongs_to_kept = env_snapshot.owned_by(plan.parts, plan.kept)
    added = None if plan.new is None else {one.rstrip("/") for one in plan.new}

    def left(path: str) -> bool:
        if belongs_to_kept(path):
            return True
        # A file that is newer than the run, and of no distribution, is not ours to remove.
        late = added is not None and path not in added and not _kept(path, plan.parts)
        return late and "__pycache__" not in path

    return env_snapshot.roll_back(plan.parts, left)


def _kept(path: str, parts: Sequence[Part]) -> bool:
    """A path that existed before the run."""
    for part in parts:
        inside = os.path.relpath(path, part.folder)
        if not inside.startswith("..") and os.path.lexists(os.path.join(part.copy, inside)):
            return True
    return False


def _still(plan: Undo) -> list[Change]:
    """What differs from before, apart from distributions that were changed since the run."""
    before = installed([one.copy for one in plan.parts])
    now = installed([one.folder for one in plan.parts])
    return [one for one in compared(before, now) if one.name not in plan.kept]


#: Seconds until the installer must have ended after it was killed.
_GRACE = 10.0


def end_orphan(run: Run) -> None:
    """End the installer of a run that was killed.

    Raises `AttnDoctorError` if the run is still running, or its installer does not end.
    """
    process = int(run.first("begin").get("process", 0))
    if _alive(process):
        raise AttnDoctorError(
            f"run {run.id} is still running (process {process}): wait for it, or end it"
        )
    for line in list(run.all("child"))[-1:]:
        _kill(int(line["process"]), float(line["time"]))
    end = time.monotonic() + _GRACE
    while Run(run.folder).state == "running":
        if time.monotonic() > end:
            raise AttnDoctorError(
                f"the installer of run {run.id} is still running and does not end"
            )
        time.sleep(0.05)


def _kill(process: int, noted: float) -> None:
    """Kill an installer with its group, if it is the process that was started at that time."""
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        found = psutil.Process(process)
        if abs(found.create_time() - noted) > 5:
            return  # the number belongs to another process now
        if hasattr(os, "killpg"):
            os.killpg(process, signal.SIGKILL)
        else:
            for one in [*found.children(recursive=True), found]:
                one.kill()


def _alive(process: int) -> bool:
    """Whether there is such a process. `os.kill(process, 0)` would be Ctrl-C to it on Windows."""
    import psutil

    return process > 0 and bool(psutil.pid_exists(process))
