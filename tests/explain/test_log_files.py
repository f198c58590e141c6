"""Blocks of whole lines, whatever wrote the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_doctor.errors import AttnDoctorError
from attn_doctor.explain.log_files import CHUNK, chunks

TEXT = "first\nCUDA error – é\nlast"


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        TEXT.encode("utf-8-sig"),
        TEXT.encode("utf-16"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16-be"),
        b"\xfe\xff" + TEXT.encode("utf-16-be"),
    ],
    ids=["utf-8", "bom", "utf-16", "le", "be", "be-bom"],
)
def test_encodings(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(data)
    assert b"".join(block.data for block in chunks(str(path))).decode() == TEXT


@pytest.mark.posix
def test_utf_16_over_many_blocks(tmp_path: Path) -> None:
    lines = [f"line {number} é 漢" for number in range(30_000)]
    path = tmp_path / "log"
    path.write_text("\n".join(lines), encoding="utf-16")
    found = list(chunks(str(path)))
    assert len(found) > 5
    assert b"".join(block.data for block in found).decode().split("\n") == lines


def test_lines_are_whole_and_numbered(tmp_path: Path) -> None:
    lines = [f"line {number} " + "x" * (number % 200) for number in range(1, 5000)]
    path = tmp_path / "log"
    path.write_text("\n".join(lines) + "\n")
    for block in chunks(str(path)):
        assert block.data.startswith(b"line %d " % block.first)
        assert block.data.endswith(b"\n")


def test_a_line_without_end_is_cut_at_a_carriage_return(tmp_path: Path) -> None:
    path = tmp_path / "log"
    part = b"step 1: 10%|#  |\r"
    path.write_bytes(part * 200_000 + b"\nafter\n")
    found = list(chunks(str(path)))
    assert max(len(block.data) for block in found) < 1 << 21
    assert found[0].data.endswith(b"\r")
    assert [block.first for block in found[:-1]] == [1] * (len(found) - 1)
    assert b"".join(block.data for block in found) == path.read_bytes()


def test_two_encodings_in_one_file(tmp_path: Path) -> None:
    # A program's own log, to which PowerShell has appended.
    path = tmp_path / "log"
    path.write_bytes(b"plain\n" * CHUNK + "No module named 'x'\r\n".encode("utf-16-le"))
    assert b"No module named 'x'" in b"".join(block.data for block in chunks(str(path)))


def test_an_empty_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"")
    assert b"".join(block.data for block in chunks(str(path))) == b""


@pytest.mark.parametrize("name", ["missing.log", "."])
def test_unreadable(tmp_path: Path, name: str) -> None:
    with pytest.raises(AttnDoctorError, match=r"cannot be read: .* directory; name a log file"):
        list(chunks(str(tmp_path / name)))
