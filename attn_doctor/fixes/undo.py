"""Undoes a run of `fix`, and does an undone run again.

Only what the run changed is restored. What was changed since is kept and reported. Nothing is
deleted: what an undo takes away is kept with the copies from before, until `fix forget`. The whole
undo is planned and shown before anything is changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from attn_doctor.errors import AttnDoctorError
from attn_doctor.files import read_text
from attn_doctor.fixes import env_snapshot
from attn_doctor.fixes.attribution import Stop
from attn_doctor.fixes.distributions import Change, Installed, installed, owners
from attn_doctor.fixes.journal import MARKER, Journal, Run, reopen, runs
from attn_doctor.fixes.locks import environment_lock
from attn_doctor.fixes.orphans import end_orphan
from attn_doctor.fixes.path_state import Changes, Item, State, contents, joined, state_of
from attn_doctor.fixes.restore import Exchange, exchange_all

#: Folder beside a run's copies for what its undo takes away.
_ASIDE = "after"


class Undo(Struct, frozen=True, kw_only=True):
    """What undoing a run would do, or doing it again."""

    run: str
    title: str
    state: str
    redo: bool = False
    """The run was undone and is to be done again."""
    changes: tuple[Change, ...] = ()
    """Distributions, now and afterwards."""
    files: tuple[tuple[str, str], ...] = ()
    """Each changed file that belongs to no environment, with its action: `restore`, `remove`."""
    folders: tuple[str, ...] = ()
    """Folders that the run made and that are removed."""
    refused: tuple[str, ...] = ()
    """What is not changed, and why, a sentence each."""
    exchanges: tuple[Exchange, ...] = ()
    """All that is done, file by file."""


class Undone(Struct, frozen=True, kw_only=True):
    """The result of an undo."""

    run: str
    faults: tuple[str, ...] = ()
    """What was not restored, and why, a sentence each."""


def chosen(
    environ: Mapping[str, str],
    id: str,
    *,
    redo: bool = False,
    forget: bool = False,
    python: str = "",
) -> Run:
    """Return the run to undo: the one named, or the newest that changed something.

    `python`: only runs that changed the environment of this interpreter. `redo`: the run to do
    again, of those that were undone. `forget`: a run in any state that has ended. Raises
    `AttnDoctorError` if there is none, its journal is damaged, or it is running.
    """
    every = [one for one in runs(environ) if not python or _same(one.python, python)]
    if python and not every:
        raise AttnDoctorError(
            f"no run of fix changed the environment of {python}: `attn-doctor fix history` lists"
            " all runs"
        )
    run = _found(every, id, redo=redo)
    if run.state == "running":
        end_orphan(run)
    if forget:
        return run
    if run.damage:
        raise AttnDoctorError(run.damage)
    if run.state == "kept":
        raise AttnDoctorError(f"run {run.id} cannot be undone: `fix forget` deleted its copies")
    if run.state == "undone" and not redo:
        raise AttnDoctorError(
            f"run {run.id} is undone already; `attn-doctor fix redo {run.id}` does it again"
        )
    if redo and run.state not in ("undone", "partly undone") and not run.cut_off:
        raise AttnDoctorError(f"run {run.id} was not undone, so it cannot be done again")
    return run


def _same(one: str, other: str) -> bool:
    """Whether two interpreters are of one environment: their `bin` folders are the same."""
    return os.path.realpath(os.path.dirname(one)) == os.path.realpath(os.path.dirname(other))


def _found(every: Sequence[Run], id: str, *, redo: bool) -> Run:
    """The run that is named, or the newest that may be meant."""
    if id:
        found = [one for one in every if one.id.startswith(id)]
        if len(found) != 1:
            what = "several runs" if found else "no run"
            raise AttnDoctorError(f"{what} {id}: `attn-doctor fix history` lists them")
        return found[0]
    for one in every:
        if one.changed and _is_open(one.state, redo=redo):
            return one
    if redo:
        raise AttnDoctorError("there is nothing to do again: no run of fix was undone")
    if any(one.changed for one in every):
        raise AttnDoctorError("there is nothing to undo: all runs were undone or forgotten")
    raise AttnDoctorError("there is nothing to undo: no run of fix changed what it can restore")


def _is_open(state: str, *, redo: bool) -> bool:
    undone = state in ("undone", "partly undone")
    return undone if redo else not undone and state != "kept"


class _Step(Struct, frozen=True):
    """What one step of a run changed."""

    changes: Changes
    aside: str = ""
    """Where an undo keeps what it takes away; empty: nowhere, it can be made again."""
    copies: env_snapshot.Copies | None = None
    """The copies of a step that was stopped before it recorded its changes."""


def undo_plan(run: Run, *, redo: bool = False) -> Undo:
    """Return what undoing `run` would do, or doing it again.

    Raises `AttnDoctorError` if its copies are gone or its journal is damaged.
    """
    steps = _steps(run)
    packages = _Packages(run, [step.changes for step in steps])
    refused = packages.refused
    asides = {item.path: step.aside for step in steps for item in step.changes.items}
    made = {str(line["path"]) for line in run.all("folder")}
    foreign = {path for path in made if _is_foreign(run, path)}
    refused += [f"{path} was not made by run {run.id}; it is kept" for path in sorted(foreign)]
    exchanges = []
    for item in joined(item for step in steps for item in step.changes.items):
        if item.owner in packages.again or any(_is_in(item.path, path) for path in foreign):
            continue
        aside = asides[item.path]
        place = os.path.join(aside, _name(item.path)) if aside else ""
        found = _exchange(run, item, place, redo=redo)
        if isinstance(found, str):
            refused.append(found)
        elif found is not None and (other := packages.others.get(item.path)):
            refused.append(f"{item.path} belongs to {other} too since run {run.id}; it is kept")
        elif found is not None:
            exchanges.append(found)
    files = {str(line["path"]) for line in run.all("file")}
    return Undo(
        run=run.id,
        title=run.title,
        state=run.state,
        redo=redo,
        changes=tuple(packages.changes(redo=redo)),
        files=tuple(
            (one.path, "remove" if one.wanted.kind == "nothing" else "restore")
            for one in exchanges
            if one.path in files
        ),
        folders=tuple(one.path for one in exchanges if one.path in made),
        refused=tuple(refused),
        exchanges=(*exchanges, *_bytecode(exchanges)),
    )


def _steps(run: Run) -> list[_Step]:
    """What each step of the run changed, in order."""
    found = []
    for copies in env_snapshot.copies_of(run):
        aside = os.path.join(os.path.dirname(copies.root), _ASIDE)
        changes = run.recorded(copies.label, Changes)
        if changes is not None:
            found.append(_Step(changes, aside))
            continue
        if not os.path.isdir(copies.root):
            raise AttnDoctorError(
                f"the copies of run {run.id} are gone ({copies.root}); install its packages by"
                f" hand: {run.folder / 'journal.jsonl'} lists them under `installed`"
            )
        log = run.folder / f"{copies.label}.log"
        found.append(_Step(copies.changes(log, copies.last_sign(log)), aside, copies))
    for number, line in enumerate(run.all("folder")):
        made = run.recorded(f"folder-{number}", Changes)
        found.append(_Step(made or _unfinished_folder(str(line["path"]))))
    files = [_written_file(run, line) for line in run.all("file")]
    return [*found, _Step(Changes(items=tuple(files)), str(run.folder / _ASIDE))]


def _unfinished_folder(path: str) -> Changes:
    """What a run that was stopped put into the folder that it made."""
    stopped = env_snapshot.last_sign(path)
    if stopped is None:
        return Changes()
    return Changes(items=tuple(one for one in contents(path) if not stopped.after(one.path)))


def _written_file(run: Run, line: Mapping[str, Any]) -> Item:
    kept = str(run.folder / line["kept"]) if line["kept"] else ""
    before = State("file", line["before"]) if kept else State()
    return Item(str(line["path"]), before, State("file", line["after"]), kept)


class _Packages:
    """The distributions that a run changed: before it, as its steps left them, and now."""

    def __init__(self, run: Run, steps: Iterable[Changes]) -> None:
        self._before: dict[str, Installed | None] = {}
        self._left: dict[str, list[Installed | None]] = {}
        self.refused: list[str] = []
        for step in steps:
            for name in sorted(step.before.keys() | step.after.keys()):
                self._before.setdefault(name, step.before.get(name))
                self._left.setdefault(name, []).append(step.after.get(name))
            self.refused += [
                f"{one} was changed after run {run.id} was stopped; it is kept"
                for one in step.since
            ]
            self.refused += [
                f"{one} was made while run {run.id} ran, and belongs to no package; it is kept"
                for one in step.unclear
            ]
        parts = [part for copies in env_snapshot.copies_of(run) for part in copies.parts]
        folders = list(dict.fromkeys(part.folder for part in parts))
        self._now = installed(folders)
        self.again = {
            name
            for name, left in self._left.items()
            if not run.cut_off and self._now.get(name) not in (*left, self._before[name])
        }
        """Those that someone changed since."""
        self.refused += [
            f"{name} was changed again since run {run.id}; it is kept"
            for name in sorted(self.again)
        ]
        self.others = {
            path: name
            for folder in folders
            for path, names in owners(folder, folder).items()
            for name in names
            if name not in self._left
        }
        """Paths that now belong to another distribution, which the run did not change."""

    def changes(self, *, redo: bool) -> Iterator[Change]:
        """Return the distributions now and afterwards."""
        nothing = Installed("", "")
        for name in sorted(self._left.keys() - self.again):
            wanted = self._left[name][-1] if redo else self._before[name]
            now = self._now.get(name)
            if now != wanted:
                yield Change(name, (now or nothing).version, (wanted or nothing).version)


def _is_foreign(run: Run, path: str) -> bool:
    """Something is at the path of a folder that the run made, and it is not that folder."""
    try:
        seen = os.lstat(path)
        mark = read_text(Path(path, MARKER), 1 << 10).strip()
    except OSError:
        return os.path.lexists(path)
    mine = not hasattr(os, "getuid") or seen.st_uid == os.getuid()
    return not (mine and stat.S_ISDIR(seen.st_mode) and mark == run.id)


def _exchange(run: Run, item: Item, aside: str, *, redo: bool) -> Exchange | str | None:
    """What is done at one path; why nothing is done; None if nothing is to be done."""
    now = state_of(item.path, item.after, item.before, *item.between)
    wanted, store = (item.after, aside) if redo else (item.before, item.kept)
    if now.same(wanted):
        return None
    ours = now.same(item.before) if redo else item.left_by_run(now)
    where = f"; the earlier file is in {store}" if store and not redo else ""
    if not ours:
        return f"{item.path} was changed since run {run.id}; it is kept{where}"
    folder = os.path.dirname(item.path)
    if os.path.realpath(folder) != folder:
        return f"{folder} leads elsewhere since run {run.id}; {item.path} is kept{where}"
    if wanted.kind in ("file", "link") and not os.path.lexists(store):
        return (
            f"the copy of {item.path} is gone ({store or 'it was not kept'}); it is kept as it is"
        )
    return Exchange(item.path, now, wanted, store, item.kept if redo else aside)


def _bytecode(exchanges: Iterable[Exchange]) -> list[Exchange]:
    """Remove the bytecode that Python made of modules that are exchanged."""
    modules: dict[str, set[str]] = {}
    for one in exchanges:
        folder, name = os.path.split(one.path)
        if name.endswith(".py"):
            modules.setdefault(os.path.join(folder, "__pycache__"), set()).add(name[:-3])
    listed = {one.path for one in exchanges}
    found = []
    for cache, names in modules.items():
        entries = os.listdir(cache) if os.path.isdir(cache) else []
        paths = [
            os.path.join(cache, one)
            for one in entries
            if one.endswith(".pyc") and one.partition(".")[0] in names
        ]
        found += [Exchange(one, state_of(one), State()) for one in paths if one not in listed]
        if entries and cache not in listed:
            found.append(Exchange(cache, State("folder"), State()))  # if it is empty then
    return found


def _name(path: str) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:24]


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)


def undo(run: Run, plan: Undo) -> Undone:
    """Undo `run` as planned, or do it again, and record it. Can be repeated after an interruption.

    Raises `AttnDoctorError` if another run changes the environment now.
    """
    with reopen(run) as journal, _environment(run):
        for step in _steps(run):
            if step.copies is not None:  # from now on it is known, whatever is done to the files
                env_snapshot.record(journal, step.copies, step.changes)
            if step.aside and plan.exchanges:
                os.makedirs(step.aside, exist_ok=True, mode=0o700)
                Path(step.aside, MARKER).write_text(run.id + "\n", encoding="utf-8")
        journal.note("redoing" if plan.redo else "undoing")
        faults = [*plan.refused, *exchange_all(plan.exchanges)]
        if plan.redo:
            journal.note("end", result="done", faults=faults)
        elif faults:
            journal.note("end", result="partly undone", faults=faults)
        else:
            journal.note("undone")
    return Undone(run=run.id, faults=tuple(faults))


@contextlib.contextmanager
def _environment(run: Run) -> Iterator[None]:
    """Hold the lock of the environment that the run changed, if it changed one."""
    copies = env_snapshot.copies_of(run)
    if not copies:
        yield
        return
    with environment_lock(copies[0].parts[0].folder, run.folder.parent):
        yield


def roll_back(journal: Journal, copies: env_snapshot.Copies, log: Path) -> list[str]:
    """Undo a step that has just failed. Returns what could not be restored, a sentence each.

    What is restored is recorded first, so that `fix undo` can end a roll-back that was killed.
    """
    changes = copies.changes(log, Stop())
    journal.record(copies.label, changes)
    journal.note("rolling back", label=copies.label)
    faults = exchange_all(
        Exchange(one.path, one.after, one.before, one.kept) for one in changes.items
    )
    if not faults:
        journal.note("rolled back", label=copies.label)
        env_snapshot.forget(copies.root)
    return faults
