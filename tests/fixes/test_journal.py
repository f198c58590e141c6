"""The journal, copies of folders, and taking files back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from attn_doctor.errors import AttnDoctorError
from attn_doctor.fixes import link_copy
from attn_doctor.fixes.distributions import (
    Installed,
    compared,
    installed,
    owners,
)
from attn_doctor.fixes.installers import constraints
from attn_doctor.fixes.journal import MARKER, begin, fixes_folder, runs
from attn_doctor.fixes.path_state import state_of
from attn_doctor.fixes.restore import Exchange, exchange_all
from attn_doctor.fixes.undo import chosen, undo, undo_plan


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.mark.posix
def test_where_journals_lie() -> None:
    assert fixes_folder({"HOME": "/home/u"}, windows=False) == Path(
        "/home/u/.local/state/attn-doctor/fixes"
    )
    assert fixes_folder({"XDG_STATE_HOME": "/s", "HOME": "/h"}).parts[1] == "s"
    assert "attn-doctor" in fixes_folder({"LOCALAPPDATA": "/l"}, windows=True).parts
    for nothing in ({}, {"XDG_STATE_HOME": "relative"}, {"HOME": ""}):
        with pytest.raises(AttnDoctorError, match="XDG_STATE_HOME"):
            fixes_folder(nothing, windows=False)


@pytest.mark.posix
def test_files_are_restored_and_those_changed_since_are_left(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    old, new, later = (tmp_path / name for name in ("old", "new", "later"))
    old.write_text("before\n")
    old.chmod(0o600)
    later.write_text("before\n")
    link = tmp_path / "link"
    link.symlink_to(old)
    with begin(environ, "test") as journal:
        assert journal.write_file(link, b"once\n") == old
        journal.write_file(old, b"after\n")
        journal.write_file(new, b"new\n")
        journal.write_file(later, b"after\n")
        made = journal.make_folder(tmp_path / "made")
        (made / "content").write_text("x")
    assert link.is_symlink()
    assert old.read_text() == "after\n"
    assert old.stat().st_mode & 0o777 == 0o600
    later.write_text("by someone else\n")
    run = chosen(environ, "")
    assert run.state == "done"
    undone = undo(run, undo_plan(run))
    assert [fault for fault in undone.faults if str(later) in fault]
    assert old.read_text() == "before\n"
    assert old.stat().st_mode & 0o777 == 0o600
    assert not new.exists()
    assert not made.exists()
    assert later.read_text() == "by someone else\n"
    kept = run.folder / next(x for x in os.listdir(run.folder) if x.startswith("file-"))
    assert kept.read_text() == "before\n"


def test_a_folder_without_our_mark_is_left(tmp_path: Path, environ: dict[str, str]) -> None:
    with begin(environ, "test") as journal:
        made = journal.make_folder(tmp_path / "made")
        with pytest.raises(AttnDoctorError, match="exists"):
            journal.make_folder(made)
    (made / MARKER).write_text("another run\n")
    run = chosen(environ, "")
    assert undo(run, undo_plan(run)).faults
    assert made.is_dir()


def test_the_end_of_a_run_is_recorded(environ: dict[str, str]) -> None:
    with begin(environ, "one") as journal:
        assert runs(environ)[0].state == "running"
        with pytest.raises(AttnDoctorError, match="still running"):
            chosen(environ, journal.id)
    with pytest.raises(KeyboardInterrupt), begin(environ, "two"):
        raise KeyboardInterrupt
    with pytest.raises(OSError, match="x"), begin(environ, "three"):
        raise OSError("x")
    assert sorted(one.state for one in runs(environ)) == ["done", "failed", "stopped"]
    with pytest.raises(AttnDoctorError, match="no run of fix changed"):
        chosen(environ, "")


def test_a_journal_that_was_cut_off_is_read(environ: dict[str, str]) -> None:
    with begin(environ, "one") as journal:
        folder = journal.folder
    path = folder / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b'{"event": "end"') + 9])
    assert runs(environ)[0].state == "interrupted"
    assert runs(environ)[0].title == "one"


@pytest.mark.skipif(os.name == "nt" or os.getuid() != 0, reason="needs root to give a file away")
def test_someone_elses_file_is_left(tmp_path: Path, environ: dict[str, str]) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("x")
    os.chown(theirs, 12345, 12345)
    with begin(environ, "test") as journal, pytest.raises(AttnDoctorError, match="belongs to user"):
        journal.write_file(theirs, b"y")
    assert theirs.read_text() == "x"


def _everything(folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        place = str(path.relative_to(folder))
        found[place] = os.readlink(path) if path.is_symlink() else path.is_dir() or path.read_text()
    return found


@pytest.mark.symlinks
def test_a_tree_is_restored_after_any_change(tmp_path: Path) -> None:
    folder, copy = tmp_path / "folder", tmp_path / "copy"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    for name in ("a.py", "sub/b.py", "sub/deep/c.py", "hook.pth"):
        (folder / name).write_text(name)
    (folder / "link").symlink_to("a.py")
    before = _everything(folder)
    link_copy.keep(str(folder), str(copy))
    assert _everything(copy) == before
    assert (copy / "sub/b.py").stat().st_ino == (folder / "sub/b.py").stat().st_ino
    assert link_copy.changed(str(folder), str(copy)) == []
    # Replaced, removed, turned into a folder and into a file, written into, and added.
    (folder / "sub/b.py").unlink()
    (folder / "sub/b.py").write_text("other")
    (folder / "a.py").unlink()
    (folder / "a.py").mkdir()
    (folder / "a.py" / "x").write_text("x")
    (folder / "sub/deep/c.py").unlink()
    (folder / "sub/deep").rmdir()
    (folder / "sub/deep").write_text("a file")
    (folder / "empty").rmdir()
    with (folder / "hook.pth").open("a") as file:
        file.write("more")
    (folder / "link").unlink()
    (folder / "new" / "er").mkdir(parents=True)
    (folder / "new" / "er" / "file").write_text("")
    aside = tmp_path / "aside"
    there = [
        Exchange(
            str(folder / path),
            state_of(str(folder / path)),
            state_of(str(copy / path)),
            str(copy / path),
            str(aside / path.replace("/", "-")),
        )
        for path in link_copy.changed(str(folder), str(copy))
    ]
    after = _everything(folder)
    assert exchange_all(there) == []
    assert _everything(folder) == before
    back = [Exchange(one.path, one.wanted, one.here, one.aside, one.store) for one in there]
    assert exchange_all(back) == []
    assert _everything(folder) == after
    assert exchange_all(there) == []
    assert _everything(folder) == before


@pytest.mark.posix
def test_distributions_and_their_files(tmp_path: Path) -> None:
    info = tmp_path / "My_Pkg-1.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("my_pkg/a.py,,\n../bin/tool,,\nMy_Pkg-1.0.dist-info/RECORD,,\n")
    first = installed([str(tmp_path)])
    assert first["my-pkg"].version == "1.0"
    assert owners(str(tmp_path), "/env/lib")["/env/bin/tool"] == ["my-pkg"]
    (tmp_path / "~y_Pkg-1.0.dist-info").mkdir()  # pip is removing it
    assert installed([str(tmp_path)]).keys() == {"my-pkg"}
    (info / "RECORD").write_text("my_pkg/b.py,,\n")
    again = compared(first, installed([str(tmp_path)]))
    assert [(one.sign, one.name) for one in again] == [("=", "my-pkg")]
    assert [one.sign for one in compared({}, first)] == ["+"]


def test_constraints_hold_what_a_step_does_not_name() -> None:
    there = {
        name: Installed("1.0", "")
        for name in ("torch", "triton", "nvidia-cublas", "numpy", "xformers", "diffusers")
    }
    held = constraints(there, ["diffusers"], strict=True)
    assert "torch==1.0" in held
    assert "numpy==1.0" in held
    assert not [line for line in held if line.startswith("diffusers")]
    loose = constraints(there, ["diffusers"], strict=False)
    assert "torch==1.0" in loose
    assert "numpy==1.0" not in loose
    assert constraints(there, ["torch"], strict=False) == ["xformers==1.0"]
    odd = {**there, "acme": Installed("1\n::error::x", ""), "a\nb": Installed("1", "")}
    assert constraints(odd, ["diffusers"], strict=True) == held
