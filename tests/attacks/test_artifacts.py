"""Artifacts that try to write outside of the cache, or to fill the machine."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import tarfile
from pathlib import Path

import msgspec
import pytest

from attn_doctor.kernels.bundle.artifact import (
    HEAD,
    SCHEMA,
    Artifact,
    ArtifactError,
    Packed,
    extract,
    head,
)
from tests.attacks.means import Attack

DATA = b"code"
GOOD = Packed(bytes=len(DATA), sha256=hashlib.sha256(DATA).hexdigest())
KINDS = {
    "hard link": tarfile.LNKTYPE,
    "symbolic link": tarfile.SYMTYPE,
    "character device": tarfile.CHRTYPE,
    "block device": tarfile.BLKTYPE,
    "pipe": tarfile.FIFOTYPE,
    "folder": tarfile.DIRTYPE,
    "unknown": b"Z",
}


def artifact(path: Path, files: dict[str, Packed], members: list[tarfile.TarInfo]) -> Path:
    """An artifact whose description names `files`, and that holds `members`."""
    made = Artifact(
        schema=SCHEMA, attn_doctor="0.1.0", made="", environments={}, entries={}, files=files
    )
    described = tarfile.TarInfo(HEAD)
    text = msgspec.json.encode(made)
    described.size = len(text)
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(described, io.BytesIO(text))
        for member in members:
            tar.addfile(member, io.BytesIO(DATA))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    one = tarfile.TarInfo(name)
    one.type, one.linkname, one.size = kind, target, len(DATA) if kind == tarfile.REGTYPE else 0
    return one


@pytest.mark.parametrize("kind", KINDS)
def test_only_regular_files_are_taken(tmp_path: Path, kind: str) -> None:
    room = tmp_path / "room"
    room.mkdir()
    made = artifact(tmp_path / "a.attn", {"x": GOOD}, [member("x", KINDS[kind], "/etc/passwd")])
    with pytest.raises(ArtifactError):
        extract(made, head(made), room)
    assert not any(path.is_symlink() or path.is_file() for path in room.rglob("*"))


@pytest.mark.parametrize("name", ["../up", "/abs", "a/../../up", "./x", "x/", "x\0y"])
def test_a_name_that_is_not_described_is_refused(tmp_path: Path, name: str) -> None:
    room = tmp_path / "room"
    room.mkdir()
    made = artifact(tmp_path / "a.attn", {"x": GOOD}, [member("x"), member(name)])
    with pytest.raises(ArtifactError):
        extract(made, head(made), room)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.attn", "room"]


def test_a_pax_header_cannot_rename_a_member(tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    one = member("x")
    one.pax_headers = {"path": "../up"}
    made = artifact(tmp_path / "a.attn", {"x": GOOD}, [one])
    with pytest.raises(ArtifactError):
        extract(made, head(made), room)
    assert not (tmp_path / "up").exists()


@pytest.mark.parametrize(
    "name", ["a\nb", "\x1b[31m", "::error::x", "\u202efdp", "k" * 5000, "a/" * 2000 + "x"]
)
@pytest.mark.thorough
def test_odd_names_end_in_a_sentence(doctor: Attack, tmp_path: Path, name: str) -> None:
    made = artifact(tmp_path / "a.attn", {name: GOOD}, [member(name)])
    run = doctor("cache", "import", str(made), "--dry-run", seconds=30).answered(0, 1, 2)
    assert not {"\x1b", "\u202e"} & set(run.stdout + run.stderr)
    assert not any(line.startswith("::") for line in (run.stdout + run.stderr).splitlines())


@pytest.mark.attack
@pytest.mark.parametrize("zeros", [1 << 30, 1 << 32])
def test_a_bomb_ends(doctor: Attack, tmp_path: Path, zeros: int) -> None:
    """A description that never ends, compressed a thousand times."""
    path = tmp_path / "bomb.attn"
    block = b"\0" * (1 << 24)
    info = tarfile.TarInfo(HEAD)
    info.size = zeros
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(info.tobuf())
        for _ in range(zeros // len(block)):
            file.write(block)
    limit = ["prlimit", f"--as={3 << 29}"]
    run = doctor("cache", "import", str(path), "--dry-run", prefix=limit, seconds=30).answered(2)
    assert len(run.stderr.splitlines()) < 4


@pytest.mark.attack
def test_a_hundred_thousand_files_end(doctor: Attack, tmp_path: Path) -> None:
    files = {f"{number:x}": GOOD for number in range(100_000)}
    made = artifact(tmp_path / "a.attn", files, [member(name) for name in files])
    doctor("cache", "import", str(made), "--dry-run", seconds=60).answered(0, 1, 2)


def test_two_names_that_a_file_system_may_not_tell_apart(tmp_path: Path) -> None:
    """On macOS and Windows `A` and `a` are one file, and the second one is refused."""
    room = tmp_path / "room"
    room.mkdir()
    made = artifact(tmp_path / "a.attn", {"a": GOOD, "A": GOOD}, [member("a"), member("A")])
    with contextlib.suppress(ArtifactError):
        extract(made, head(made), room)
    assert {path.read_bytes() for path in room.iterdir()} == {DATA}
    assert len(os.listdir(room)) in (1, 2)
