"""Only listed files go, whatever lies in their way."""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from attn_doctor.errors import OwnershipError
from attn_doctor.facts import Cache, Facts, Gpu, Torch, Triton
from attn_doctor.facts.kinds import CacheFolder
from attn_doctor.kernels.caches import removal
from attn_doctor.kernels.caches.deletion import (
    ClearedFile,
    Deletions,
    Group,
    Plan,
    clear,
    existing,
    plan,
)
from attn_doctor.kernels.caches.file_tree import read_tree
from attn_doctor.kernels.caches.locks import Holder, Holders
from attn_doctor.kernels.caches.removal import link_above, obstacle, remove
from attn_doctor.kernels.caches.survey import CacheLocation, Survey, survey
from attn_doctor.kernels.caches.trash import empty, new_id, restore, trashed
from attn_doctor.record import store
from attn_doctor.record.manifest import Build, Entry, EntryState, Manifest, Warmup
from attn_doctor.record.spec import KernelSpec

root_only = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away"
)


@pytest.fixture(params=["handles", "paths"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Deletes through handles of folders, and by paths as on Windows."""
    if request.param == "paths":
        monkeypatch.setattr(removal, "_AT", False)
    elif not removal._AT:
        pytest.skip("this system has no handles of folders")
    return str(request.param)


def test_listed_files_go_and_empty_folders_with_them(tmp_path: Path, make: Any) -> None:
    make.write(tmp_path / "a" / "b" / "one", b"12345")
    make.write(tmp_path / "a" / "stays")
    done = remove(str(tmp_path), ["a/b/one", "a/b/never"])
    assert done.files == ("a/b/one",)
    assert done.bytes == 5
    assert done.kept == {}
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "stays"]


@pytest.mark.parametrize("path", ["../victim", "a/../../victim", "/etc/hostname", "a//x", "."])
def test_no_path_leads_out(tmp_path: Path, make: Any, path: str) -> None:
    victim = make.write(tmp_path / "victim")
    make.write(tmp_path / "r" / "a" / "x")
    done = remove(str(tmp_path / "r"), [path])
    assert done.files == ()
    assert path in done.kept
    assert victim.exists()
    assert os.path.exists("/etc")


@pytest.mark.symlinks
def test_a_folder_that_became_a_link_is_not_entered(tmp_path: Path, make: Any) -> None:
    outside = make.write(tmp_path / "outside" / "one").parent
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "a").symlink_to(outside)
    done = remove(str(tmp_path / "r"), ["a/one"])
    assert done.files == ()
    assert "a is" in done.kept["a/one"]
    assert (outside / "one").exists()


@pytest.mark.symlinks
def test_a_file_that_became_a_link_stays(tmp_path: Path, make: Any) -> None:
    victim = make.write(tmp_path / "victim")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "one").symlink_to(victim)
    assert remove(str(tmp_path / "r"), ["one"]).kept == {"one": "it is a symbolic link"}
    done = remove(str(tmp_path / "r"), ["one"], links=True)
    assert done.files == ("one",)
    assert victim.exists()


@pytest.mark.symlinks
def test_a_root_behind_a_link_is_refused_with_its_real_path(tmp_path: Path, make: Any) -> None:
    make.write(tmp_path / "real" / "r" / "one")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    root = str(tmp_path / "link" / "r")
    assert link_above(root) == str(tmp_path / "link")
    done = remove(root, ["one"])
    assert str(tmp_path / "real" / "r") in done.kept["one"]
    assert (tmp_path / "real" / "r" / "one").exists()


@pytest.mark.posix
@pytest.mark.parametrize(("owner", "followed"), [(0, True), (1, False), (1000, False)])
def test_only_links_of_root_at_the_top_are_followed(
    monkeypatch: pytest.MonkeyPatch, owner: int, followed: bool
) -> None:
    """As `/tmp` is on macOS."""
    link, folder = stat.S_IFLNK | 0o777, stat.S_IFDIR | 0o755

    def lstat(path: str) -> SimpleNamespace:
        return SimpleNamespace(st_mode=link if path == "/tmp" else folder, st_uid=owner)

    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", lstat)
        assert link_above("/tmp/a/b") == ("" if followed else "/tmp")
        patch.setattr(os, "lstat", lambda path: lstat("/tmp" if path == "/tmp/a" else "/"))
        assert link_above("/tmp/a/b") == "/tmp/a"


def test_a_file_that_changed_since_it_was_listed_stays(tmp_path: Path, make: Any) -> None:
    make.write(tmp_path / "same")
    grown = make.write(tmp_path / "grown")
    other = make.write(tmp_path / "other")
    listed = read_tree(str(tmp_path)).nodes
    grown.write_bytes(b"more than before")
    make.write(tmp_path / "new").replace(other)
    done = remove(str(tmp_path), ["same", "grown", "other"], listed)
    assert done.files == ("same",)
    assert done.kept["grown"] == "it changed after it was listed"
    assert done.kept["other"] == "another file replaced it after it was listed"


@root_only
def test_another_users_files_stay(tmp_path: Path, make: Any, way: str) -> None:
    if way == "paths":
        pytest.skip("Windows has no owner as a number, so that folders are not compared")
    theirs = make.write(tmp_path / "r" / "theirs")
    make.write(tmp_path / "r" / "mine")
    os.chown(theirs, 65534, 65534)
    inside = make.write(tmp_path / "r" / "folder" / "one")
    os.chown(inside.parent, 65534, 65534)
    done = remove(str(tmp_path / "r"), ["theirs", "mine", "folder/one"])
    assert done.files == ("mine",)
    assert "another user" in done.kept["theirs"]
    assert done.kept["folder/one"] == "folder belongs to another user"
    os.chown(tmp_path / "r", 65534, 65534)
    assert "another user" in obstacle(str(tmp_path / "r"))


def test_a_race_against_links_deletes_nothing_outside(tmp_path: Path, make: Any, way: str) -> None:
    """While files are deleted, another process swaps their folder for a link to another."""
    if way == "paths":
        pytest.skip("checks of paths leave a race")
    victims = [make.write(tmp_path / "outside" / f"f{n}") for n in range(40)]
    root = tmp_path / "r"
    for n in range(40):
        make.write(root / "a" / f"f{n}")
    away, stop = root / "away", threading.Event()

    def swap() -> None:
        while not stop.is_set():
            try:
                (root / "a").rename(away)
                (root / "a").symlink_to(tmp_path / "outside")
                (root / "a").unlink()
                away.rename(root / "a")
            except OSError:
                continue

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(60):
            remove(str(root), [f"a/f{n}" for n in range(40)])
            for n in range(40):
                (root / f"x{n}").touch()
    finally:
        stop.set()
        thread.join()
    assert all(victim.exists() for victim in victims)


def test_what_cannot_be_deleted_is_said(tmp_path: Path, make: Any) -> None:
    (tmp_path / "r" / "folder").mkdir(parents=True)
    assert remove(str(tmp_path / "r"), ["folder"]).kept == {"folder": "it is not a regular file"}
    assert "cannot be reached" in remove(str(tmp_path / "none"), ["x"]).kept["x"]
    make.write(tmp_path / "file")
    assert obstacle(str(tmp_path / "file")) == "it is not a folder"


def test_a_build_deletes_below_its_folders_only(tmp_path: Path, make: Any) -> None:
    inside = make.write(tmp_path / "r" / "a" / "one", b"12345")
    outside = make.write(tmp_path / "other")
    missing = ClearedFile(path=str(tmp_path / "r" / "never"), bytes=1, why="stale")
    files = [*existing(tmp_path, ["r/a/one", "gone", "other"], "stale"), missing]
    assert {file.why for file in files} == {"stale"}
    assert [Path(file.path).name for file in files] == ["one", "other", "never"]
    deletions = Deletions(str(tmp_path / "r"), "")
    deletions.delete(files)
    assert [(file.path, file.bytes) for file in deletions.cleared] == [(str(inside), 5)]
    assert deletions.kept == {str(outside): "it is in none of the cache folders"}
    assert outside.exists()
    assert not inside.parent.exists()


def test_a_build_reports_what_it_could_not_delete(tmp_path: Path, make: Any) -> None:
    (tmp_path / "folder").mkdir()
    deletions = Deletions(str(tmp_path))
    deletions.delete(existing(tmp_path, ["folder"], "stale"))
    assert deletions.kept == {str(tmp_path / "folder"): "it is not a regular file"}


def test_a_build_deletes_damaged_files_and_no_others(tmp_path: Path, make: Any) -> None:
    root = make.inductor(tmp_path)
    graph = root / "fxgraph" / make.FX[1:3] / make.FX
    left = make.write(graph / ".999999999.1.tmp")
    truncated = graph / make.FILE
    truncated.write_bytes(truncated.read_bytes()[:-3])
    deletions = Deletions(str(root))
    deletions.delete_damaged()
    assert [file.path for file in deletions.cleared] == [str(truncated)]
    assert deletions.cleared[0].why.startswith("damaged: ")
    assert left.exists()


def test_a_build_deletes_below_several_folders(tmp_path: Path, make: Any) -> None:
    made = [make.write(tmp_path / name / "one") for name in ("a", "b")]
    deletions = Deletions(str(tmp_path / "a"), str(tmp_path / "b"))
    deletions.delete(existing(tmp_path, ["a/one", "b/one"], "stale"))
    assert [file.path for file in deletions.cleared] == [str(path) for path in made]


@pytest.mark.posix
def test_useless_files_of_killed_builds_are_named(recorded: Path, make: Any) -> None:
    graph = recorded / "fxgraph" / make.FX[1:3] / make.FX
    left = make.write(graph / ".999999999.1.tmp")
    (recorded / "attn-doctor" / "manifest.json").write_bytes(b"{")
    found = plan(surveyed("inductor", recorded), everything=False)
    assert {group.why: (group.files, group.bytes) for group in found.groups} == {
        "attn-doctor's record, which is damaged": (("attn-doctor/manifest.json",), 1),
        "incomplete files of processes that were killed": (
            (left.relative_to(recorded).as_posix(),),
            1,
        ),
    }


def surveyed(kind: CacheFolder, root: Path) -> Survey:
    return survey(CacheLocation(kind, str(root), "named"), Facts())


@pytest.mark.parametrize("everything", [True, False])
@pytest.mark.posix
def test_an_abandoned_lock_is_deleted(tmp_path: Path, make: Any, everything: bool) -> None:
    make.old_lock(tmp_path)
    found = plan(surveyed("extensions", tmp_path), everything=everything)
    assert "py312_cu130/fused/lock" in found.files
    whys = [group.why for group in found.groups if "py312_cu130/fused/lock" in group.files]
    assert whys == [
        "locks that no process holds" if everything else "locks of builds that were killed"
    ]
    assert found.doubts == ()
    assert found.refused == ""


@pytest.mark.parametrize("everything", [True, False])
def test_a_lock_that_may_be_held_stays(tmp_path: Path, make: Any, everything: bool) -> None:
    make.write(make.extension(tmp_path) / "lock", b"")
    location = CacheLocation("extensions", str(tmp_path), "named")
    network = (Cache(kind="extensions", path=str(tmp_path), network=True),)
    found = plan(survey(location, Facts(caches=network)), everything=everything)
    assert not [path for path in found.files if path.endswith("lock")]
    assert "another machine may hold it" in found.doubts[0]


def test_a_plan_counts_entries_and_bytes(tmp_path: Path, make: Any) -> None:
    root = make.inductor(tmp_path)
    found = plan(surveyed("inductor", root), everything=True)
    by_reason = {group.why: group for group in found.groups}
    assert by_reason["code"].entries == 1
    assert len(by_reason["code"].files) == 2
    assert by_reason["locks that no process holds"].entries == 1
    assert found.bytes == sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    assert plan(surveyed("inductor", root), everything=False).groups == ()
    assert plan(surveyed("inductor", root / "none"), everything=True).groups == ()


HERE = Facts(
    torch=Torch(installed=True, version="2.11.0", build="cuda", cuda="13.0"),
    triton=Triton(installed=True, version="3.6.0"),
    gpus=(Gpu(index=0, name="NVIDIA H200", sm=90),),
)
#: Names of a Triton kernel's folder.
KEYS = [f"{letter}{'A' * 51}" for letter in "BCDEF"]


def test_useless_files_are_grouped_by_the_reason(tmp_path: Path, make: Any) -> None:
    for key, arch, version in zip(
        KEYS, (90, 90, 80, 90, 90), ("3.5.1", "3.5.1", "3.6.0", "3.6.0", "3.6.0"), strict=True
    ):
        make.kernel(tmp_path, key, arch=arch, version=version)
    truncated = [tmp_path / KEYS[0] / "k.cubin", tmp_path / KEYS[3] / "k.cubin"]
    for path in truncated:
        path.write_bytes(path.read_bytes()[:-3])
    make.write(tmp_path / "notes.txt")
    found = plan(
        survey(CacheLocation("triton", str(tmp_path), "TRITON_CACHE_DIR"), HERE), everything=False
    )
    here = {group.why: (group.entries, {*group.files}) for group in found.groups}

    def files(*keys: str) -> set[str]:
        return {f"{key}/{path.name}" for key in keys for path in (tmp_path / key).iterdir()}

    assert {why: entries for why, (entries, _) in here.items()} == {
        "built by Triton 3.5.1, this is 3.6.0": 2,
        "built for sm_80, the GPU here is sm_90": 1,
        "truncated or corrupt": 1,
    }
    assert here["built by Triton 3.5.1, this is 3.6.0"][1] == files(*KEYS[:2])
    assert here["built for sm_80, the GPU here is sm_90"][1] == files(KEYS[2])
    broken = here["truncated or corrupt"][1]
    assert f"{KEYS[3]}/k.cubin" in broken <= files(KEYS[3])
    assert (found.source, found.unrelated_files, found.refused) == ("TRITON_CACHE_DIR", 1, "")
    assert len(found.files) == len({*found.files})
    assert sum(group.bytes for group in found.groups) == found.bytes
    assert found.bytes == sum((tmp_path / path).stat().st_size for path in found.files)
    clear(found)
    assert not any((tmp_path / key).exists() for key in KEYS[:3])
    assert not truncated[1].exists()
    assert len([*(tmp_path / KEYS[4]).iterdir()]) == 4
    assert (tmp_path / "notes.txt").exists()
    after = plan(survey(CacheLocation("triton", str(tmp_path), "named"), HERE), everything=False)
    assert (after.groups, after.unrelated_files) == ((), 1)


@pytest.mark.posix
def test_a_whole_cache_is_grouped_by_its_parts(recorded: Path, make: Any) -> None:
    graph = recorded / "fxgraph" / make.FX[1:3] / make.FX
    make.write(graph / ".999999999.1.tmp")
    make.kernel(recorded / "triton" / "0", make.OTHER)
    found = plan(surveyed("inductor", recorded), everything=True)
    assert {group.why: group.entries for group in found.groups} == {
        "aotautograd": 1,
        "code": 1,
        "fxgraph": 1,
        "triton": 2,
        "incomplete files": 1,
        "locks that no process holds": 1,
        "attn-doctor's record": 1,
    }


def test_a_folder_that_is_no_cache_is_refused(tmp_path: Path, make: Any) -> None:
    mine = make.write(tmp_path / "mine.txt")
    found = plan(surveyed("triton", tmp_path), everything=True)
    assert (found.kind, found.root, found.files) == ("triton", str(tmp_path), ())
    assert found.refused == surveyed("triton", tmp_path).contents.unrecognised != ""
    assert clear(found).removed.files == ()
    assert mine.exists()


@pytest.mark.symlinks
def test_links_go_from_a_cache_of_downloads_only(tmp_path: Path, make: Any) -> None:
    make.hub(tmp_path)
    found = plan(surveyed("hub", tmp_path), everything=True)
    links = [path for path in found.files if (tmp_path / path).is_symlink()]
    assert links
    other = clear(replace(found, kind="triton", groups=(Group("x", 1, tuple(links), 1),)))
    assert other.removed.kept == dict.fromkeys(links, "it is a symbolic link")
    assert {*links} <= {*clear(found).removed.files}


@pytest.mark.parametrize("path", ["./x", "a/./x", "a/../x", "x/", "/x", ""])
def test_a_path_with_an_odd_part_is_kept(tmp_path: Path, make: Any, path: str) -> None:
    for name in ("x", "a/x"):
        make.write(tmp_path / name)
    assert remove(str(tmp_path), [path]).kept == {path: "its path leads out of the cache"}
    assert (tmp_path / "x").exists()
    assert (tmp_path / "a" / "x").exists()


@pytest.mark.posix
def test_a_colon_or_a_backslash_is_an_ordinary_letter_here(tmp_path: Path, make: Any) -> None:
    names = ["a:b", "a\\b"]
    for name in names:
        make.write(tmp_path / name)
    assert remove(str(tmp_path), names).files == tuple(names)


def test_the_sizes_of_all_files_are_added(tmp_path: Path, make: Any) -> None:
    make.write(tmp_path / "one", b"123")
    make.write(tmp_path / "two", b"12345")
    assert remove(str(tmp_path), ["one", "two"]).bytes == 8


def test_folders_that_became_empty_go_from_the_deepest_up(tmp_path: Path, make: Any) -> None:
    root = tmp_path / "r"
    names = ["a/b/c/one", "a/b/d/one", "b/one", "aa/one", "one"]
    for name in names:
        make.write(root / name)
    make.write(root / "b" / "stays")
    assert set(remove(str(root), names).files) == {*names}
    assert sorted(path.relative_to(root).as_posix() for path in root.rglob("*")) == ["b", "b/stays"]
    assert root.is_dir()


def test_a_folder_that_cannot_be_written_is_an_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert obstacle(str(tmp_path)) == "this user cannot write there"


def test_an_error_of_the_system_is_the_reason(
    tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make.write(tmp_path / "one")
    make.write(tmp_path / "two")
    unlink = os.unlink

    def fail(path: str, **more: Any) -> None:
        if path.endswith("one"):
            raise PermissionError(13, "Permission denied")
        unlink(path, **more)

    monkeypatch.setattr(os, "unlink", fail)
    done = remove(str(tmp_path), ["one", "two"])
    assert done.kept == {"one": "Permission denied"}
    assert done.files == ("two",)


def test_a_root_that_cannot_be_opened_keeps_all_files(
    tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make.write(tmp_path / "one")

    def fail(root: str) -> None:
        raise OSError("it is gone")

    monkeypatch.setattr(removal, "_Handles", fail)
    monkeypatch.setattr(removal, "_Paths", fail)
    assert remove(str(tmp_path), ["one", "a"]).kept == {"one": "it is gone", "a": "it is gone"}


@pytest.mark.parametrize("recorded", [False, True])
def test_clear_keeps_a_file_that_changed_after_it_was_listed(
    tmp_path: Path, make: Any, recorded: bool
) -> None:
    root = make.inductor(tmp_path)
    if recorded:
        store.save(root, store.empty())
    found = plan(surveyed("inductor", root), everything=True)
    assert found.refused == ""
    changed, *others = found.files
    (root / changed).write_bytes(b"another process wrote this since")
    cleared = clear(found)
    assert cleared.removed.kept[changed] == "it changed after it was listed"
    assert (root / changed).exists()
    assert set(others) == set(cleared.removed.files)


# The record, and what `clear` of a whole cache takes


def entry(files: dict[str, int] | None, state: EntryState = "built") -> Entry:
    build = None if files is None else Build(at="2026", seconds=1.0, files=files)
    spec = KernelSpec(heads=2, head_dim=16, lengths=(128,))
    return Entry(spec=spec, device_slot="cpu", state=state, build=build)


def warmup(files: dict[str, int]) -> Warmup:
    return Warmup(argv=("x",), folder="/", device_slot="cpu", at="2026", seconds=1.0, files=files)


@pytest.fixture
def recorded(tmp_path: Path, make: Any) -> Path:
    """A kernel, a graph, and a record in which an entry and a warm-up use the kernel."""
    root: Path = make.inductor(tmp_path / "r")
    kernel = {f"triton/0/{make.KEY}/k.cubin": 4096}
    graph = {f"aotautograd/{make.AOT}/{make.FILE}": 1}
    manifest = Manifest(
        schema=1,
        attn_doctor="0.1.0",
        entries={
            "kernel": entry(kernel),
            "graph": entry(graph),
            "failed": entry(None, "failed"),
        },
        warmups={"kernel": warmup(kernel), "graph": warmup(graph)},
    )
    store.save(root, manifest)
    return root


def only_triton(root: Path) -> Plan:
    """The plan to clear the Triton kernels of a cache and nothing else."""
    found = plan(surveyed("inductor", root), everything=True)
    return replace(found, groups=tuple(one for one in found.groups if one.why == "triton"))


def test_cleared_kernels_are_noted_and_no_others(recorded: Path) -> None:
    before = store.load(recorded)
    assert before is not None
    clear(only_triton(recorded))
    after = store.load(recorded)
    assert after is not None
    assert (after.entries["kernel"].state, after.entries["kernel"].build) == ("cleared", None)
    assert after.entries["kernel"].message == "its files were cleared"
    for key in ("graph", "failed"):
        assert after.entries[key] == before.entries[key]
    assert after.warmups == {"graph": before.warmups["graph"]}


def test_a_record_that_names_none_of_the_files_is_not_written(recorded: Path, make: Any) -> None:
    (recorded / "attn-doctor" / "manifest.json").write_bytes(b'{"schema":1,"attn_doctor":"x"}')
    clear(only_triton(recorded))
    assert (recorded / "attn-doctor" / "manifest.json").read_bytes() == (
        b'{"schema":1,"attn_doctor":"x"}'
    )


def test_a_file_that_stayed_is_not_noted_as_cleared(recorded: Path, make: Any) -> None:
    found = only_triton(recorded)
    for name in ("k.cubin", "k.ttir"):
        (recorded / "triton" / "0" / make.KEY / name).write_bytes(b"written since")
    clear(found)
    after = store.load(recorded)
    assert after is not None
    assert after.entries["kernel"].state == "built"
    assert set(after.warmups) == {"kernel", "graph"}


def test_a_whole_cache_goes_with_its_record_and_keeps_its_lock_file(recorded: Path) -> None:
    done = clear(plan(surveyed("inductor", recorded), everything=True))
    assert "attn-doctor/manifest.json" in done.removed.files
    assert [path.name for path in recorded.rglob("*") if path.is_file()] == ["lock.1"]


@pytest.mark.posix
@pytest.mark.parametrize("everything", [True, False])
def test_a_cache_that_others_can_write_is_refused(
    tmp_path: Path, make: Any, everything: bool
) -> None:
    root = make.inductor(tmp_path / "r")
    root.chmod(0o777)
    found = plan(surveyed("inductor", root), everything=everything)
    assert found.refused.startswith(f"{root} is not used: ")
    assert "--allow-foreign" in found.refused
    assert (found.kind, found.root, found.files) == ("inductor", str(root), ())


def test_a_refused_plan_deletes_nothing(recorded: Path) -> None:
    found = replace(only_triton(recorded), refused="in use")
    before = {path: path.stat().st_mtime_ns for path in recorded.rglob("*")}
    done = clear(found, "20260101-000000-abcd")
    assert (done.plan, done.removed.files, done.removed.kept, done.trash) == (found, (), {}, "")
    assert {path: path.stat().st_mtime_ns for path in recorded.rglob("*")} == before


def test_without_its_lock_nothing_is_deleted(recorded: Path) -> None:
    found = only_triton(recorded)
    (recorded / "attn-doctor").rename(recorded / "aside")
    (recorded / "attn-doctor").write_bytes(b"a file")
    done = clear(found)
    assert done.plan == replace(found, refused=done.plan.refused)
    assert done.plan.refused.startswith("its lock cannot be taken: ")
    assert not done.plan.refused.endswith(": None")
    assert done.removed.files == ()
    assert all((recorded / path).exists() for path in found.files)


@pytest.mark.posix
def test_a_clear_waits_for_no_build(recorded: Path) -> None:
    from attn_doctor.record.lock import Lock

    found = plan(surveyed("inductor", recorded), everything=True)
    with Lock(recorded):
        done = clear(found)
        assert plan(surveyed("inductor", recorded), everything=True).refused.startswith("in use: ")
    assert done.plan.refused == "in use: a build has begun just now"
    assert done.removed.files == ()


@pytest.mark.parametrize("trash", ["", "20260101-000000-abcd"])
def test_a_lock_that_another_process_has_open_stays(
    tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch, trash: str
) -> None:
    root = make.inductor(tmp_path)
    found = plan(surveyed("inductor", root), everything=True)
    lock = f"locks/{make.CODE}.lock"
    assert lock in found.files
    seen = Holders({str(root / lock): Holder(7, "python train.py")})
    monkeypatch.setattr(removal, "holders", lambda _: seen)
    done = clear(found, trash)
    assert done.removed.kept == {lock: "process 7 (python train.py) has it open"}
    assert (root / lock).exists()


def test_locks_go_for_good_and_never_into_the_trash(tmp_path: Path, make: Any) -> None:
    root = make.inductor(tmp_path)
    clear(plan(surveyed("inductor", root), everything=True), "20260101-000000-abcd")
    (held,) = trashed(str(root))
    assert not [path for path in held.sizes if path.endswith(".lock")]
    assert not (root / "locks").exists()


@pytest.mark.posix
def test_a_file_that_is_written_now_stays(tmp_path: Path, make: Any) -> None:
    root = make.inductor(tmp_path)
    graph = root / "fxgraph" / make.FX[1:3] / make.FX
    now = make.write(graph / f".{os.getpid()}.1.tmp")
    ended = make.write(graph / ".999999999.1.tmp")
    found = plan(surveyed("inductor", root), everything=True)
    assert str(ended.relative_to(root)) in found.files
    assert str(now.relative_to(root)) not in found.files
    assert f"{now.relative_to(root)}: a process may be writing it" in found.doubts


# The trash


def test_the_record_comes_back_with_the_kernels(recorded: Path) -> None:
    before = store.load(recorded)
    found = only_triton(recorded)
    done = clear(found, "20260101-000000-abcd")
    assert done.plan == found
    assert done.trash == str(recorded / ".attn-doctor-trash" / "20260101-000000-abcd")
    (held,) = trashed(str(recorded))
    at = datetime.strptime(held.clearing.at, "%Y-%m-%dT%H:%M:%S%z")
    assert abs(datetime.now(timezone.utc) - at) < timedelta(minutes=10)
    assert (held.id, held.clearing.kind) == ("20260101-000000-abcd", "inductor")
    assert held.bytes == sum(held.sizes.values()) > 4096
    assert restore(held).kept == {}
    assert store.load(recorded) == before
    assert trashed(str(recorded)) == ()


def test_a_kernel_that_was_built_since_keeps_its_record(recorded: Path) -> None:
    clear(only_triton(recorded), "20260101-000000-abcd")
    manifest = store.load(recorded)
    assert manifest is not None
    newer = entry({"other": 1})
    store.save(recorded, replace(manifest, entries={**manifest.entries, "kernel": newer}))
    restore(trashed(str(recorded))[0])
    after = store.load(recorded)
    assert after is not None
    assert after.entries["kernel"] == newer


def test_a_kernel_of_which_a_file_is_gone_is_not_noted(recorded: Path, make: Any) -> None:
    clear(only_triton(recorded), "20260101-000000-abcd")
    (held,) = trashed(str(recorded))
    number = held.clearing.files[f"triton/0/{make.KEY}/k.cubin"]
    (recorded / ".attn-doctor-trash" / held.id / str(number)).unlink()
    restore(trashed(str(recorded))[0])
    after = store.load(recorded)
    assert after is not None
    assert after.entries["kernel"].state == "cleared"
    assert "kernel" not in after.warmups


def test_emptying_frees_the_space(recorded: Path) -> None:
    clear(only_triton(recorded), "20260101-000000-abcd")
    (held,) = trashed(str(recorded))
    done = empty(held)
    assert (set(done.files), done.bytes, done.kept) == (set(held.sizes), held.bytes, {})
    assert not (recorded / ".attn-doctor-trash").exists()


def test_a_clearing_that_took_nothing_leaves_no_trash(tmp_path: Path, make: Any) -> None:
    folder = make.kernel(tmp_path)
    found = plan(surveyed("triton", tmp_path), everything=True)
    for path in folder.iterdir():
        path.write_bytes(b"written since")
    done = clear(found, "20260101-000000-abcd")
    assert (done.removed.files, done.trash) == ((), "")
    assert not (tmp_path / ".attn-doctor-trash").exists()


def test_an_id_is_never_used_twice(tmp_path: Path, make: Any) -> None:
    make.kernel(tmp_path)
    clear(plan(surveyed("triton", tmp_path), everything=True), "one")
    make.kernel(tmp_path, make.OTHER)
    done = clear(plan(surveyed("triton", tmp_path), everything=True), "one")
    assert done.removed.files == ()
    assert {why.partition(":")[0] for why in done.removed.kept.values()} == {
        "the trash cannot be made"
    }
    assert (tmp_path / make.OTHER).exists()


def test_what_another_file_replaced_stays_in_the_trash(recorded: Path, make: Any) -> None:
    clear(only_triton(recorded), "20260101-000000-abcd")
    (held,) = trashed(str(recorded))
    path = f"triton/0/{make.KEY}/k.ttir"
    newer = make.write(recorded / path, b"newer")
    done = restore(held)
    assert done.trashed == held
    assert done.kept == {path: "another file is there now"}
    assert set(done.files) == {*held.sizes} - {path}
    assert done.bytes == held.bytes - held.sizes[path]
    assert newer.read_bytes() == b"newer"
    (left,) = trashed(str(recorded))
    assert left.sizes == {path: held.sizes[path]}
    newer.unlink()
    assert restore(left).files == (path,)
    assert (recorded / path).read_bytes() == b"module {}"


@pytest.mark.symlinks
def test_a_trash_behind_a_link_is_neither_restored_nor_emptied(
    recorded: Path, tmp_path: Path
) -> None:
    clear(only_triton(recorded), "20260101-000000-abcd")
    (held,) = trashed(str(recorded))
    recorded.rename(tmp_path / "real")
    recorded.symlink_to(tmp_path / "real")
    shown, gone = restore(replace(held)), empty(held)
    assert shown.trashed == held
    assert shown.kept.keys() == gone.kept.keys() == held.sizes.keys()
    for why in (*shown.kept.values(), *gone.kept.values()):
        assert "symbolic link" in why
    assert (shown.files, gone.files) == ((), ())
    assert [one.sizes for one in trashed(str(tmp_path / "real"))] == [held.sizes]


def test_what_cannot_be_emptied_is_named_and_stays(
    recorded: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clear(only_triton(recorded), "20260101-000000-abcd")
    (held,) = trashed(str(recorded))
    path = f"triton/0/{make.KEY}/k.cubin"
    number, unlink = str(held.clearing.files[path]), os.unlink

    def fail(name: str, **more: Any) -> None:
        if os.path.basename(name) == number:
            raise PermissionError(13, "Permission denied")
        unlink(name, **more)

    monkeypatch.setattr(os, "unlink", fail)
    done = empty(held)
    assert done.kept == {path: "Permission denied"}
    assert (set(done.files), done.bytes) == (
        {*held.sizes} - {path},
        held.bytes - held.sizes[path],
    )
    monkeypatch.undo()
    (left,) = trashed(str(recorded))
    assert set(empty(left).files) == {path}


@pytest.mark.parametrize("list_", [b"", b"[]", b"{", b"\xff", b'{"kind": 1}', b"[" * 100_000])
def test_a_list_that_cannot_be_read_is_left_out(recorded: Path, make: Any, list_: bytes) -> None:
    clear(only_triton(recorded), "20260101-000000-abcd")
    make.write(recorded / ".attn-doctor-trash" / "20270101-000000-abcd" / "list.json", list_)
    assert [one.id for one in trashed(str(recorded))] == ["20260101-000000-abcd"]


@root_only
def test_a_root_that_was_given_away_meanwhile_is_not_opened(
    tmp_path: Path, make: Any, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "paths":
        pytest.skip("Windows has no owner as a number, so that folders are not compared")
    kept = make.write(tmp_path / "r" / "one")
    os.chown(tmp_path / "r", 65534, 65534)
    monkeypatch.setattr(removal, "obstacle", lambda _: "")
    before = len(os.listdir("/proc/self/fd"))
    why = remove(str(tmp_path / "r"), ["one"]).kept["one"]
    assert why.startswith(f"{tmp_path / 'r'} belongs to another user (")
    assert kept.exists()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_list_that_cannot_be_written_leaves_no_trash(
    tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = plan(surveyed("inductor", make.inductor(tmp_path)), everything=True)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        done = clear(found, "20260101-000000-abcd")
    assert (done.trash, done.removed.files) == ("", ())
    assert set(done.removed.kept.values()) == {
        "the trash cannot be made: No space left on device; --no-trash deletes without one"
    }
    assert not (tmp_path / ".attn-doctor-trash").exists()
    assert all((tmp_path / path).exists() for path in found.files)


# Locks, names and modes


def a_lock(tmp_path: Path, make: Any) -> tuple[Plan, Path]:
    """The plan to clear a whole cache, and a lock in it."""
    root = make.inductor(tmp_path)
    return plan(surveyed("inductor", root), everything=True), root / "locks" / f"{make.CODE}.lock"


def why_kept(found: Plan, lock: Path) -> str:
    """Why a clear keeps a lock. No process is seen that has it open."""
    assert lock.relative_to(found.root).as_posix() in found.locks
    return clear(found).removed.kept[lock.relative_to(found.root).as_posix()]


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of other processes cannot be seen, as in another container."""
    monkeypatch.setattr(removal, "holders", lambda _: Holders())


@pytest.mark.posix
def test_a_lock_that_is_taken_after_the_plan_stays(tmp_path: Path, make: Any, unseen: None) -> None:
    import fcntl

    found, lock = a_lock(tmp_path, make)
    with lock.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert why_kept(found, lock) == "a process holds it"
    assert lock.exists()


def test_a_lock_that_another_file_replaced_stays(tmp_path: Path, make: Any, unseen: None) -> None:
    found, lock = a_lock(tmp_path, make)
    make.write(tmp_path / "new").replace(lock)
    assert why_kept(found, lock) == "another file replaced it after it was listed"
    assert lock.exists()


@pytest.mark.symlinks
def test_a_lock_that_became_a_link_stays(tmp_path: Path, make: Any, unseen: None) -> None:
    found, lock = a_lock(tmp_path / "r", make)
    lock.replace(tmp_path / "victim")
    lock.symlink_to(tmp_path / "victim")
    assert why_kept(found, lock) == "it is a symbolic link"
    assert (tmp_path / "victim").exists()


@pytest.mark.posix
@pytest.mark.symlinks
def test_a_lock_that_becomes_a_link_while_it_is_checked_is_not_opened(
    tmp_path: Path, make: Any, unseen: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, lock = a_lock(tmp_path / "r", make)
    check = removal._check

    def swap(status: os.stat_result, *more: Any, **options: Any) -> None:
        check(status, *more, **options)
        if lock.exists() and status.st_ino == lock.stat().st_ino and not lock.is_symlink():
            lock.replace(tmp_path / "victim")
            lock.symlink_to(tmp_path / "victim")

    monkeypatch.setattr(removal, "_check", swap)
    assert why_kept(found, lock) == os.strerror(errno.ELOOP)
    assert (tmp_path / "victim").exists()


def test_a_name_with_nul_is_kept(tmp_path: Path) -> None:
    assert remove(str(tmp_path), ["a\0b"]).kept == {"a\0b": "its path leads out of the cache"}


def test_an_error_without_a_text_has_its_kind(
    tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make.write(tmp_path / "one")

    def fail(*_: Any, **__: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "unlink", fail)
    assert remove(str(tmp_path), ["one"]).kept == {"one": "PermissionError"}


@pytest.mark.posix
def test_a_trash_is_for_its_owner_and_folders_come_back_as_they_were(
    tmp_path: Path, make: Any
) -> None:
    folder = make.kernel(tmp_path)
    modes = {path.parent: path.parent.stat().st_mode for path in folder.iterdir()}
    clear(plan(surveyed("triton", tmp_path), everything=True), "one")
    assert not folder.exists()
    for trash in (tmp_path / ".attn-doctor-trash", tmp_path / ".attn-doctor-trash" / "one"):
        assert stat.S_IMODE(trash.stat().st_mode) == 0o700
    assert stat.S_IMODE((trash / "list.json").stat().st_mode) == 0o600
    restore(trashed(str(tmp_path))[0])
    assert {path: path.stat().st_mode for path in modes} == modes
    assert not (tmp_path / "attn-doctor").exists()


def test_a_file_at_the_top_of_a_cache_comes_back(tmp_path: Path, make: Any) -> None:
    kernel = make.small_kernel(tmp_path)
    clear(plan(surveyed("jiterator", tmp_path), everything=True), "one")
    assert not kernel.exists()
    assert restore(trashed(str(tmp_path))[0]).files == (kernel.name,)
    assert kernel.exists()


@pytest.mark.symlinks
@pytest.mark.parametrize("place", ["a", "a/b"])
def test_no_folder_above_a_file_may_become_a_link(tmp_path: Path, make: Any, place: str) -> None:
    root, outside = tmp_path / "r", tmp_path / "outside"
    make.write(root / "a" / "b" / "c" / "one")
    (root / place).replace(outside)
    (root / place).symlink_to(outside)
    done = remove(str(root), ["a/b/c/one"])
    assert done.files == ()
    assert done.kept["a/b/c/one"].partition(" is ")[0].endswith(place)
    assert [path.name for path in outside.rglob("one")] == ["one"]


@pytest.mark.symlinks
def test_a_root_that_became_a_link_is_not_opened(
    tmp_path: Path, make: Any, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "paths":
        pytest.skip("checks of paths leave a race")
    kept = make.write(tmp_path / "real" / "r" / "one")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setattr(removal, "obstacle", lambda _: "")
    assert remove(str(tmp_path / "link" / "r"), ["one"]).kept.keys() == {"one"}
    assert kept.exists()


def test_another_file_system_is_not_entered(
    tmp_path: Path, make: Any, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "paths":
        pytest.skip("the files themselves are compared there")
    kept = make.write(tmp_path / "a" / "one")
    inode, fstat = (tmp_path / "a").stat().st_ino, os.fstat

    def mounted(handle: int) -> Any:
        found = fstat(handle)
        if found.st_ino != inode:
            return found
        return SimpleNamespace(st_dev=found.st_dev + 1, st_uid=found.st_uid, st_mode=found.st_mode)

    monkeypatch.setattr(os, "fstat", mounted)
    assert remove(str(tmp_path), ["a/one"]).kept == {"a/one": "a is another file system"}
    assert kept.exists()


@pytest.mark.parametrize(("attributes", "removed"), [(0x10, True), (0x11, True), (0x410, False)])
def test_a_junction_of_windows_is_not_entered(
    tmp_path: Path,
    make: Any,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    attributes: int,
    removed: bool,
) -> None:
    if way == "handles":
        pytest.skip("Windows has no handles of folders")
    make.write(tmp_path / "a" / "one")
    lstat = os.lstat

    def with_attributes(path: str) -> Any:
        found = lstat(path)
        names = ("st_mode", "st_uid", "st_dev")
        values = {name: getattr(found, name) for name in names}
        return SimpleNamespace(**values, st_file_attributes=attributes)

    monkeypatch.setattr(os, "lstat", with_attributes)
    done = remove(str(tmp_path), ["a/one"])
    assert (done.files == ("a/one",)) is removed
    assert done.kept == ({} if removed else {"a/one": f"{tmp_path / 'a'} is a link"})


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files in /proc")
def test_many_folders_need_few_handles(
    tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{letter}/{number}/one" for letter in "ab" for number in range(40)]
    for name in names:
        make.write(tmp_path / name)
    rename, counts = os.rename, [len(os.listdir("/proc/self/fd"))]

    def counted(*names: Any, **more: Any) -> None:
        counts.append(len(os.listdir("/proc/self/fd")))
        rename(*names, **more)

    monkeypatch.setattr(os, "rename", counted)
    done = remove(str(tmp_path), names, trash=(".attn-doctor-trash/one", b"{}"))
    assert (done.kept, len(done.files), len(counts)) == ({}, 80, 81)
    assert max(counts) - counts[0] < 10


@pytest.mark.symlinks
def test_downloads_come_back_with_their_links(tmp_path: Path, make: Any) -> None:
    make.hub(tmp_path)
    before = {path: os.lstat(path).st_size for path in tmp_path.rglob("*") if not path.is_dir()}
    clear(plan(surveyed("hub", tmp_path), everything=True), "one")
    (held,) = trashed(str(tmp_path))
    done = restore(held)
    assert {tmp_path / path for path in done.files} == before.keys()
    assert done.bytes == sum(before.values()) == held.bytes
    links = [path for path in before if path.is_symlink()]
    assert links
    assert all(path.exists() for path in links)


def test_a_trash_without_its_list_goes_too(recorded: Path) -> None:
    clear(only_triton(recorded), "one")
    (held,) = trashed(str(recorded))
    (recorded / ".attn-doctor-trash" / "one" / "list.json").unlink()
    assert restore(held).kept == {}
    assert [path.name for path in (recorded / ".attn-doctor-trash").rglob("*")] in ([], ["one"])


def test_later_clearings_sort_behind_earlier_ones() -> None:
    first, second = new_id(), new_id()
    assert first[:22] <= second[:22]
    now = datetime.now(timezone.utc)
    at = datetime.strptime(first[:15], "%Y%m%d-%H%M%S").replace(tzinfo=timezone.utc)
    assert abs(now - at) < timedelta(minutes=10)
    assert re.fullmatch(r"[0-9]{8}-[0-9]{12}-[0-9a-f]{4}", first)


@pytest.mark.parametrize("kind", ["entries", "warmups"])
def test_a_record_of_kernels_or_warm_ups_alone(recorded: Path, kind: str) -> None:
    """What was cleared is noted, and comes back with the files."""
    whole = store.load(recorded)
    assert whole is not None
    before = replace(whole, **{"warmups" if kind == "entries" else "entries": {}})
    store.save(recorded, before)
    clear(only_triton(recorded), "one")
    noted = store.load(recorded)
    assert noted is not None
    if kind == "entries":
        assert noted.entries["kernel"].state == "cleared"
    else:
        assert noted.warmups.keys() == {"graph"}
    restore(trashed(str(recorded))[0])
    assert store.load(recorded) == before


def test_kernels_that_did_not_come_back_are_not_noted(recorded: Path, make: Any) -> None:
    found = only_triton(recorded)
    clear(found, "one")
    for path in found.files:
        make.write(recorded / path, b"of another program")
    assert restore(trashed(str(recorded))[0]).files == ()
    after = store.load(recorded)
    assert after is not None
    assert after.entries["kernel"].state == "cleared"


@pytest.mark.symlinks
def test_a_trash_of_links_is_emptied(tmp_path: Path, make: Any) -> None:
    make.hub(tmp_path)
    clear(plan(surveyed("hub", tmp_path), everything=True), "one")
    (held,) = trashed(str(tmp_path))
    assert empty(held).kept == {}
    assert not (tmp_path / ".attn-doctor-trash").exists()


def test_a_folder_in_the_trash_is_not_deleted(recorded: Path, make: Any) -> None:
    clear(only_triton(recorded), "one")
    (held,) = trashed(str(recorded))
    path = f"triton/0/{make.KEY}/k.cubin"
    place = recorded / ".attn-doctor-trash" / "one" / str(held.clearing.files[path])
    place.unlink()
    mine = make.write(place / "mine")
    assert empty(held).kept == {path: "it is not a regular file"}
    assert mine.exists()


def test_the_newest_clearing_is_the_first(tmp_path: Path, make: Any) -> None:
    for number in (2, 1, 3):
        make.kernel(tmp_path)
        clear(plan(surveyed("triton", tmp_path), everything=True), f"2026010{number}")
    assert [one.id for one in trashed(str(tmp_path))] == ["20260103", "20260102", "20260101"]


@pytest.mark.posix
def test_a_trash_that_others_can_write_is_refused(recorded: Path) -> None:
    clear(only_triton(recorded), "one")
    recorded.chmod(0o777)
    with pytest.raises(OwnershipError):
        trashed(str(recorded))


@pytest.mark.symlinks
def test_a_list_that_is_a_link_is_left_out(recorded: Path) -> None:
    clear(only_triton(recorded), "one")
    list_ = recorded / ".attn-doctor-trash" / "one" / "list.json"
    list_.replace(recorded / "list")
    list_.symlink_to(recorded / "list")
    assert trashed(str(recorded)) == ()


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the time zone cannot be changed")
def test_times_do_not_depend_on_the_zone(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XXX-14")
    time.tzset()
    try:
        clear(only_triton(recorded), id := new_id())
    finally:
        monkeypatch.undo()
        time.tzset()
    (held,) = trashed(str(recorded))
    at = datetime.strptime(held.clearing.at, "%Y-%m-%dT%H:%M:%S%z")
    named = datetime.strptime(id[:15], "%Y%m%d-%H%M%S").replace(tzinfo=timezone.utc)
    for one in (at, named):
        assert abs(datetime.now(timezone.utc) - one) < timedelta(minutes=10)
