"""`cache clear` and its trash against folders that were made to lose something of the user's."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks.means import Attack, fill
from tests.command import run as run_here
from tests.kernels.conftest import KEY, Maker


@pytest.fixture
def make() -> Maker:
    return Maker()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """An empty folder."""
    folder = Path(os.path.realpath(tmp_path)) / "cache"
    folder.mkdir()
    return folder


def clear(cache: Path, *more: str, kind: str = "triton") -> None:
    """Clear one cache, in this process, which is quicker."""
    words = ("cache", "clear", "--kind", kind, "--cache-dir", str(cache), "--yes", *more)
    done = run_here(*words)
    assert done.returncode in (0, 1), done.stderr


def tree(folder: Path) -> dict[str, str]:
    """Path → content or target, of everything in a folder but the trash."""
    return {
        path.relative_to(folder).as_posix(): (
            f"-> {os.readlink(path)}" if path.is_symlink() else path.read_text(errors="replace")
        )
        for path in sorted(folder.rglob("*"))
        if (path.is_symlink() or path.is_file()) and ".attn-doctor-trash" not in path.parts
    }


@pytest.mark.parametrize(
    "name",
    [
        "my-experiments-with-flex-attention-2026-final",
        "a" * 43,
        hashlib.sha256(b"content").hexdigest(),
        "A" * 52,
        "results_of_the_run_with_a_long_name_00000000",
    ],
)
@pytest.mark.parametrize(
    "files",
    [
        {"model.json": '{"layers": 12}', "kernel.c": "int main;", "lib.so": "mine"},
        {"config.json": "{}", "__grp__config.json": '["mine"]'},
        {"thesis.source": "text", "data.o": "x", "results.json": "[1, 2, 3]"},
    ],
    ids=["project", "group", "thesis"],
)
def test_a_users_folder_with_a_name_of_a_keys_length_stays(
    cache: Path, make: Maker, name: str, files: dict[str, str]
) -> None:
    make.kernel(cache)
    for file, text in files.items():
        make.write(cache / name / file, text)
    before = {path: text for path, text in tree(cache).items() if path.startswith(name)}
    clear(cache)
    assert tree(cache) == before


def test_a_users_file_inside_a_kernels_folder_stays(cache: Path, make: Maker) -> None:
    folder = make.kernel(cache)
    make.write(folder / "notes.json", '{"mine": true}')
    make.write(folder / "my_fork.c", "int main;")
    clear(cache)
    assert set(tree(cache)) == {f"{folder.name}/notes.json", f"{folder.name}/my_fork.c"}


def test_restoring_gives_back_every_byte(doctor: Attack, cache: Path, make: Maker) -> None:
    make.inductor(cache)
    make.write(cache / "mine.txt")
    before = tree(cache)
    del before[f"locks/{make.CODE}.lock"]
    clear(cache, kind="inductor")
    assert tree(cache) == {"mine.txt": "x"}
    run = doctor("cache", "restore", "--cache-dir", str(cache), "--json").answered(0)
    assert json.loads(run.stdout)["exit_code"] == 0
    assert tree(cache) == before
    assert not (cache / ".attn-doctor-trash").exists()


def test_restoring_overwrites_nothing(doctor: Attack, cache: Path, make: Maker) -> None:
    folder = make.kernel(cache)
    old = (folder / "k.ttir").read_text()
    clear(cache)
    make.write(folder / "k.ttir", "newer")
    run = doctor("cache", "restore", "--cache-dir", str(cache)).answered(1)
    assert "another file is there now" in run.text
    assert (folder / "k.ttir").read_text() == "newer"
    assert (folder / "k.cubin").exists()
    (folder / "k.ttir").unlink()
    doctor("cache", "restore", "--cache-dir", str(cache)).answered(0)
    assert (folder / "k.ttir").read_text() == old


@pytest.mark.attack
def test_several_clears_come_back_one_after_the_other(
    doctor: Attack, cache: Path, make: Maker
) -> None:
    make.kernel(cache)
    clear(cache)
    make.kernel(cache, make.OTHER)
    clear(cache)
    doctor("cache", "restore", "--cache-dir", str(cache)).answered(0)
    assert {path.split("/")[0] for path in tree(cache)} == {make.OTHER}
    doctor("cache", "restore", "--cache-dir", str(cache)).answered(0)
    assert {path.split("/")[0] for path in tree(cache)} == {make.OTHER, KEY}
    assert doctor("cache", "restore").answered(0).stdout == "The trash is empty.\n"


def test_emptying_the_trash_deletes_what_was_cleared_and_nothing_else(
    doctor: Attack, cache: Path, make: Maker
) -> None:
    make.kernel(cache)
    clear(cache)
    (held,) = (cache / ".attn-doctor-trash").iterdir()
    make.write(held / "mine.txt")
    doctor("cache", "empty-trash", "--cache-dir", str(cache)).answered(2)
    assert len(list(held.iterdir())) == 6
    run = doctor("cache", "empty-trash", "--cache-dir", str(cache), "--yes").answered(0)
    assert "4 files deleted" in run.text
    assert [path.name for path in held.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    "path",
    [
        "../victim",
        *(
            pytest.param(one, marks=pytest.mark.attack)
            for one in ("/etc/attn-doctor-was-here", "a/../../victim", "", "x\0y", "link/victim")
        ),
    ],
)
def test_a_list_in_the_trash_leads_nowhere_else(
    doctor: Attack, cache: Path, make: Maker, path: str
) -> None:
    make.kernel(cache)
    clear(cache)
    (cache / "link").symlink_to(cache.parent)
    (listed,) = (cache / ".attn-doctor-trash").glob("*/list.json")
    data = json.loads(listed.read_text())
    data["files"] = {path: 0, f"{KEY}/ok": 1}
    listed.write_text(json.dumps(data))
    doctor("cache", "restore", "--cache-dir", str(cache)).answered(0, 1)
    assert not (cache.parent / "victim").exists()
    assert not Path("/etc/attn-doctor-was-here").exists()
    assert (cache / KEY / "ok").exists()


@pytest.mark.attack
@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"kind": 3}', "[" * 100_000, '{"files": {"a": "b"}}', "\xff", "1" * 9999],
)
def test_a_damaged_list_is_left_alone(doctor: Attack, cache: Path, make: Maker, text: str) -> None:
    make.kernel(cache)
    clear(cache)
    (listed,) = (cache / ".attn-doctor-trash").glob("*/list.json")
    listed.write_text(text)
    for command in (["restore"], ["empty-trash", "--yes"], ["status"]):
        doctor("cache", *command, "--kind", "triton", "--cache-dir", str(cache)).answered(0, 1, 2)
    assert len(list(listed.parent.iterdir())) == 5


@pytest.mark.symlinks
def test_a_link_in_the_place_of_the_trash_is_not_followed(cache: Path, make: Maker) -> None:
    outside = cache.parent / "outside"
    outside.mkdir()
    make.write(outside / "0", "precious")
    folder = make.kernel(cache)
    (cache / ".attn-doctor-trash").symlink_to(outside)
    clear(cache)
    assert tree(outside) == {"0": "precious"}
    assert (folder / "k.cubin").exists()


def test_a_full_disk_keeps_everything_and_names_the_option(
    doctor: Attack, full_disk: Path, make: Maker
) -> None:
    filler = full_disk / "filler"
    os.truncate(filler, filler.stat().st_size - 20480)
    make.kernel(full_disk)
    fill(full_disk)
    words = ("cache", "clear", "--kind", "triton", "--cache-dir", str(full_disk), "--yes")
    run = doctor(*words).answered(1)
    assert "--no-trash" in run.text
    assert (full_disk / KEY / "k.cubin").exists()
    assert not (full_disk / ".attn-doctor-trash").exists()
    doctor(*words, "--no-trash").answered(0)
    assert not (full_disk / KEY).exists()


HOLD = (
    "import fcntl, os, sys, time\n"
    "handle = os.open(sys.argv[1], os.O_RDWR)\n"
    "fcntl.flock(handle, fcntl.LOCK_EX)\n"
    "print('held', flush=True)\n"
    "time.sleep(60)\n"
)


@pytest.mark.posix
def test_a_lock_that_is_taken_after_the_plan_stays(
    cache: Path, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is tried again at the moment of its removal, in the kernel."""
    from attn_doctor.facts import Facts
    from attn_doctor.kernels.caches.deletion import clear, plan
    from attn_doctor.kernels.caches.locks import Holders
    from attn_doctor.kernels.caches.survey import CacheLocation, survey

    make.inductor(cache)
    lock = cache / "locks" / f"{make.CODE}.lock"
    planned = plan(survey(CacheLocation("inductor", str(cache), "named"), Facts()), everything=True)
    assert f"locks/{lock.name}" in planned.files
    # A process whose files we may not see, as that of another container.
    monkeypatch.setattr("attn_doctor.kernels.caches.removal.holders", lambda _: Holders())
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        done = clear(planned)
        child.kill()
    assert done.removed.kept == {f"locks/{lock.name}": "a process holds it"}
    assert lock.exists()


@pytest.mark.attack
def test_hard_links_sparse_files_and_odd_names_come_back(
    doctor: Attack, cache: Path, make: Maker
) -> None:
    folder = make.kernel(cache, name="k")
    precious = make.write(cache.parent / "precious", "mine")
    os.link(precious, folder / "k.llir")
    os.truncate(folder / "k.cubin", 1 << 40)
    for name in ("\n::error::x.json", "\x1b[31m.json", "k\udcff.json", "K.json"):
        (folder / os.fsencode(name).decode("utf-8", "surrogateescape")).write_text("{}")
    before = sorted(os.listdir(os.fsencode(folder)))
    clear(cache)
    assert precious.read_text() == "mine"
    doctor("cache", "restore", "--cache-dir", str(cache)).answered(0)
    assert sorted(os.listdir(os.fsencode(folder))) == before
    assert (folder / "k.cubin").stat().st_size == 1 << 40


@pytest.mark.attack
@pytest.mark.parametrize("trash", ["20260101-000000-abcd", ""])
def test_swapped_folders_lose_nothing_outside(cache: Path, make: Maker, trash: str) -> None:
    """Another process swaps folders of the cache for links while its files are cleared."""
    from attn_doctor.facts import Facts
    from attn_doctor.kernels.caches.deletion import clear, plan
    from attn_doctor.kernels.caches.survey import CacheLocation, survey

    outside = cache.parent / "outside"
    names = [f"k.{end}" for end in ("cubin", "ttir", "json")]
    for name in (*names, "__grp__k.json", "0", "1", "2", "3", "list.json"):
        make.write(outside / name, "precious")
    stop = threading.Event()

    def swap() -> None:
        place, away = cache / KEY, cache / "away"
        bin, bin_away = cache / ".attn-doctor-trash", cache / "bin-away"
        while not stop.is_set():
            for one, other in ((place, away), (bin, bin_away)):
                try:
                    one.rename(other)
                    one.symlink_to(outside)
                    one.unlink()
                    other.rename(one)
                except OSError:
                    continue

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for number in range(80):
            try:
                # Renaming follows no link, so the test itself writes nothing outside.
                make.kernel(cache.parent / "made").rename(cache / KEY)
                location = CacheLocation("triton", str(cache), "named")
                found = plan(survey(location, Facts()), everything=True)
            except OSError:
                continue
            clear(found, f"{trash}-{number}" if trash else "")
    finally:
        stop.set()
        thread.join()
    assert {path.read_text() for path in outside.iterdir()} == {"precious"}
    assert len(list(outside.iterdir())) == 9


@pytest.mark.attack
def test_clear_and_restore_at_once_lose_nothing(doctor: Attack, cache: Path, make: Maker) -> None:
    for number in range(40):
        make.kernel(cache, f"{number:02}".translate(str.maketrans("0189", "ABCD")) + KEY[2:])
    before = tree(cache)
    words = ["--kind", "triton", "--cache-dir", str(cache)]
    runs: list[Callable[[], object]] = [
        lambda: doctor("cache", "clear", *words, "--yes").answered(0, 1),
        lambda: doctor("cache", "clear", *words, "--yes").answered(0, 1),
        lambda: doctor("cache", "restore", *words).answered(0, 1, 2),
    ]
    threads = [threading.Thread(target=run) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(4):
        doctor("cache", "restore", *words).answered(0, 1, 2)
    assert tree(cache) == before


@pytest.mark.attack
def test_a_clear_that_is_killed_loses_nothing(cache: Path, make: Maker, home: Path) -> None:
    """Killed at any moment, every file is where it was or in a trash that can be restored."""
    from attn_doctor.kernels.caches.trash import restore, trashed

    script = (
        "import os, sys, threading, time\n"
        "from attn_doctor.facts import Facts\n"
        "from attn_doctor.kernels.caches.deletion import clear, plan\n"
        "from attn_doctor.kernels.caches.survey import CacheLocation, survey\n"
        "found = plan(survey(CacheLocation('triton', sys.argv[1], ''), Facts()), everything=True)\n"
        "wait = float(sys.argv[2])\n"
        "threading.Thread(target=lambda: (time.sleep(wait), os._exit(9)), daemon=True).start()\n"
        "clear(found, sys.argv[3])\n"
    )
    keys = [KEY[:-2] + chr(65 + n // 26) + chr(65 + n % 26) for n in range(120)]
    for key in keys:
        make.kernel(cache, key)
    before = tree(cache)
    for number in range(25):
        subprocess.run(
            [sys.executable, "-c", script, str(cache), str(0.0008 * number), f"2026-{number:03}"],
            check=False,
        )
        for one in trashed(str(cache)):
            assert restore(one).kept == {}
        assert tree(cache) == before, number
