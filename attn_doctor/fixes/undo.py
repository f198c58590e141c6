"""Takes a run of `fix` back: the environment's packages, every file it changed, folders it made.

Whatever somebody changed since is theirs: such a file or distribution is left as it is, said so,
and the copy from before stays where it is. What is going to be done is listed before it is done.
"""

from __future__ import annotations

import contextlib
import json
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
from attn_doctor.fixes import env_snapshot
from attn_doctor.fixes.distributions import (
    Change,
    Installed,
    compared,
    installed,
)
from attn_doctor.fixes.env_snapshot import Part
from attn_doctor.fixes.journal import MARKER, Run, digest, reopen, runs


class Undo(Struct, frozen=True, kw_only=True):
    """What taking a run back would do."""

    run: str
    title: str
    state: str
    changes: tuple[Change, ...] = ()
    """Distributions, now and afterwards."""
    files: tuple[tuple[str, str], ...] = ()
    """Each changed file, and what becomes of it: `restore`, `remove`, `as it was`."""
    folders: tuple[str, ...] = ()
    """Folders that are removed with all that is in them."""
    refused: tuple[str, ...] = ()
    """What is left as it is, a sentence each."""
    parts: tuple[Part, ...] = ()
    theirs: tuple[str, ...] = ()
    """Distributions that someone else changed since."""
    new: tuple[str, ...] | None = None
    """What the run brought; None if it was cut off before it could write that down."""


class Undone(Struct, frozen=True, kw_only=True):
    """What became of it."""

    run: str
    faults: tuple[str, ...] = ()
    """What could not be restored, and what was left, a sentence each."""
    changes: tuple[Change, ...] = ()
    """How the distributions still differ from before the run."""


def chosen(environ: Mapping[str, str], id: str) -> Run:
    """The run to take back: the one named, or the newest that changed something.

    Raises `AttnDoctorError` if there is none, or it is still at work.
    """
    every = runs(environ)
    if id:
        found = [one for one in every if one.id.startswith(id)]
        if len(found) != 1:
            what = "several runs" if found else "no run"
            raise AttnDoctorError(f"{what} {id}: `attn-doctor fix history` lists them")
    else:
        found = [one for one in every if one.changed and one.state != "undone"][:1]
        if not found:
            raise AttnDoctorError("there is nothing to undo: no run of fix changed anything")
    run = found[0]
    if run.state == "undone":
        raise AttnDoctorError(f"run {run.id} is undone already")
    if run.state == "running":
        end_orphan(run)
    return run


def undo_plan(run: Run) -> Undo:
    """What taking `run` back would do. Raises `AttnDoctorError` if its copies are gone."""
    refused: list[str] = []
    files = _files(run, refused)
    folders = tuple(_folders(run, refused))
    parts = _parts(run)
    before, after, now = _distributions(run, parts)
    theirs: set[str] = set()
    changes: list[Change] = []
    if parts:
        ours = {one.name for one in compared(before, after if after is not None else now)}
        since = {one.name for one in compared(after, now)} if after is not None else set()
        refused.extend(
            f"{name} was changed again since run {run.id}; it is left as it is"
            for name in sorted(since & ours)
        )
        theirs = since
        changes = [one for one in compared(now, before) if one.name not in theirs]
    return Undo(
        run=run.id,
        title=run.title,
        state=run.state,
        changes=tuple(changes),
        files=tuple(files),
        folders=folders,
        refused=tuple(refused),
        parts=parts,
        theirs=tuple(sorted(theirs)),
        new=_new(run),
    )


def _files(run: Run, refused: list[str]) -> list[tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for path, lines in _by_path(run).items():
        first, last = lines[0], lines[-1]
        now = _digest(path)
        if now == first["before"]:
            found[path] = (path, "as it was")
        elif now not in {line["after"] for line in lines} and now != last["after"]:
            kept = run.folder / first["kept"] if first["kept"] else None
            where = f"; what was there before is in {kept}" if kept else ""
            refused.append(f"{path} was changed since run {run.id}; it is left as it is{where}")
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
            mark = Path(path, MARKER).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            if os.path.lexists(path):
                refused.append(f"{path} does not carry run {run.id}'s mark; it is left as it is")
            continue
        except OSError as error:
            refused.append(f"{path} cannot be read: {error.strerror}; it is left as it is")
            continue
        mine = not hasattr(os, "getuid") or seen.st_uid == os.getuid()
        if stat.S_ISDIR(seen.st_mode) and mine and mark == run.id:
            found.append(path)
        else:
            refused.append(f"{path} is not what run {run.id} made; it is left as it is")
    return found


def _parts(run: Run) -> tuple[Part, ...]:
    """The kept copies to go back to: those from before the first step that was not taken back."""
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
                f"what run {run.id} kept is gone ({missing[0]}); its packages can only be installed"
                f" again by hand: {run.folder / 'journal.jsonl'} lists them under `freeze`"
            )
        return parts
    return ()


def _distributions(
    run: Run, parts: Sequence[Part]
) -> tuple[dict[str, Installed], dict[str, Installed] | None, dict[str, Installed]]:
    """What was installed before the run and after it (if it came to its end), and what is now."""
    before = installed([one.copy for one in parts])
    folders = [one.folder for one in parts]
    now = installed(folders)
    told = run.first("after").get("installed")
    if told is None:
        return before, None, now
    # Folders that were not kept (a user's own site-packages) are no part of this.
    elsewhere = (
        env_snapshot.unmarked(run.first("before").get("installed", {})).keys() - before.keys()
    )
    after = env_snapshot.unmarked(told)
    return before, {name: one for name, one in after.items() if name not in elsewhere}, now


def _new(run: Run) -> tuple[str, ...] | None:
    try:
        return tuple(json.loads((run.folder / "new.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def undo(run: Run, wanted: Undo) -> Undone:
    """Take `run` back as `wanted` says, and write that down. Can be run again if it is cut off."""
    faults = list(wanted.refused)
    with reopen(run) as journal:
        journal.note("undoing")
        faults += _restore_files(run, wanted)
        for path in wanted.folders:
            shutil.rmtree(path, ignore_errors=True)
            if os.path.lexists(path):
                faults.append(f"{path} could not be removed whole")
        faults += _restore_packages(wanted)
        still = _still(wanted)
        if faults:
            journal.note("end", result="partly undone", faults=faults)
        else:
            journal.note("undone")
    if not faults:
        for line in run.all("packages"):
            env_snapshot.forget(Part(one[0], one[1]) for one in line["parts"])
    return Undone(run=run.id, faults=tuple(faults), changes=tuple(still))


def _restore_files(run: Run, wanted: Undo) -> list[str]:
    faults = []
    lines = _by_path(run)
    for path, what in wanted.files:
        if what == "as it was":
            continue
        first = lines[path][0]
        try:
            if what == "remove":
                os.unlink(path)
                continue
            kept = run.folder / first["kept"]
            if digest(kept) != first["before"]:
                faults.append(f"{kept} is not what was kept; {path} is left as it is")
                continue
            part = f"{path}.attn-doctor-undo"
            shutil.copy2(kept, part)
            os.replace(part, path)
        except OSError as error:
            faults.append(
                f"{path} cannot be restored: {error.strerror}; it is kept in {run.folder}"
            )
    return faults


def _restore_packages(wanted: Undo) -> list[str]:
    if not wanted.parts:
        return []
    theirs = env_snapshot.owned_by(wanted.parts, wanted.theirs)
    brought = None if wanted.new is None else {one.rstrip("/") for one in wanted.new}

    def left(path: str) -> bool:
        if theirs(path):
            return True
        # What came later than the run, and belongs to nobody, is not ours to remove.
        late = brought is not None and path not in brought and not _kept(path, wanted.parts)
        return late and "__pycache__" not in path

    return env_snapshot.roll_back(wanted.parts, left)


def _kept(path: str, parts: Sequence[Part]) -> bool:
    """A path that was there before the run."""
    for part in parts:
        inside = os.path.relpath(path, part.folder)
        if not inside.startswith("..") and os.path.lexists(os.path.join(part.copy, inside)):
            return True
    return False


def _still(wanted: Undo) -> list[Change]:
    """What differs from before, apart from what others changed."""
    before = installed([one.copy for one in wanted.parts])
    now = installed([one.folder for one in wanted.parts])
    return [one for one in compared(before, now) if one.name not in wanted.theirs]


#: Seconds that the installer has to go away once it was ended.
_GRACE = 10.0


def end_orphan(run: Run) -> None:
    """End the installer of a run that was killed itself.

    Raises `AttnDoctorError` if the run is still at work, or its installer does not end.
    """
    process = int(run.first("begin").get("process", 0))
    if _alive(process):
        raise AttnDoctorError(
            f"run {run.id} is still at work (process {process}): wait for it, or end it"
        )
    for line in list(run.all("child"))[-1:]:
        _kill(int(line["process"]), float(line["time"]))
    end = time.monotonic() + _GRACE
    while Run(run.folder).state == "running":
        if time.monotonic() > end:
            raise AttnDoctorError(f"an installer of run {run.id} is still at work and does not end")
        time.sleep(0.05)


def _kill(process: int, noted: float) -> None:
    """Kill an installer with its group, if it is the process that was started at that time."""
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        found = psutil.Process(process)
        if abs(found.create_time() - noted) > 5:
            return  # the number was given to another process since
        if hasattr(os, "killpg"):
            os.killpg(process, signal.SIGKILL)
        else:
            for one in [*found.children(recursive=True), found]:
                one.kill()


def _alive(process: int) -> bool:
    """Whether there is such a process. `os.kill(process, 0)` would be Ctrl-C to it on Windows."""
    import psutil

    return process > 0 and bool(psutil.pid_exists(process))
