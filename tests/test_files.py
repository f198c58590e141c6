"""A file is replaced as a whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from attn_doctor.files import replacing, write_atomic

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")


def test_content_is_replaced_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for data in (b"old", b"new", b""):
        write_atomic(path, data, durable=bool(data))
        assert path.read_bytes() == data
    assert os.listdir(tmp_path) == ["file"]


@posix
def test_permissions(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "default", b"")
        write_atomic(tmp_path / "exact", b"", 0o606)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"default": 0o640, "exact": 0o606}


def test_a_failure_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        _interrupted(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "full").touch()
    with pytest.raises(OSError, match="folder"):
        write_atomic(tmp_path / "folder", b"data")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def _interrupted(path: Path) -> None:
    with replacing(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_atomic("file", b"data")
    assert Path("file").read_bytes() == b"data"
