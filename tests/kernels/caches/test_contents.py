"""Caches are recognised by their structure, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attn_doctor.facts.kinds import CacheFolder
from attn_doctor.kernels.caches.contents import KINDS, contents, guess


def parts(found: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for entry in found.entries:
        counts[entry.part] = counts.get(entry.part, 0) + 1
    return counts


def test_every_file_of_torchs_cache_is_known(tmp_path: Path, make: Any) -> None:
    found = contents("inductor", str(make.inductor(tmp_path / "r")))
    assert parts(found) == {"aotautograd": 1, "code": 1, "fxgraph": 1, "triton": 1}
    assert found.unrelated_files == ()
    assert found.locks == (f"locks/{make.CODE}.lock",)
    assert found.unrecognised == ""
    assert sum(entry.bytes for entry in found.entries) == found.bytes


def test_triton_keeps_its_kernels_directly_below_in_a_named_folder(
    tmp_path: Path, make: Any
) -> None:
    make.kernel(tmp_path / "r" / "triton")
    assert parts(contents("inductor", str(tmp_path / "r"))) == {"triton": 1}


@pytest.mark.parametrize("kind", ["triton", "extensions", "jiterator", "driver", "cute", "hub"])
def test_each_kind_knows_its_own_and_no_other(tmp_path: Path, make: Any, kind: CacheFolder) -> None:
    makers = {
        "triton": make.kernel,
        "extensions": make.extension,
        "jiterator": make.small_kernel,
        "driver": make.driver,
        "cute": lambda root: make.write(root / ("a" * 64) / "fwd" / f"{'b' * 64}.o"),
        "hub": make.hub,
    }
    makers[kind](tmp_path)
    assert len(contents(kind, str(tmp_path)).entries) == 1
    assert contents(kind, str(tmp_path)).unrelated_files == ()
    assert guess(str(tmp_path)) == kind
    for other in set(KINDS) - {kind}:
        assert contents(other, str(tmp_path)).entries == ()


@pytest.mark.parametrize("kind", KINDS)
def test_a_users_folder_is_no_cache(tmp_path: Path, make: Any, kind: CacheFolder) -> None:
    for name in ("thesis.tex", "ab/notes.py", "triton/0/readme.md", "cache/photos/1.jpg", "index"):
        make.write(tmp_path / name)
    make.write(tmp_path / "project" / "build.ninja", "# CMAKE generated file\nninja_required")
    make.write(tmp_path / "project" / "main.cpp")
    make.write(tmp_path / "fxgraph" / "ab" / "short" / "entry")
    found = contents(kind, str(tmp_path))
    assert found.entries == ()
    assert found.unrecognised
    assert guess(str(tmp_path)) is None


def test_a_users_files_in_a_cache_are_unrelated(tmp_path: Path, make: Any) -> None:
    root = make.inductor(tmp_path / "r")
    make.write(root / "model.safetensors")
    make.write(root / "triton" / "0" / make.KEY / "notes.txt")
    make.write(root / make.CODE[1:3] / "mine.py")
    found = contents("inductor", str(root))
    assert set(found.unrelated_files) == {
        "model.safetensors",
        f"triton/0/{make.KEY}/notes.txt",
        f"{make.CODE[1:3]}/mine.py",
    }


def test_models_beside_downloaded_kernels_are_unrelated(tmp_path: Path, make: Any) -> None:
    make.hub(tmp_path)
    make.write(tmp_path / "models--black-forest-labs--FLUX.1-dev" / "blobs" / "cd34")
    found = contents("hub", str(tmp_path))
    assert [entry.name for entry in found.entries] == ["models--kernels-community--flash-attn2"]
    assert found.unrelated_files == ("models--black-forest-labs--FLUX.1-dev/blobs/cd34",)


@pytest.mark.symlinks
def test_links_are_not_followed(tmp_path: Path, make: Any) -> None:
    outside = make.inductor(tmp_path / "outside")
    root = make.inductor(tmp_path / "r")
    (root / "ab").symlink_to(outside / "fxgraph")
    (root / make.CODE[1:3] / f"{make.CODE}.link.py").symlink_to(outside)
    found = contents("inductor", str(root))
    assert set(found.unrelated_files) == {"ab", f"{make.CODE[1:3]}/{make.CODE}.link.py"}
    (tmp_path / "link").symlink_to(root)
    assert contents("inductor", str(tmp_path / "link")).unrecognised == "it is a symbolic link"


def test_what_half_written_files_are_called(tmp_path: Path, make: Any) -> None:
    root = make.inductor(tmp_path / "r")
    graph = root / "fxgraph" / make.FX[1:3] / make.FX
    left = [
        make.write(graph / ".4711.140245.tmp"),
        make.write(root / "triton" / "0" / make.KEY / "tmp.pid_4711_7a42a3b3-8cbe" / "k.cubin"),
        make.write(root / "triton" / "0" / "tmp.0f1e2d3c-8cbe-45fc-9793-715529852119" / "k.json"),
    ]
    found = contents("inductor", str(root))
    assert set(found.leftovers) == {path.relative_to(root).as_posix() for path in left}
    assert found.unrelated_files == ()


def test_an_empty_folder_holds_nothing_that_could_be_lost(tmp_path: Path) -> None:
    found = contents("triton", str(tmp_path))
    assert (found.entries, found.unrecognised) == ((), "")


def test_a_build_that_was_ended_early_leaves_a_cache(tmp_path: Path) -> None:
    """Its record is all there is, and `cache verify` must take it."""
    assert guess(str(tmp_path)) is None
    (tmp_path / "attn-doctor").mkdir()
    (tmp_path / "attn-doctor" / "manifest.json").write_text("{}")
    assert guess(str(tmp_path)) == "inductor"
    assert contents("inductor", str(tmp_path)).unrecognised == ""
