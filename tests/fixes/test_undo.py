"""Undoing a run: what is restored, what is kept because it changed since, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from attn_doctor.errors import AttnDoctorError
from attn_doctor.fixes import env_snapshot, link_copy, undo
from attn_doctor.fixes.distributions import Change, installed
from attn_doctor.fixes.env_snapshot import Part, marks
from attn_doctor.fixes.journal import MARKER, Journal, Run, begin, runs
from attn_doctor.fixes.undo import chosen, end_orphan, undo_plan

#: Does something in a run.
Work = Callable[[Journal], Any]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def done(environ: dict[str, str]) -> Callable[..., Run]:
    """Does one run, and reads its journal."""

    def do(work: Work) -> Run:
        with begin(environ, "test") as journal:
            work(journal)
        return Run(journal.folder)

    return do


def distribution(site: Path, name: str, version: str, *files: str) -> None:
    """Install a distribution with these files; another version of it goes."""
    for old in site.glob(f"{name}-*.dist-info"):
        for part in old.iterdir():
            part.unlink()
        old.rmdir()
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    for file in files:
        path = site / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(f"{name} {version}")
    (info / "RECORD").write_text("".join(f"{one},,\n" for one in (*files, f"{info.name}/RECORD")))


def upgrade(site: Path, *, finished: bool = True) -> Work:
    """A run that upgrades `a` and adds `b`."""

    def work(journal: Journal) -> None:
        journal.note("before", installed=marks(installed([str(site)])))
        (part,) = env_snapshot.keep(journal, [str(site)], "step-1")
        distribution(site, "a", "2.0", "a.py")
        distribution(site, "b", "1.0", "b.py")
        if finished:
            journal.note("after", installed=marks(installed([str(site)])))
            new = [str(site / one) for one in link_copy.changes(part.folder, part.copy).new]
            (journal.folder / "new.json").write_text(json.dumps(new))

    return work


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "lib" / "site-packages"
    distribution(folder, "a", "1.0", "a.py")
    distribution(folder, "other", "1.0", "other.py")
    return folder


def names(site: Path) -> dict[str, str]:
    return {name: one.version for name, one in installed([str(site)]).items()}


# Which run


def test_the_run_is_chosen_by_its_id_or_is_the_newest_that_changed_something(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    with pytest.raises(AttnDoctorError, match="no run of fix changed anything"):
        chosen(environ, "")
    made = []
    for name in ("one", "two"):
        with begin(environ, name) as journal:
            journal.write_file(tmp_path / name, b"x")
        made.append(journal.id)
    with begin(environ, "nothing"):
        pass
    assert chosen(environ, "").id == made[1]
    assert chosen(environ, made[0]).id == made[0]
    with pytest.raises(AttnDoctorError, match=r"several runs 2: `attn-doctor fix history`"):
        chosen(environ, "2")
    with pytest.raises(AttnDoctorError, match="no run 1999"):
        chosen(environ, "1999")
    run = chosen(environ, made[1])
    assert undo.undo(run, undo_plan(run)).faults == ()
    assert chosen(environ, "").id == made[0]
    with pytest.raises(AttnDoctorError, match=f"run {made[1]} is undone already"):
        chosen(environ, made[1])


# Files


def test_a_file_is_restored_removed_unchanged_or_refused(
    tmp_path: Path, done: Callable[..., Run]
) -> None:
    paths = {name: tmp_path / name for name in ("kept", "new", "again", "theirs", "gone", "back")}
    for name in ("kept", "again", "theirs", "gone", "back"):
        paths[name].write_text("before")

    def work(journal: Journal) -> None:
        for path in paths.values():
            journal.write_file(path, b"after")
        journal.write_file(paths["again"], b"after that")

    run = done(work)
    paths["again"].write_text("after")  # the run itself wrote this first
    paths["theirs"].write_text("by hand")
    paths["gone"].unlink()
    paths["back"].write_text("before")
    plan = undo_plan(run)
    assert {Path(path).name: what for path, what in plan.files} == {
        "kept": "restore",
        "new": "remove",
        "again": "restore",
        "back": "unchanged",
    }
    assert len(plan.refused) == 2
    for name, sentence in zip(("theirs", "gone"), plan.refused, strict=True):
        assert sentence.startswith(
            f"{paths[name]} was changed since run {run.id}; it is kept; the earlier file is in"
            f" {run.folder / 'file-'}"
        )
    undone = undo.undo(run, plan)
    assert undone.faults == plan.refused
    assert {name: path.read_text() for name, path in paths.items() if path.exists()} == {
        "kept": "before",
        "again": "before",
        "theirs": "by hand",
        "back": "before",
    }
    assert Run(run.folder).state == "partly undone"


def test_a_new_file_that_changed_since_has_no_earlier_copy(
    tmp_path: Path, done: Callable[..., Run]
) -> None:
    path = tmp_path / "new"
    run = done(lambda journal: journal.write_file(path, b"after"))
    path.write_text("by hand")
    assert undo_plan(run).refused == (f"{path} was changed since run {run.id}; it is kept",)


def test_a_file_that_cannot_be_read_is_kept(tmp_path: Path, done: Callable[..., Run]) -> None:
    path = tmp_path / "new"
    run = done(lambda journal: journal.write_file(path, b"after"))
    path.unlink()
    path.mkdir()
    assert undo_plan(run).files == ()
    assert path.is_dir()


def test_a_damaged_copy_restores_nothing(tmp_path: Path, done: Callable[..., Run]) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for path in (one, other):
        path.write_text("before")

    def work(journal: Journal) -> None:
        journal.write_file(one, b"after")
        journal.write_file(other, b"after")

    run = done(work)
    plan = undo_plan(run)
    copy = run.folder / str(next(run.all("file"))["kept"])
    copy.write_text("damaged")
    assert undo.undo(run, plan).faults == (
        f"{copy} is not the file that was copied; {one} is kept",
    )
    assert (one.read_text(), other.read_text()) == ("after", "before")


def test_a_file_that_cannot_be_removed_is_reported_and_the_others_go(
    tmp_path: Path, done: Callable[..., Run]
) -> None:
    paths = [tmp_path / name for name in ("one", "two")]
    run = done(lambda journal: [journal.write_file(path, b"x") for path in paths])
    plan = undo_plan(run)
    paths[0].unlink()
    (fault,) = undo.undo(run, plan).faults
    assert fault == (
        f"{paths[0]} cannot be restored: No such file or directory; its copy is in {run.folder}"
    )
    assert not paths[1].exists()


# Folders


def test_only_folders_with_the_mark_of_the_run_are_removed(
    tmp_path: Path, done: Callable[..., Run]
) -> None:
    paths = {
        name: tmp_path / name for name in ("ours", "gone", "unmarked", "link", "broken", "theirs")
    }
    run = done(lambda journal: [journal.make_folder(path) for path in paths.values()])
    (paths["gone"] / MARKER).unlink()
    paths["gone"].rmdir()
    (paths["unmarked"] / MARKER).unlink()
    (paths["link"] / MARKER).unlink()
    paths["link"].rmdir()
    paths["link"].symlink_to(paths["ours"])
    (paths["broken"] / MARKER).unlink()
    (paths["broken"] / MARKER).mkdir()
    (paths["theirs"] / MARKER).write_text("another\n")
    plan = undo_plan(run)
    assert plan.folders == (str(paths["ours"]),)
    assert plan.refused == (
        f"{paths['unmarked']} has no mark of run {run.id}; it is kept",
        f"{paths['link']} was not made by run {run.id}; it is kept",
        f"{paths['broken']} cannot be read: Is a directory; it is kept",
        f"{paths['theirs']} was not made by run {run.id}; it is kept",
    )
    assert undo.undo(run, plan).faults == plan.refused
    assert not paths["ours"].exists()


def test_a_folder_of_another_user_is_kept(
    tmp_path: Path, done: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    run = done(lambda journal: journal.make_folder(made))
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert undo_plan(run).folders == ()
    monkeypatch.delattr(os, "getuid")  # Windows
    assert undo_plan(run).folders == (str(made),)


def test_a_folder_that_cannot_be_removed_is_reported(
    tmp_path: Path, done: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    run = done(lambda journal: journal.make_folder(made))
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    assert undo.undo(run, undo_plan(run)).faults == (f"{made} could not be removed completely",)


# Packages


def test_packages_are_restored_and_the_copies_go(site: Path, done: Callable[..., Run]) -> None:
    run = done(upgrade(site))
    plan = undo_plan(run)
    assert plan.changes == (Change("a", "2.0", "1.0"), Change("b", "1.0", ""))
    assert (plan.refused, plan.kept) == ((), ())
    assert {str(site / "b.py"), str(site / "b-1.0.dist-info")} <= {*(plan.new or ())}
    (part,) = plan.parts
    assert part.folder == str(site)
    assert os.path.isdir(part.copy)
    assert undo.undo(run, plan) == undo.Undone(run=run.id)
    assert names(site) == {"a": "1.0", "other": "1.0"}
    assert (site / "a.py").read_text() == "a 1.0"
    assert not os.path.exists(part.copy)
    assert Run(run.folder).state == "undone"


@pytest.mark.parametrize("changed", ["a", "other"])
def test_a_distribution_that_changed_since_is_kept(
    site: Path, done: Callable[..., Run], changed: str
) -> None:
    """It is a fault only if the run changed it too."""
    run = done(upgrade(site))
    distribution(site, changed, "3.0", f"{changed}.py")
    plan = undo_plan(run)
    refused = (f"{changed} was changed again since run {run.id}; it is kept",)
    assert plan.refused == (refused if changed == "a" else ())
    assert plan.kept == (changed,)
    assert changed not in {one.name for one in plan.changes}
    undone = undo.undo(run, plan)
    assert undone.changes == ()
    assert names(site)[changed] == "3.0"
    assert (site / f"{changed}.py").read_text() == f"{changed} 3.0"
    assert Run(run.folder).state == ("partly undone" if changed == "a" else "undone")


def test_a_run_that_was_killed_is_undone_to_before(site: Path, done: Callable[..., Run]) -> None:
    run = done(upgrade(site, finished=False))
    distribution(site, "late", "1.0", "late.py")
    plan = undo_plan(run)
    assert plan.new is None
    assert {one.name for one in plan.changes} == {"a", "b", "late"}
    undo.undo(run, plan)
    assert names(site) == {"a": "1.0", "other": "1.0"}


def test_distributions_in_folders_without_a_copy_do_not_count(
    site: Path, done: Callable[..., Run]
) -> None:
    """Such as those of a user's own site-packages."""
    elsewhere = {"user": ["1.0", "mark"]}

    def work(journal: Journal) -> None:
        before = marks(installed([str(site)]))
        journal.note("before", installed=before | elsewhere)
        env_snapshot.keep(journal, [str(site)], "step-1")
        distribution(site, "a", "2.0", "a.py")
        journal.note("after", installed=marks(installed([str(site)])) | elsewhere)

    plan = undo_plan(done(work))
    assert (plan.refused, plan.kept) == ((), ())
    assert plan.changes == (Change("a", "2.0", "1.0"),)


def test_files_newer_than_the_run_stay_except_bytecode(
    site: Path, done: Callable[..., Run]
) -> None:
    run = done(upgrade(site))
    for name in ("mine.txt", "__pycache__/mine.pyc"):
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text("x")
    undo.undo(run, undo_plan(run))
    assert (site / "mine.txt").exists()
    assert not (site / "__pycache__" / "mine.pyc").exists()
    assert not (site / "b.py").exists()
    assert (site / "a.py").read_text() == "a 1.0"


def test_a_path_existed_before_if_its_copy_has_it(tmp_path: Path) -> None:
    folder, copy = tmp_path / "folder", tmp_path / "copy"
    for path in (folder, copy):
        path.mkdir()
    (copy / "old").write_text("x")
    (copy / "link").symlink_to("nowhere")
    (tmp_path / "beside").write_text("x")
    parts = [Part(str(tmp_path / "x" / "y"), str(tmp_path)), Part(str(folder), str(copy))]
    assert undo._kept(str(folder / "old"), parts)
    assert undo._kept(str(folder / "link"), parts)
    assert not undo._kept(str(folder / "new"), parts)
    assert not undo._kept(str(tmp_path / "beside"), parts)


def test_the_copies_of_the_first_step_that_counts_are_restored(
    tmp_path: Path, done: Callable[..., Run]
) -> None:
    copies = [tmp_path / f"copy-{number}" for number in range(6)]

    def parts(number: int) -> list[list[str]]:
        return [[str(tmp_path), str(copies[number])]]

    def work(journal: Journal) -> None:
        journal.note("packages", label="rolled", parts=parts(0))
        journal.note("kept", label="rolled")
        journal.note("rolled back", label="rolled")
        journal.note("packages", label="unkept", parts=parts(1))
        journal.note("kept", label="unkept")
        journal.note("unkept", label="unkept")
        journal.note("packages", label="incomplete", parts=parts(2))
        journal.note("packages", label="first", parts=parts(3))
        journal.note("kept", label="first")
        journal.note("packages", label="second", parts=parts(4))
        journal.note("kept", label="second")

    run = done(work)
    for number in (0, 1, 2, 4):
        copies[number].mkdir()
    with pytest.raises(AttnDoctorError, match=rf"run {run.id} are gone \({copies[3]}\)"):
        undo_plan(run)
    copies[3].mkdir()
    assert undo_plan(run).parts == (Part(str(tmp_path), str(copies[3])),)
    assert undo_plan(done(lambda _: None)).parts == ()


@pytest.mark.parametrize(("text", "new"), [("", None), ('["a", "b/"]', ("a", "b/"))])
def test_the_list_of_new_files_may_be_missing(
    done: Callable[..., Run], text: str, new: tuple[str, ...] | None
) -> None:
    def work(journal: Journal) -> None:
        if text:
            (journal.folder / "new.json").write_text(text)

    assert undo_plan(done(work)).new == new


def test_the_plan_names_its_run(done: Callable[..., Run]) -> None:
    plan = undo_plan(run := done(lambda _: None))
    assert (plan.run, plan.title, plan.state) == (run.id, "test", "done")


def test_what_still_differs_is_reported(
    site: Path, done: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = done(upgrade(site))
    monkeypatch.setattr(env_snapshot, "roll_back", lambda *_: ["it failed"])
    plan = undo_plan(run)
    undone = undo.undo(run, plan)
    assert undone.faults == ("it failed",)
    assert undone.changes == (Change("a", "1.0", "2.0"), Change("b", "", "1.0"))
    assert os.path.isdir(plan.parts[0].copy)
    end = [line for line in Run(run.folder).lines if line["event"] == "end"][-1]
    assert (end["result"], end["faults"]) == ("partly undone", ["it failed"])


# Installers that outlive a killed run


class Process:
    """What `psutil.Process` gives, recorded."""

    started = 100.0
    asked: list[int] = []  # noqa: RUF012
    killed: list[int] = []  # noqa: RUF012

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.asked.append(pid)

    def create_time(self) -> float:
        return self.started

    def children(self, *, recursive: bool) -> list[Process]:
        return [Process(self.pid + 1)] if recursive is True else []

    def kill(self) -> None:
        self.killed.append(self.pid)


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The groups and the processes that are killed."""
    found: list[object] = []
    monkeypatch.setattr(psutil, "Process", Process)
    monkeypatch.setattr(Process, "killed", found)
    monkeypatch.setattr(Process, "asked", [])
    monkeypatch.setattr(os, "killpg", lambda *group: found.append(group), raising=False)
    return found


@pytest.mark.parametrize(
    ("noted", "same"),
    [(100.0, True), (95.0, True), (105.0, True), (94.5, False), (105.5, False), (-100.0, False)],
)
def test_only_the_process_that_was_started_then_is_killed(
    killed: list[object], noted: float, same: bool
) -> None:
    undo._kill(7, noted)
    assert killed == ([(7, signal.SIGKILL)] if same else [])
    assert Process.asked == [7]


def test_without_groups_each_process_is_killed(
    killed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "killpg")
    undo._kill(7, 100.0)
    assert killed == [8, 7]


@pytest.mark.parametrize("error", [psutil.NoSuchProcess(7), ProcessLookupError()])
def test_a_process_that_ended_is_not_killed(
    killed: list[object], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def ended(self: Process) -> float:
        raise error

    monkeypatch.setattr(Process, "create_time", ended)
    undo._kill(7, 100.0)
    assert killed == []


def _journal(folder: Path, *lines: dict[str, object]) -> Run:
    folder.mkdir(parents=True)
    (folder / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Run(folder)


def test_the_last_installer_of_a_killed_run_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _journal(
        tmp_path / "run",
        {"event": "begin", "time": 1.0, "process": 41},
        {"event": "child", "time": 2.4, "process": 40},
        {"event": "child", "time": 2.5, "process": 42},
        {"event": "child", "time": 3.5, "process": 43},
    )
    calls: list[object] = []
    monkeypatch.setattr(undo, "_alive", calls.append)
    monkeypatch.setattr(undo, "_kill", lambda *what: calls.append(what))
    states = iter(["running", "running", "interrupted"])
    folders: list[Path] = []

    def again(folder: Path) -> SimpleNamespace:
        folders.append(folder)
        return SimpleNamespace(state=next(states))

    monkeypatch.setattr(undo, "Run", again)
    monkeypatch.setattr(time, "sleep", calls.append)
    end_orphan(run)
    assert calls == [41, (43, 3.5), 0.05, 0.05]
    assert folders == [run.folder] * 3


def test_a_run_whose_process_is_alive_is_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = {"event": "begin", "time": 1.0, "process": os.getpid()}
    monkeypatch.setattr(undo, "_kill", lambda *_: pytest.fail("it was killed"))
    run = _journal(tmp_path / "run", begun, {"event": "child", "time": 2.5, "process": 42})
    with pytest.raises(AttnDoctorError, match=rf"still running \(process {os.getpid()}\)"):
        end_orphan(run)


def test_an_installer_that_does_not_end_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _journal(tmp_path / "run", {"event": "other"})
    now = [50.0]
    processes: list[int] = []
    monkeypatch.setattr(undo, "_alive", processes.append)
    monkeypatch.setattr(undo, "Run", lambda _: SimpleNamespace(state="running"))
    monkeypatch.setattr(undo, "_GRACE", 1.0)
    clock = SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda _: now.__setitem__(0, now[0] + 0.5)
    )
    monkeypatch.setattr(undo, "time", clock)
    with pytest.raises(AttnDoctorError, match="still running and does not end"):
        end_orphan(run)
    assert now[0] == 51.5  # at 51.0 the time is not over
    assert processes == [0]


@pytest.mark.parametrize(
    ("process", "exists", "alive"),
    [(7, True, True), (7, False, False), (1, True, True), (0, True, False), (-1, True, False)],
)
def test_a_process_is_alive_if_it_exists(
    monkeypatch: pytest.MonkeyPatch, process: int, exists: bool, alive: bool
) -> None:
    monkeypatch.setattr(psutil, "pid_exists", lambda pid: exists and pid == process)
    assert undo._alive(process) is alive


def test_a_running_run_is_ended_before_its_undo(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(undo, "end_orphan", lambda run: ended.append(run.id))
    with begin(environ, "one") as journal:
        journal.write_file(tmp_path / "one", b"x")
        assert chosen(environ, "").id == journal.id
        assert ended == [journal.id]
    assert chosen(environ, "").id == journal.id
    assert len(ended) == 1
    assert len(runs(environ)) == 1
