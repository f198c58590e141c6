"""Cut short, corrupt, left behind: each is seen, and a sound cache is sound."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_doctor.binaries import elf
from attn_doctor.facts.kinds import CacheFolder
from attn_doctor.kernels.caches import integrity, pickles
from attn_doctor.kernels.caches.file_tree import Tree, read_tree
from attn_doctor.kernels.caches.integrity import damage


def broken(kind: CacheFolder, root: Path) -> dict[str, str]:
    return {one.path: one.what for one in damage(kind, str(root)) if not one.harmless}


def test_a_sound_cache_is_sound(tmp_path: Path, make: Any) -> None:
    assert damage("inductor", str(make.inductor(tmp_path / "r"))) == ()
    make.extension(tmp_path / "e")
    assert damage("extensions", str(tmp_path / "e")) == ()
    make.small_kernel(tmp_path / "j")
    assert damage("jiterator", str(tmp_path / "j")) == ()


@pytest.mark.parametrize(
    "name",
    [
        "fxgraph/53/{fx}/{file}",
        "aotautograd/{aot}/{file}",
        "ov/{code}.main.so",
        "triton/0/{key}/k.cubin",
        "triton/0/{key}/k.json",
        "triton/0/{key}/__grp__k.json",
    ],
)
@pytest.mark.parametrize("share", [0.0, 0.6])
def test_a_file_cut_short_is_named(tmp_path: Path, make: Any, name: str, share: float) -> None:
    root = make.inductor(tmp_path)
    path = name.format(fx=make.FX, aot=make.AOT, code=make.CODE, key=make.KEY, file=make.FILE)
    whole = (root / path).read_bytes()
    (root / path).write_bytes(whole[: int(len(whole) * share)])
    assert path in broken("inductor", root)


def test_a_pickle_that_would_run_something_is_read_and_not_run(tmp_path: Path, make: Any) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            # Not a function of os: a command that ran in this process has put its own there.
            return exec, (f"import os; os.mkdir({str(tmp_path / 'sprung')!r})",)

    root = make.inductor(tmp_path / "r")
    entry = root / "fxgraph" / make.FX[1:3] / make.FX / make.FILE
    entry.write_bytes(pickle.dumps(Trap(), 5))
    assert broken("inductor", root) == {}
    assert list(pickles.texts(entry.read_bytes()))
    assert not (tmp_path / "sprung").exists()


def test_a_cache_under_another_path_is_whole(tmp_path: Path, make: Any) -> None:
    """A container mounts it as /cache: its lists name paths that do not exist here."""
    first = make.kernel(tmp_path / "first")
    moved = tmp_path / "second" / first.name
    moved.parent.mkdir()
    first.rename(moved)
    assert broken("triton", tmp_path / "second") == {}
    make.kernel(tmp_path / "first")
    assert broken("triton", tmp_path / "second") == {}
    (moved / "k.ttir").unlink()
    (what,) = broken("triton", tmp_path / "second").values()
    assert "which does not exist" in what


def test_what_cannot_be_read_is_named_and_not_deleted(
    tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make.kernel(tmp_path)

    def fail(self: Tree, path: str, limit: int = 0) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Tree, "read", fail)
    found = damage("triton", str(tmp_path))
    assert {one.what for one in found} == {"it cannot be read: Input/output error"}
    assert {one.remove for one in found} == {()}


def test_a_kernel_whose_group_lost_a_child_goes_as_a_whole(tmp_path: Path, make: Any) -> None:
    folder = make.kernel(tmp_path)
    (folder / "k.ttir").unlink()
    (found,) = damage("triton", str(tmp_path))
    assert set(found.remove) == {f"{folder.name}/{path.name}" for path in folder.iterdir()}


@pytest.mark.posix
def test_half_written_files_are_harmless_once_their_writer_is_gone(
    tmp_path: Path, make: Any
) -> None:
    root = make.inductor(tmp_path)
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    dead, alive = int(gone.stdout), os.getpid()
    graph = root / "fxgraph" / make.FX[1:3] / make.FX
    left = make.write(graph / f".{dead}.1.tmp")
    make.write(graph / f".{alive}.1.tmp")
    nameless = make.write(root / "triton/0/tmp.0f1e2d3c-8cbe-45fc-9793-715529852119/k.json")
    (found,) = damage("inductor", str(root))
    assert found.harmless
    assert found.path == left.relative_to(root).as_posix()
    old = time.time() - 7200
    os.utime(nameless, (old, old))
    assert len(damage("inductor", str(root))) == 2


def test_a_folder_that_is_no_cache_has_no_damage(tmp_path: Path, make: Any) -> None:
    make.write(tmp_path / "empty.so", b"")
    assert damage("inductor", str(tmp_path)) == ()


def test_a_real_library_is_whole_and_every_front_of_it_is_not(real_library: Path) -> None:
    data = real_library.read_bytes()
    assert elf.fault(data[:64], len(data)) == ""
    assert "ends after" in elf.fault(data[:64], len(data) - 1)
    assert elf.fault(data[:64], len(data), cubin=True)
    assert elf.fault(data[:3], 3)
    assert elf.fault(data[:20], 20)


@given(st.recursive(st.integers() | st.text() | st.binary(), lambda e: st.lists(e) | st.tuples(e)))
def test_whole_pickles_are_whole_and_fronts_of_them_are_not(value: object) -> None:
    data = pickle.dumps(value, 5)
    assert pickles.fault(data) == ""
    assert pickles.fault(data + b".")
    for cut in {0, 1, len(data) // 2, len(data) - 1}:
        assert pickles.fault(data[:cut])


@given(st.binary(max_size=200))
def test_nothing_makes_the_readers_fail(data: bytes) -> None:
    pickles.fault(data)
    list(pickles.texts(data))
    elf.fault(data, len(data))


def test_timings_have_to_be_json(tmp_path: Path, make: Any) -> None:
    name = "c" * 51
    make.write(tmp_path / "cache" / name, json.dumps({"system": {}, "cache": {}}))
    assert broken("inductor", tmp_path) == {}
    make.write(tmp_path / "cache" / name, '{"system": {')
    assert broken("inductor", tmp_path) == {f"cache/{name}": "it is not complete JSON"}


def test_the_middle_of_a_huge_pickle_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "graph"
    for last, wrong in ((b".", ""), (b"x", "it is not a complete pickle (its end is missing)")):
        with path.open("wb") as file:
            file.write(b"\x80\x04")
            file.seek(1 << 30)
            file.write(last)
        assert integrity._pickle(read_tree(str(tmp_path)), "graph") == wrong


def test_a_pickle_of_many_instructions_is_read_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"\x80\x04" + b"N0" * 1000 + b"?."
    assert pickles.fault(data)
    monkeypatch.setattr(pickles, "_MOST", 1000)
    assert pickles.fault(data) == ""
