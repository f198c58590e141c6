"""Packed logs are read as what they unpack to; a file that is not a log is refused."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
import lzma
import marshal
import random
import sys
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_doctor.errors import AttnDoctorError
from attn_doctor.explain import compressed
from attn_doctor.explain.log_files import CHUNK, chunks
from tests.command import run

FAILURE = b"AssertionError: Torch not compiled with CUDA enabled\n"
TEXT = "".join(f"line {number}: é, and more of it\n" for number in range(20_000)).encode()
#: Each form at its quickest; bzip2 then has blocks of 100 kB, and an early end leaves some whole.
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": partial(gzip.compress, compresslevel=1),
    "xz": partial(lzma.compress, preset=0),
    "bzip2": partial(bz2.compress, compresslevel=1),
}
if sys.version_info >= (3, 14):
    from compression import zstd

    PACK["zstd"] = zstd.compress
packed = pytest.mark.parametrize("form", PACK)


def read(path: Path) -> bytes:
    return b"".join(chunk.data for chunk in chunks(str(path)))


def refusal(path: Path) -> str:
    with pytest.raises(AttnDoctorError) as raised:
        read(path)
    return str(raised.value)


@packed
@pytest.mark.parametrize("text", [TEXT, b"", b"one line", TEXT.decode().encode("utf-16")])
def test_a_packed_log_reads_as_the_log(tmp_path: Path, form: str, text: bytes) -> None:
    plain, path = tmp_path / "log", tmp_path / "log.packed"
    plain.write_bytes(text)
    path.write_bytes(PACK[form](text))
    assert read(path) == read(plain)
    assert [chunk.first for chunk in chunks(str(path))] == [
        chunk.first for chunk in chunks(str(plain))
    ]


@packed
def test_several_streams_are_one_log(tmp_path: Path, form: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(PACK[form](TEXT) + PACK[form](b"") + PACK[form](b"last"))
    assert read(path) == TEXT + b"last"


@packed
def test_a_log_that_is_still_being_written_ends_where_it_ends(tmp_path: Path, form: str) -> None:
    data = PACK[form](random.Random(0).randbytes(300_000).hex().encode())
    path = tmp_path / "log"
    path.write_bytes(data[: len(data) // 2])
    assert 100_000 < len(read(path)) < 600_000


@packed
def test_a_damaged_one_is_named(tmp_path: Path, form: str) -> None:
    data = bytearray(PACK[form](random.Random(0).randbytes(200_000).hex().encode()))
    for place in (len(data) // 2, -6):
        data[place] ^= 0xFF
    path = tmp_path / "log"
    path.write_bytes(data)
    assert f"{path} cannot be unpacked ({form}: " in refusal(path)


@given(st.binary(max_size=300), st.sampled_from(sorted(PACK)), st.integers(0, 300))
def test_no_bytes_break_the_reader(noise: bytes, form: str, cut: int) -> None:
    data = PACK[form](b"text")[:cut] + noise
    for one in (data, PACK[form](noise)):
        with contextlib.suppress(compressed.UnreadableError):
            assert len(b"".join(compressed.pieces(io.BytesIO(one), 64))) < 1 << 20


def test_what_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed, "MOST", 1 << 30)
    path = tmp_path / "log.gz"
    # A file may have several members.
    path.write_bytes(gzip.compress(b"a\n" * (1 << 24), 1) * 33)
    assert path.stat().st_size < 10 << 20
    most = 0
    with path.open("rb") as file:
        parts = compressed.pieces(file, CHUNK)
        with pytest.raises(compressed.UnreadableError, match=r"^unpacks to more than 1 GiB; name"):
            most = max(map(len, parts))
        assert not most


def test_xz_may_not_ask_for_much_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "_MEMORY", 1 << 20)
    path = tmp_path / "log.xz"
    path.write_bytes(lzma.compress(b"x"))
    assert "cannot be unpacked (xz: Memory usage limit exceeded)" in refusal(path)


def test_a_form_that_this_python_lacks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, form, magic in (
        ("lzma", "xz", b"\xfd7zXZ\0"),
        ("compression.zstd", "zstd", b"\x28\xb5\x2f\xfd"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        path = tmp_path / form
        path.write_bytes(magic + b"x" * 100)
        assert refusal(path) == (
            f"{path} is packed with {form}, which this Python cannot unpack; unpack it with"
            f" `{form} -dk` first"
        )


def test_archives_are_refused(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(TEXT)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(log, "log")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        tar.add(log, "log")
    assert "a.zip is a zip archive; unpack it, and name the log in it" in refusal(
        tmp_path / "a.zip"
    )
    assert "a.tar.gz is a tar archive; unpack it" in refusal(tmp_path / "a.tar.gz")


@pytest.mark.parametrize("kind", ["random", "python", "bytecode", "png"])
def test_what_is_no_log_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "noise"
    data = {
        "random": lambda: random.Random(0).randbytes(1000),
        "python": lambda: Path(sys.executable).read_bytes(),
        "bytecode": lambda: marshal.dumps(compile(Path(__file__).read_text("utf-8"), "x", "exec")),
        "png": lambda: b"\x89PNG\r\n\x1a\n" + random.Random(1).randbytes(100_000),
    }[kind]()
    path.write_bytes(data)
    assert refusal(path) == f"{path} is not a log: it has bytes that no program prints as text"
    done = run("explain", "--no-probe", str(path))
    assert done.returncode == 2
    assert done.stdout == ""


@pytest.mark.parametrize(
    "text",
    [
        b"\0" * 100_000 + TEXT,  # cut while a program had it open
        b"\x1b[31mE\x1b[0m\x0f 10%\b\b\b\b20%\r" * 1000 + TEXT,
        "日本語のログ\n".encode("shift-jis") * 1000,
        b"short \x01\x02",
    ],
    ids=["hole", "terminal", "shift-jis", "short"],
)
def test_odd_text_is_still_a_log(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(text)
    assert read(path)


def test_a_packed_log_has_the_cause_of_the_log(tmp_path: Path) -> None:
    log, path = tmp_path / "log", tmp_path / "log.gz"
    log.write_bytes(TEXT + FAILURE + TEXT)
    path.write_bytes(gzip.compress(log.read_bytes()))
    plain, packed_log = (run("explain", "--no-probe", "--json", str(one)) for one in (log, path))
    assert plain.returncode == packed_log.returncode == 1
    causes = [json.loads(one.stdout)["matches"] for one in (plain, packed_log)]
    assert causes[1] == [{**one, "file": str(path)} for one in causes[0]]
    piped = run("explain", "--no-probe", "--json", "-", input=path.read_bytes())
    assert [one["rule"] for one in json.loads(piped.stdout)["matches"]] == [
        one["rule"] for one in causes[0]
    ]
