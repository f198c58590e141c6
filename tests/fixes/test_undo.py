"""Undoing a run: what is restored, what is kept because it changed since, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from attn_doctor.errors import AttnDoctorError
from attn_doctor.fixes import env_snapshot, orphans, undo
from attn_doctor.fixes import journal as journal_module
from attn_doctor.fixes.attribution import read_output
from attn_doctor.fixes.distributions import Change, installed
from attn_doctor.fixes.journal import MARKER, Journal, Run, begin, reopen, runs
from attn_doctor.fixes.orphans import end_orphan
from attn_doctor.fixes.restore import Exchange, exchange_all
from attn_doctor.fixes.undo import chosen, undo_plan

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
        copies = env_snapshot.keep(journal, [str(site)], "step-1")
        copies.asked.append(frozenset({"a", "b"}))
        journal.note("child", process=0, names=["a", "b"])
        distribution(site, "a", "2.0", "a.py")
        distribution(site, "b", "1.0", "b.py")
        if finished:
            env_snapshot.record(journal, copies, copies.changes(journal.folder / "step-1.log"))
        os.utime(copies.mark)  # the run was alive until here, however slow the machine is

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
    with pytest.raises(AttnDoctorError, match="no run of fix changed what"):
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


def test_only_runs_of_an_environment(tmp_path: Path, environ: dict[str, str]) -> None:
    made = {}
    for name in ("a", "b"):
        with begin(environ, name, python=f"/srv/{name}/bin/python") as journal:
            journal.write_file(tmp_path / name, b"x")
        made[name] = journal.id
    assert chosen(environ, "").id == made["b"]
    assert chosen(environ, "", python="/srv/a/bin/python3").id == made["a"]
    with pytest.raises(AttnDoctorError, match="no run of fix changed the environment of /srv/c"):
        chosen(environ, "", python="/srv/c/bin/python")


def test_a_forgotten_run_is_passed_over(
    tmp_path: Path, environ: dict[str, str], done: Callable[..., Run]
) -> None:
    first, last = (
        done(lambda journal, name=name: journal.write_file(tmp_path / name, b"x"))
        for name in ("one", "two")
    )
    with reopen(last) as journal:
        journal.note("end", result="kept")
    assert chosen(environ, "").id == first.id
    assert chosen(environ, last.id, forget=True).id == last.id
    with pytest.raises(AttnDoctorError, match="cannot be undone: `fix forget` deleted its copies"):
        chosen(environ, last.id)


def test_a_run_that_was_undone_in_part_can_be_done_again(
    tmp_path: Path, environ: dict[str, str], done: Callable[..., Run]
) -> None:
    first = done(lambda journal: journal.write_file(tmp_path / "first", b"x"))
    paths = [tmp_path / "one", tmp_path / "two"]
    run = done(lambda journal: [journal.write_file(path, b"after") for path in paths])
    paths[0].write_text("by hand")
    assert undo.undo(run, undo_plan(run)).faults
    assert Run(run.folder).state == "partly undone"
    refused = [f"{paths[0]} was changed since run {run.id}; it is kept"]
    assert [*Run(run.folder).all("end")][-1]["faults"] == refused
    assert not paths[1].exists()
    assert chosen(environ, "").id == first.id
    assert chosen(environ, "", redo=True).id == chosen(environ, run.id, redo=True).id == run.id
    undone = undo.undo(Run(run.folder), undo_plan(Run(run.folder), redo=True))
    assert undone.faults == (*refused,)
    assert [*Run(run.folder).all("end")][-1]["faults"] == refused
    assert (paths[0].read_text(), paths[1].read_text()) == ("by hand", "after")


@pytest.mark.posix
def test_what_an_undo_takes_away_is_kept_for_its_owner(
    site: Path, tmp_path: Path, done: Callable[..., Run]
) -> None:
    def work(journal: Journal) -> None:
        upgrade(site)(journal)
        journal.write_file(tmp_path / "file", b"x")

    run = done(work)
    undo.undo(run, undo_plan(run))
    asides = [Path(env_snapshot.roots(run)[0], "after"), run.folder / "after"]
    for aside in asides:
        assert stat.S_IMODE(aside.stat().st_mode) == 0o700
        assert (aside / MARKER).read_text() == f"{run.id}\n"
        assert len([*aside.iterdir()]) > 1


def test_a_redo_that_is_cut_off_can_be_done_again(
    tmp_path: Path,
    environ: dict[str, str],
    done: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = done(lambda journal: journal.write_file(tmp_path / "file", b"after"))
    undo.undo(run, undo_plan(run))
    run = Run(run.folder)

    def killed(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(undo, "exchange_all", killed)
        with pytest.raises(KeyboardInterrupt):
            undo.undo(run, undo_plan(run, redo=True))
    run = Run(run.folder)
    assert (run.cut_off, run.state) == (True, "interrupted")
    again = chosen(environ, run.id, redo=True)
    undo.undo(again, undo_plan(again, redo=True))
    assert (Run(run.folder).state, (tmp_path / "file").read_text()) == ("done", "after")


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
    assert chosen({"XDG_STATE_HOME": str(tmp_path / "state")}, run.id).id == run.id


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
        f"{copy} is not what was copied from {one}, which is kept as it is",
    )
    assert (one.read_text(), other.read_text()) == ("after", "before")


def test_a_file_that_changes_after_the_plan_is_kept_and_the_others_go(
    tmp_path: Path, done: Callable[..., Run]
) -> None:
    paths = [tmp_path / name for name in ("one", "two")]
    run = done(lambda journal: [journal.write_file(path, b"x") for path in paths])
    plan = undo_plan(run)
    paths[0].write_text("by hand")
    assert undo.undo(run, plan).faults == (f"{paths[0]} was changed just now; it is kept",)
    assert paths[0].read_text() == "by hand"
    assert not paths[1].exists()


@pytest.mark.symlinks
def test_a_folder_that_became_a_link_is_not_followed(
    tmp_path: Path, done: Callable[..., Run]
) -> None:
    folder, theirs = tmp_path / "folder", tmp_path / "theirs"
    folder.mkdir()
    run = done(lambda journal: journal.write_file(folder / "file", b"x"))
    folder.rename(theirs)
    folder.symlink_to(theirs)
    plan = undo_plan(run)
    assert plan.refused == (
        f"{folder} leads elsewhere since run {run.id}; {folder / 'file'} is kept",
    )
    undo.undo(run, plan)
    assert (theirs / "file").read_text() == "x"


@pytest.mark.skipif(os.name == "nt" or os.getuid() != 0, reason="needs root to give a file away")
def test_a_file_that_belongs_to_another_user_now_is_kept(
    site: Path, done: Callable[..., Run]
) -> None:
    run = done(upgrade(site))
    os.chown(site / "a.py", 12345, 12345)
    plan = undo_plan(run)
    (refused,) = plan.refused
    assert refused.startswith(f"{site / 'a.py'} was changed since run {run.id}; it is kept")
    undo.undo(run, plan)
    assert (site / "a.py").read_text() == "a 2.0"


def test_what_is_undone_is_done_again(tmp_path: Path, done: Callable[..., Run]) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("before")
    run = done(lambda journal: [journal.write_file(path, b"after") for path in (old, new)])
    with pytest.raises(AttnDoctorError, match="no run of fix was undone"):
        chosen(environ, "", redo=True)
    with pytest.raises(AttnDoctorError, match="was not undone"):
        chosen(environ, run.id, redo=True)
    for _ in range(3):
        run = chosen(environ, "")
        assert undo.undo(run, undo_plan(run)).faults == ()
        assert (old.read_text(), new.exists()) == ("before", False)
        run = chosen(environ, "", redo=True)
        assert undo.undo(run, undo_plan(run, redo=True)).faults == ()
        assert (old.read_text(), new.read_text()) == ("after", "after")
    assert Run(run.folder).state == "done"


# Folders


@pytest.mark.symlinks
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
        *(
            f"{paths[name]} was not made by run {run.id}; it is kept"
            for name in ("broken", "link", "theirs", "unmarked")
        ),
    )
    assert undo.undo(run, plan).faults == plan.refused
    assert not paths["ours"].exists()


@pytest.mark.posix
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


def test_what_others_put_into_a_folder_of_the_run_stays(
    tmp_path: Path, done: Callable[..., Run]
) -> None:
    made = tmp_path / "made"

    def work(journal: Journal) -> None:
        journal.make_folder(made)
        (made / "ours" / "deep").mkdir(parents=True)
        (made / "ours" / "deep" / "file").write_text("x")
        (made / "changed").write_text("x")
        journal.record_folder(made)

    run = done(work)
    (made / "mine").write_text("x")
    (made / "changed").write_text("by hand")
    undone = undo.undo(run, undo_plan(run))
    assert undone.faults == (f"{made / 'changed'} was changed since run {run.id}; it is kept",)
    assert sorted(path.name for path in made.rglob("*")) == ["changed", "mine"]


# Packages


def test_packages_are_restored_and_done_again(site: Path, done: Callable[..., Run]) -> None:
    run = done(upgrade(site))
    before, after = {"a": "1.0", "other": "1.0"}, {"a": "2.0", "b": "1.0", "other": "1.0"}
    for _ in range(2):
        plan = undo_plan(run)
        assert plan.changes == (Change("a", "2.0", "1.0"), Change("b", "1.0", ""))
        assert plan.refused == ()
        assert undo.undo(run, plan) == undo.Undone(run=run.id)
        assert names(site) == before
        assert (site / "a.py").read_text() == "a 1.0"
        run = Run(run.folder)
        assert run.state == "undone"
        plan = undo_plan(run, redo=True)
        assert plan.changes == (Change("a", "1.0", "2.0"), Change("b", "", "1.0"))
        assert undo.undo(run, plan) == undo.Undone(run=run.id)
        assert names(site) == after
        assert (site / "b.py").read_text() == "b 1.0"
        run = Run(run.folder)
        assert run.state == "done"
    assert env_snapshot.forget_all(run) == []
    assert sorted(path.name for path in site.parent.iterdir()) == ["site-packages"]


def test_the_copies_hold_only_what_the_step_replaced(site: Path, done: Callable[..., Run]) -> None:
    run = done(upgrade(site))
    (copies,) = env_snapshot.copies_of(run)
    kept = [path.name for path in Path(copies.parts[0].copy).rglob("*") if path.is_file()]
    assert sorted(kept) == ["RECORD", "a.py"]


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
    assert changed not in {one.name for one in plan.changes}
    undo.undo(run, plan)
    assert not (site / "b.py").exists()
    assert names(site)[changed] == "3.0"
    assert (site / f"{changed}.py").read_text() == f"{changed} 3.0"
    assert Run(run.folder).state == ("partly undone" if changed == "a" else "undone")


def test_after_a_run_that_was_killed_only_its_own_changes_are_undone(
    site: Path, done: Callable[..., Run]
) -> None:
    run = done(upgrade(site, finished=False))
    time.sleep(0.4)  # what follows is later than the last sign of life
    distribution(site, "late", "1.0", "late.py")
    (site / "mine.txt").write_text("x")
    (site / "other.py").write_text("changed")
    plan = undo_plan(run)
    assert {one.name for one in plan.changes} == {"a", "b"}
    undo.undo(run, plan)
    assert names(site) == {"a": "1.0", "late": "1.0", "other": "1.0"}
    assert (site / "mine.txt").exists()
    assert (site / "other.py").read_text() == "changed"


def test_a_run_that_was_killed_is_undone_and_done_again(
    site: Path, done: Callable[..., Run]
) -> None:
    run = done(upgrade(site, finished=False))
    assert undo.undo(run, undo_plan(run)).faults == ()
    assert names(site) == {"a": "1.0", "other": "1.0"}
    run = Run(run.folder)
    assert undo.undo(run, undo_plan(run, redo=True)).faults == ()
    assert names(site) == {"a": "2.0", "b": "1.0", "other": "1.0"}
    assert (site / "b.py").read_text() == "b 1.0"


@pytest.mark.symlinks
def test_a_link_is_restored_and_its_copy_is_needed(
    site: Path, done: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file `a.link` is a link of `a` before the step and a file after it."""
    info = site / "a-1.0.dist-info" / "RECORD"
    info.write_text(f"{info.read_text()}a.link,,\n")
    (site / "a.link").symlink_to("a.py")

    def work(journal: Journal) -> None:
        copies = env_snapshot.keep(journal, [str(site)], "step-1")
        copies.asked.append(frozenset({"a"}))
        distribution(site, "a", "2.0", "a.py", "a.link")
        env_snapshot.record(journal, copies, copies.changes(journal.folder / "step-1.log"))

    run = done(work)
    (copy,) = Path(env_snapshot.roots(run)[0]).rglob("a.link")
    assert undo_plan(run).refused == ()
    kept = copy.with_name("elsewhere")
    copy.rename(kept)
    assert undo_plan(run).refused == (
        f"the copy of {site / 'a.link'} is gone ({copy}); it is kept as it is",
    )
    copy.symlink_to("other.py")
    assert undo.undo(run, undo_plan(run)).faults == (
        f"{copy} is not what was copied from {site / 'a.link'}, which is kept as it is",
    )
    copy.unlink()
    kept.rename(copy)

    def fail(old: str, new: str | Path) -> None:
        if str(new).endswith("a.link"):
            raise OSError(28, "No space left on device")
        replace(old, new)

    replace = os.replace
    with monkeypatch.context() as patch:
        patch.setattr("attn_doctor.fixes.restore.os.replace", fail)
        assert len(undo.undo(run, undo_plan(run)).faults) == 1
    assert (site / "a.link").read_text() == "a 2.0"
    assert undo.undo(run, undo_plan(run)).faults == ()
    assert os.readlink(site / "a.link") == "a.py"


def test_a_distribution_that_was_installed_after_the_kill_is_kept(
    site: Path, done: Callable[..., Run]
) -> None:
    run = done(upgrade(site, finished=False))
    time.sleep(0.4)
    distribution(site, "a", "3.0", "a.py")
    plan = undo_plan(run)
    assert f"a was changed after run {run.id} was stopped; it is kept" in plan.refused
    undo.undo(run, plan)
    assert names(site)["a"] == "3.0"
    assert (site / "a.py").read_text() == "a 3.0"


def test_edits_since_the_run_stay_and_bytecode_goes(site: Path, done: Callable[..., Run]) -> None:
    run = done(upgrade(site))
    for name in ("mine.txt", "__pycache__/mine.pyc", "__pycache__/b.cpython-312.pyc"):
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text("x")
    (site / "other.py").write_text("by hand")
    (site / "b.py").write_text("by hand")
    plan = undo_plan(run)
    assert plan.refused == (f"{site / 'b.py'} was changed since run {run.id}; it is kept",)
    undo.undo(run, plan)
    assert (site / "mine.txt").exists()
    assert (site / "__pycache__" / "mine.pyc").exists()
    assert (site / "other.py").read_text() == "by hand"
    assert (site / "b.py").read_text() == "by hand"
    assert (site / "a.py").read_text() == "a 1.0"
    assert not (site / "b-1.0.dist-info").exists()


def test_bytecode_of_a_removed_module_goes(site: Path, done: Callable[..., Run]) -> None:
    run = done(upgrade(site))
    for name in ("a", "b", "other"):
        (site / "__pycache__").mkdir(exist_ok=True)
        (site / "__pycache__" / f"{name}.cpython-312.pyc").write_text("x")
    undo.undo(run, undo_plan(run))
    assert [path.name for path in (site / "__pycache__").iterdir()] == ["other.cpython-312.pyc"]


def test_bytecode_goes_from_each_folder_that_becomes_empty(
    site: Path, done: Callable[..., Run]
) -> None:
    def work(journal: Journal) -> None:
        copies = env_snapshot.keep(journal, [str(site)], "step-1")
        copies.asked.append(frozenset({"b"}))
        distribution(site, "b", "1.0", "one/x.py", "two/x.py", "three/x.py", "four/x.py")
        env_snapshot.record(journal, copies, copies.changes(journal.folder / "step-1.log"))

    run = done(work)
    for name in ("one", "two", "three"):
        (site / name / "__pycache__").mkdir()
        (site / name / "__pycache__" / "x.cpython-312.pyc").write_text("x")
    (site / "three" / "__pycache__" / "mine.cpython-312.pyc").write_text("x")
    plan = undo_plan(run)
    assert not [one for one in plan.exchanges if "four/__pycache__" in one.path]
    assert undo.undo(run, plan).faults == ()
    left = [path.relative_to(site).as_posix() for path in site.rglob("*.pyc")]
    assert left == ["three/__pycache__/mine.cpython-312.pyc"]
    assert not [name for name in ("one", "two", "four") if (site / name / "__pycache__").exists()]


def test_what_the_user_changed_between_two_steps_comes_back(
    site: Path, done: Callable[..., Run]
) -> None:
    def work(journal: Journal) -> None:
        for number, version in ((1, "2.0"), (2, "3.0")):
            copies = env_snapshot.keep(journal, [str(site)], f"step-{number}")
            copies.asked.append(frozenset({"a"}))
            distribution(site, "a", version, "a.py")
            env_snapshot.record(journal, copies, copies.changes(journal.folder / "x.log"))
            if number == 1:
                (site / "a.py").write_text("by hand")

    run = done(work)
    undo.undo(run, undo_plan(run))
    assert (site / "a.py").read_text() == "by hand"
    assert names(site)["a"] == "1.0"


@pytest.mark.parametrize("theirs", ["aa", "theirs"])
def test_a_file_that_another_distribution_has_too_is_kept(
    site: Path, done: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, theirs: str
) -> None:
    """In whatever order the file system lists the distributions."""
    run = done(upgrade(site))
    text = (site / "b.py").read_text()
    distribution(site, theirs, "1.0", "b.py")
    (site / "b.py").write_text(text)
    listdir = os.listdir
    for backwards in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(os, "listdir", lambda path: sorted(listdir(path), reverse=backwards))  # noqa: B023
            plan = undo_plan(run)
        assert plan.refused == (
            f"{site / 'b.py'} belongs to {theirs} too since run {run.id}; it is kept",
        )
    undo.undo(run, plan)
    assert (site / "b.py").exists()
    assert names(site) == {"a": "1.0", "other": "1.0", theirs: "1.0"}


def test_what_was_removed_after_the_kill_stays_removed(
    site: Path, done: Callable[..., Run]
) -> None:
    run = done(upgrade(site, finished=False))
    (run.folder / "step-1.log").write_text(" - a==1.0\n + a==2.0\n")
    shutil.rmtree(site / "a-2.0.dist-info")
    (site / "a.py").unlink()
    plan = undo_plan(run)
    assert f"a was changed after run {run.id} was stopped; it is kept" in plan.refused
    undo.undo(run, plan)
    assert names(site) == {"other": "1.0"}
    assert not (site / "a.py").exists()


@pytest.mark.parametrize("folder", ["", "a/"])
@pytest.mark.parametrize("ended", [True, False])
def test_a_file_that_was_deleted_after_the_kill_stays_deleted(
    site: Path, done: Callable[..., Run], folder: str, ended: bool
) -> None:
    """If the installation had not ended, the installer may have deleted it."""
    distribution(site, "a", "1.0", f"{folder}x.py")

    def work(journal: Journal) -> None:
        copies = env_snapshot.keep(journal, [str(site)], "step-1")
        copies.asked.append(frozenset({"a"}))
        journal.note("child", process=0, names=["a"])
        distribution(site, "a", "2.0", f"{folder}x.py")
        if ended:
            with (site / "a-2.0.dist-info" / "RECORD").open("a") as file:
                file.write("a-2.0.dist-info/INSTALLER,,\n")
        os.utime(copies.mark)

    run = done(work)
    time.sleep(0.4)
    shutil.rmtree(site / folder) if folder else (site / "x.py").unlink()
    plan = undo_plan(run)
    kept = f"{site / folder / 'x.py'} was changed after run {run.id} was stopped; it is kept"
    assert (kept in plan.refused) == ended
    undo.undo(run, plan)
    assert (site / folder / "x.py").exists() != ended


def test_what_pip_had_removed_when_it_was_killed_comes_back(
    site: Path, done: Callable[..., Run]
) -> None:
    run = done(upgrade(site, finished=False))
    (run.folder / "step-1.log").write_text("Installing collected packages: a, b\n")
    shutil.rmtree(site / "a-2.0.dist-info")
    (site / "a.py").unlink()
    assert undo.undo(run, undo_plan(run)).faults == ()
    assert names(site) == {"a": "1.0", "other": "1.0"}


@pytest.mark.parametrize(
    ("log", "left", "back"),
    [
        ("Installing collected packages: a, b\n  Found existing installation: a 1.0\n", "", False),
        ("Installing collected packages: a, b\n", "a.py", True),  # it was writing the files
        ("Installing collected packages: a, b\n", "a_new.py", True),
        ("Installing collected packages: b\nFound existing installation: a 1.0\n", "", True),
    ],
)
def test_what_pip_was_installing_is_kept_if_it_was_removed_after_the_kill(
    site: Path, done: Callable[..., Run], log: str, left: str, back: bool
) -> None:
    """An installation that was killed leaves files, a removal by pip leaves none."""
    run = done(upgrade(site, finished=False))
    (run.folder / "step-1.log").write_text(log)
    shutil.rmtree(site / "a-2.0.dist-info")
    (site / "a.py").unlink()
    if left:
        (site / left).write_text("a 2.0")
    (copies,) = env_snapshot.copies_of(run)
    stopped = time.time() + 10
    os.utime(copies.mark, (stopped, stopped))
    os.utime(site, (stopped + 10, stopped + 10))
    plan = undo_plan(run)
    assert (f"a was changed after run {run.id} was stopped; it is kept" in plan.refused) != back
    undo.undo(run, plan)
    assert names(site) == ({"a": "1.0"} if back else {}) | {"other": "1.0"}
    assert sorted(path.name for path in site.glob("a*.py")) == ["a.py"] * back


@pytest.mark.parametrize(
    ("log", "changed", "installed_"),
    [
        ("Installing collected packages: My.Pkg, b\n", {"my-pkg", "b"}, set()),
        ("  Found existing installation: a 1.0\n", {"a"}, set()),
        ("Successfully installed My.Pkg-1.0 b-2.0.post1\n", {"my-pkg", "b"}, {"my-pkg", "b"}),
        (" + a==1.0\n - b==2.0\n ~ c==3.0 (from file:///x)\n", {"a", "b", "c"}, {"a", "c"}),
        ("Requirement already satisfied: a in /x\nAudited 1 package in 2ms\n", set(), set()),
    ],
)
def test_what_an_installer_prints(log: str, changed: set[str], installed_: set[str]) -> None:
    printed = read_output(log)
    assert (set(printed.changed), set(printed.installed)) == (changed, installed_)
    assert printed.listed == (changed if "collected" in log else set())


def test_a_roll_back_that_was_killed_is_ended_by_undo(
    site: Path,
    environ: dict[str, str],
    done: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it restored already is not taken for something new."""

    def restore_one(wanted: Iterable[Exchange]) -> list[str]:
        one = next(one for one in wanted if one.path.endswith("a.py"))
        assert exchange_all([one]) == []
        raise KeyboardInterrupt

    def work(journal: Journal) -> None:
        upgrade(site, finished=False)(journal)
        (copies,) = env_snapshot.copies_of(Run(journal.folder))
        monkeypatch.setattr(undo, "exchange_all", restore_one)
        undo.roll_back(journal, copies, journal.folder / "step-1.log")

    with pytest.raises(KeyboardInterrupt):
        done(work)
    monkeypatch.undo()
    (run,) = runs(environ)
    assert run.state == "interrupted"
    assert (site / "a.py").read_text() == "a 1.0"
    assert undo.undo(run, undo_plan(run)).faults == ()
    assert (site / "a.py").read_text() == "a 1.0"
    assert names(site) == {"a": "1.0", "other": "1.0"}
    assert not (site / "b.py").exists()


@pytest.mark.parametrize("fails", [False, True])
def test_a_step_that_failed_is_rolled_back(
    site: Path,
    environ: dict[str, str],
    done: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
    fails: bool,
) -> None:
    """Copies stay, and `fix undo` is for this run, only if something could not be restored."""
    before = done(upgrade(site))
    faults: list[str] = []
    replace = os.replace

    def fail(old: str, new: str | Path) -> None:
        if fails and str(new).endswith("a.py"):
            raise OSError(28, "No space left on device")
        replace(old, new)

    def work(journal: Journal) -> None:
        copies = env_snapshot.keep(journal, [str(site)], "step-1")
        copies.asked.append(frozenset({"a"}))
        distribution(site, "a", "3.0", "a.py")
        (site / "a_part").mkdir()  # of a package whose metadata was not written yet
        (site / "a_part" / "x.py").write_text("x")
        with monkeypatch.context() as patch:
            patch.setattr("attn_doctor.fixes.restore.os.replace", fail)
            faults.extend(undo.roll_back(journal, copies, journal.folder / "step-1.log"))

    run = done(work)
    assert names(site)["a"] == "2.0"
    assert not (site / "a_part").exists()
    if fails:
        assert faults == [f"{site / 'a.py'} cannot be restored: No space left on device"]
        assert (site / "a.py").read_text() == "a 3.0"
        assert chosen(environ, "").id == run.id
        assert undo.undo(run, undo_plan(run)).faults == ()
    else:
        assert faults == []
        assert env_snapshot.copies_of(run) == []
        assert not Path(env_snapshot.roots(run)[0]).exists()
    assert (site / "a.py").read_text() == "a 2.0"
    assert chosen(environ, "").id == before.id


@pytest.mark.posix
def test_a_file_that_cannot_be_put_back_leaves_no_part(
    tmp_path: Path, done: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder" / "file"
    path.parent.mkdir()
    path.write_text("before")
    run = done(lambda journal: journal.write_file(path, b"after"))
    plan = undo_plan(run)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("attn_doctor.fixes.restore.os.replace", fail)
        undone = undo.undo(run, plan)
    assert undone.faults == (f"{path} cannot be restored: No space left on device",)
    assert [one.name for one in path.parent.iterdir()] == ["file"]
    assert path.read_text() == "after"
    run = Run(run.folder)
    assert undo.undo(run, undo_plan(run)).faults == ()
    assert path.read_text() == "before"


def test_copies_that_are_gone_are_reported(site: Path, done: Callable[..., Run]) -> None:
    run = done(upgrade(site, finished=False))
    shutil.rmtree(site.parent / ".attn-doctor-undo")
    with pytest.raises(AttnDoctorError, match=rf"the copies of run {run.id} are gone"):
        undo_plan(run)
    run = done(upgrade(site))
    shutil.rmtree(site.parent / ".attn-doctor-undo")
    distribution(site, "a", "2.0", "a.py")
    assert all("is gone" in one or "changed" in one for one in undo_plan(run).refused)


def test_a_file_whose_copy_is_gone_is_kept(site: Path, done: Callable[..., Run]) -> None:
    run = done(upgrade(site))
    (copy,) = Path(env_snapshot.roots(run)[0]).rglob("a.py")
    copy.unlink()
    assert undo_plan(run).refused == (
        f"the copy of {site / 'a.py'} is gone ({copy}); it is kept as it is",
    )


def test_steps_that_were_rolled_back_do_not_count(site: Path, done: Callable[..., Run]) -> None:
    def work(journal: Journal) -> None:
        for label in ("rolled", "unkept", "incomplete", "first"):
            journal.note("packages", label=label, parts=[["/x", "/y/z"]])
        for label in ("rolled", "unkept", "first"):
            journal.note("kept", label=label)
        journal.note("rolled back", label="rolled")
        journal.note("unkept", label="unkept")

    assert [one.label for one in env_snapshot.copies_of(done(work))] == ["first"]


@pytest.mark.parametrize("name", ["journal.jsonl", "step-1.json"])
def test_a_damaged_journal_changes_nothing(
    site: Path, environ: dict[str, str], done: Callable[..., Run], name: str
) -> None:
    run = done(upgrade(site))
    path = run.folder / name
    whole = path.read_bytes()
    for place in range(0, len(whole) - 1, 29):  # the last byte ends the last line
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(AttnDoctorError, match=rf"{name} is damaged, so .* nothing was changed"):
            undo_plan(chosen(environ, ""))
    assert names(site) == {"a": "2.0", "b": "1.0", "other": "1.0"}
    path.write_bytes(whole)
    assert undo.undo(run, undo_plan(chosen(environ, ""))).faults == ()


def test_a_journal_may_end_anywhere(
    site: Path, environ: dict[str, str], done: Callable[..., Run], tmp_path: Path
) -> None:
    """Power fails: the last lines are missing, or incomplete. Nothing of the user's is touched."""
    run = done(upgrade(site))
    path = run.folder / "journal.jsonl"
    whole = path.read_bytes()
    (site / "mine.txt").write_text("x")
    shutil.copytree(tmp_path / "lib", tmp_path / "whole")
    recorded = (run.folder / "step-1.json").read_bytes()
    outcomes = set()
    for end in range(0, len(whole), 37):
        path.write_bytes(whole[:end])
        (run.folder / "step-1.json").write_bytes(recorded)
        if Run(run.folder).changed:
            found = chosen(environ, "")
            undo.undo(found, undo_plan(found))
        assert (site / "mine.txt").read_text() == "x"
        assert (site / "other.py").read_text() == "other 1.0"
        outcomes.add(names(site)["a"])
        shutil.rmtree(tmp_path / "lib")
        shutil.copytree(tmp_path / "whole", tmp_path / "lib")
    assert outcomes == {"1.0", "2.0"}


def test_an_incomplete_last_line_is_not_continued(
    site: Path, environ: dict[str, str], done: Callable[..., Run]
) -> None:
    run = done(upgrade(site))
    with (run.folder / "journal.jsonl").open("a") as file:
        file.write('{"event": "un')
    run = chosen(environ, "")
    assert undo.undo(run, undo_plan(run)).faults == ()
    assert (Run(run.folder).damage, Run(run.folder).state) == ("", "undone")


def test_the_plan_names_its_run(done: Callable[..., Run]) -> None:
    plan = undo_plan(run := done(lambda _: None))
    assert (plan.run, plan.title, plan.state) == (run.id, "test", "done")


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
@pytest.mark.posix
def test_only_the_process_that_was_started_then_is_killed(
    killed: list[object], noted: float, same: bool
) -> None:
    orphans._kill(7, noted)
    assert killed == ([(7, signal.SIGKILL)] if same else [])
    assert Process.asked == [7]


def test_without_groups_each_process_is_killed(
    killed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "killpg")
    orphans._kill(7, 100.0)
    assert killed == [8, 7]


@pytest.mark.parametrize("error", [psutil.NoSuchProcess(7), ProcessLookupError()])
def test_a_process_that_ended_is_not_killed(
    killed: list[object], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def ended(self: Process) -> float:
        raise error

    monkeypatch.setattr(Process, "create_time", ended)
    orphans._kill(7, 100.0)
    assert killed == []


def _journal(folder: Path, *lines: dict[str, object]) -> Run:
    folder.mkdir(parents=True)
    whole = [{**line, "sum": journal_module._sum(line)} for line in lines]
    (folder / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in whole))
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
    monkeypatch.setattr(orphans, "_alive", calls.append)
    monkeypatch.setattr(orphans, "_kill", lambda *what: calls.append(what))
    states = iter(["running", "running", "interrupted"])
    folders: list[Path] = []

    def again(folder: Path) -> SimpleNamespace:
        folders.append(folder)
        return SimpleNamespace(state=next(states))

    log = run.folder / "step-1.log"
    log.touch()
    os.utime(log, (1, 1))

    monkeypatch.setattr(orphans, "Run", again)
    monkeypatch.setattr(time, "sleep", calls.append)
    end_orphan(run)
    assert calls == [41, (43, 3.5), 0.05, 0.05]
    assert folders == [run.folder] * 3
    assert log.stat().st_mtime > time.time() - 60  # it was alive until now


def test_a_run_whose_process_is_alive_is_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = {"event": "begin", "time": 1.0, "process": os.getpid()}
    monkeypatch.setattr(orphans, "_kill", lambda *_: pytest.fail("it was killed"))
    run = _journal(tmp_path / "run", begun, {"event": "child", "time": 2.5, "process": 42})
    with pytest.raises(AttnDoctorError, match=rf"still running \(process {os.getpid()}\)"):
        end_orphan(run)


def test_an_installer_that_does_not_end_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _journal(tmp_path / "run", {"event": "other"})
    now = [50.0]
    processes: list[int] = []
    monkeypatch.setattr(orphans, "_alive", processes.append)
    monkeypatch.setattr(orphans, "Run", lambda _: SimpleNamespace(state="running"))
    monkeypatch.setattr(orphans, "_GRACE", 1.0)
    clock = SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda _: now.__setitem__(0, now[0] + 0.5)
    )
    monkeypatch.setattr(orphans, "time", clock)
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
    assert orphans._alive(process) is alive


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
