"""Wheels with libraries compiled here, read from a loopback server, against the loader itself."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attn_doctor.wheels import tables
from attn_doctor.wheels.front import Front
from attn_doctor.wheels.ranges import WheelError
from attn_doctor.wheels.reading import LEAST, SHARE, read
from attn_doctor.wheels.torch_symbols import InstalledTorch, ReleasedTorch, table_text
from attn_doctor.wheels.verdict import WheelVerdict, compare
from tests.binaries.sources import library
from tests.binaries.test_oracles import local_libraries, torch_libraries
from tests.effort import at_most
from tests.wheels.range_server import Fault, Served, serving

TORCH = """
namespace c10 { struct Error { Error(int); }; Error::Error(int) {} int old(int x) { return x; } }
"""
USER = """
namespace c10 { struct Error { Error(int); }; int %s(int); }
int use() { c10::Error e(1); return c10::%s(2); }
"""
HELPER = "namespace c10 { int helped(int x) { return x; } }"


@pytest.fixture
def torch(tmp_path: Path) -> Iterator[InstalledTorch]:
    library(tmp_path / "torch/lib/libc10.so", TORCH)
    with InstalledTorch(str(tmp_path / "torch"), "2.9.1+cu128", "12.8") as found:
        yield found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "served").mkdir()
    with serving(tmp_path / "served") as found:
        yield found


def wheel(server: Served, *libraries: Path, padding: int = 0, stored: bool = False) -> str:
    """Make a wheel of libraries and `padding` random bytes; returns its address."""
    how = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(server.folder / "x-1.0-py3-none-any.whl", "w", how) as archive:
        for one in libraries:
            archive.write(one, f"x/{one.name}")
        archive.writestr("x/data.bin", random.Random(1).randbytes(padding))
    return server.url("x-1.0-py3-none-any.whl")


def user(folder: Path, function: str, *options: str) -> Path:
    return library(folder / "user.so", USER % (function, function), *options)


def loaded(path: Path, *before: Path) -> str:
    """What the loader says; empty if it loads."""
    lines = [f"ctypes.CDLL({str(one)!r}, ctypes.RTLD_GLOBAL)" for one in (*before, path)]
    ran = subprocess.run(
        [sys.executable, "-c", "import ctypes; " + "; ".join(lines)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return ran.stderr.strip().rpartition("\n")[2]


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("function", ["old", "newer"])
def test_says_what_the_loader_says(
    server: Served, torch: InstalledTorch, tmp_path: Path, function: str, stored: bool
) -> None:
    made = user(tmp_path, function)
    found = compare(read(wheel(server, made, stored=stored)), torch)
    said = loaded(made, tmp_path / "torch/lib/libc10.so")
    assert (found.loads == "yes") == (said == "")
    if function == "newer":
        assert found.missing == ("_ZN3c105newerEi",)
        assert "undefined symbol: _ZN3c105newerEi" in said
        assert found.text == (
            "does not load: torch 2.9.1+cu128 lacks `_ZN3c105newerEi` (c10::newer(…))"
        )
    else:
        assert found.symbols == 2


@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_every_style_of_hash_table(
    server: Served, torch: InstalledTorch, tmp_path: Path, style: str
) -> None:
    made = user(tmp_path, "newer", f"-Wl,--hash-style={style}")
    assert compare(read(wheel(server, made)), torch).missing == ("_ZN3c105newerEi",)


def test_symbols_of_a_library_in_the_same_wheel(
    server: Served, torch: InstalledTorch, tmp_path: Path
) -> None:
    made = user(tmp_path, "helped")
    helper = library(tmp_path / "helper.so", HELPER)
    assert compare(read(wheel(server, made)), torch).loads == "no"
    assert compare(read(wheel(server, made, helper)), torch).loads == "yes"


def test_fetches_little_of_a_large_wheel(
    server: Served, torch: InstalledTorch, tmp_path: Path
) -> None:
    address = wheel(server, user(tmp_path, "old"), padding=3_000_000)
    found = read(address)
    assert compare(found, torch).loads == "yes"
    assert found.fetched == server.sent < 0.05 * found.size


def test_reads_a_file(server: Served, torch: InstalledTorch, tmp_path: Path) -> None:
    wheel(server, user(tmp_path, "old"))
    found = read(str(server.folder / "x-1.0-py3-none-any.whl"))
    assert (found.name, found.fetched) == ("x-1.0-py3-none-any.whl", 0)
    assert compare(found, torch).loads == "yes"


def test_names_that_patchelf_moved(server: Served, torch: InstalledTorch, tmp_path: Path) -> None:
    patchelf = shutil.which("patchelf")
    if not patchelf:
        pytest.skip("needs patchelf")
    made = user(tmp_path, "newer")
    subprocess.run([patchelf, "--set-rpath", "/x" * 500, str(made)], check=True, timeout=60)
    assert compare(read(wheel(server, made)), torch).missing == ("_ZN3c105newerEi",)


@pytest.mark.parametrize(
    ("name", "torch_cuda", "fault"),
    [
        (
            "libcudart.so.12",
            "13.0",
            "it needs libcudart.so.12, and torch 2.9 was built for CUDA 13.0",
        ),
        ("libcudart.so.12", "12.8", ""),
        ("libtorch_cuda.so", "", "it needs a torch that was built for CUDA; torch 2.9 was not"),
    ],
)
def test_needed_libraries(
    server: Served, tmp_path: Path, name: str, torch_cuda: str, fault: str
) -> None:
    folder = tmp_path / "torch"
    library(folder / "lib/libc10.so", TORCH)
    needed = library(tmp_path / name, HELPER, f"-Wl,-soname,{name}")
    made = user(tmp_path, "old", "-Wl,--no-as-needed", str(needed))
    with InstalledTorch(str(folder), "2.9", torch_cuda) as torch:
        found = compare(read(wheel(server, made)), torch)
    assert (found.loads, found.reason) == ("no" if fault else "yes", fault)


def test_a_release_by_its_table(server: Served, tmp_path: Path) -> None:
    path = tmp_path / "table.tsv"
    names = {"_ZN3c105ErrorC1Ei": {"2.9.1", "2.10.0"}, "_ZN3c105newerEi": {"2.10.0"}}
    path.write_text("# made by a test\n" + table_text(["2.9.1", "2.10.0"], names))
    reading = read(wheel(server, user(tmp_path, "newer")))

    def verdict(torch: str) -> WheelVerdict:
        return compare(reading, ReleasedTorch(str(path), torch))

    assert verdict("2.10.0").loads == "yes"
    assert verdict("2.9.1").missing == ("_ZN3c105newerEi",)
    unknown = compare(
        read(wheel(server, user(tmp_path, "other"))), ReleasedTorch(str(path), "2.10.0")
    )
    assert (unknown.loads, unknown.reason) == (
        "unknown",
        "the tables do not list 1 of the symbols that it needs",
    )
    with pytest.raises(WheelError, match=r"symbols of torch 2\.8\.0 are not in the tables"):
        ReleasedTorch(str(path), "2.8.0")


def test_libraries_of_other_systems(server: Served, torch: InstalledTorch, tmp_path: Path) -> None:
    (tmp_path / "user.pyd").write_bytes(b"MZ")
    found = compare(read(wheel(server, tmp_path / "user.pyd")), torch)
    assert (found.loads, found.reason) == (
        "unknown",
        "x/user.pyd was not read: only libraries for Linux are read",
    )


def test_a_wheel_without_libraries(server: Served, torch: InstalledTorch) -> None:
    found = compare(read(wheel(server)), torch)
    assert found.text == "loads: none of its libraries needs a symbol of torch"


# Servers and files that misbehave

FAULTS: dict[Fault, str] = {
    "no ranges": "its server sends no parts of files (no HTTP ranges)",
    "cut": "the server ended its answer early",
    "other part": "its server sends another part of the file than it says",
    "no size": "its server does not say which part of the file it sends",
    "gone": "the server answered 404 Not Found",
    "slow": "its server is too slow",
    "slow head": "its server is too slow",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_server_gives_one_sentence(server: Served, tmp_path: Path, fault: Fault) -> None:
    address = wheel(server, user(tmp_path, "old"), padding=30_000)
    server.fault = fault
    with at_most(10), pytest.raises(WheelError) as caught:
        read(address, seconds=0.5 if fault.startswith("slow") else 60)
    assert str(caught.value) == FAULTS[fault]


def test_a_file_that_changes_meanwhile(server: Served, tmp_path: Path) -> None:
    address = wheel(server, user(tmp_path, "old"), padding=30_000)
    server.fault = "grows"
    (found,) = read(address).libraries
    assert found.unread == "the server sent another part of the file than it was asked for"


def test_follows_a_redirection(server: Served, torch: InstalledTorch, tmp_path: Path) -> None:
    address = wheel(server, user(tmp_path, "old"), padding=300_000)
    server.fault = "redirect"
    assert compare(read(address), torch).loads == "yes"


@pytest.mark.parametrize(
    "source", ["ftp://x/y.whl", "file:///etc/passwd", "http://127.0.0.1:9/x.whl"]
)
def test_other_addresses(source: str) -> None:
    with pytest.raises(WheelError):
        read(source)


def test_what_is_not_a_wheel(server: Served, tmp_path: Path) -> None:
    for content in (b"", b"PK", b"no wheel at all" * 100, b"PK\x05\x06" + b"\xff" * 18):
        path = server.folder / "x.whl"
        path.write_bytes(content)
        with pytest.raises(WheelError):
            read(server.url("x.whl"))
        with pytest.raises(WheelError):
            read(str(path))
    with pytest.raises(WheelError, match="No such file"):
        read(str(tmp_path / "absent.whl"))


def test_a_wheel_that_grows_when_decompressed(server: Served, tmp_path: Path) -> None:
    path = server.folder / "x.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/x.so", b"\x7fELF" + bytes(120 << 20))
    with at_most(20):
        (found,) = read(server.url("x.whl")).libraries
    assert found.unread


#: A wheel with one library, whose bytes are changed below.
MANY = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
_made: dict[str, bytes] = {}


def seed(folder: Path) -> bytes:
    if not _made:
        path = folder / "seed.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(user(folder, "old"), "x/user.so")
        _made["wheel"] = path.read_bytes()
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            archive.write(user(folder, "old"), "x/user.so")
        _made["stored"] = path.read_bytes()
    return _made["wheel"]


@MANY
@given(st.sampled_from(["wheel", "stored"]), st.data())
def test_a_damaged_wheel_is_an_answer_or_a_sentence(
    tmp_path: Path, kind: str, data: st.DataObject
) -> None:
    seed(tmp_path)
    damaged = bytearray(_made[kind])
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)) | st.just(len(damaged)))]
    path = tmp_path / "x.whl"
    path.write_bytes(bytes(damaged))
    with at_most(10):
        try:
            found = read(str(path), gpu_code=True)
        except WheelError:
            return
    assert all(one.unread or one.torch_symbols is not None for one in found.libraries)


def test_a_name_that_is_not_utf8_is_a_sentence(tmp_path: Path) -> None:
    seed(tmp_path)
    # The name before the file itself; its copy in the list at the end stays as it was.
    damaged = _made["wheel"].replace(b"x/user.so", b"x/\x90ser.so", 1)
    path = tmp_path / "x.whl"
    # Bit 11 of the flags says that the name is UTF-8.
    path.write_bytes(damaged[:6] + b"\x00\x08" + damaged[8:])
    (library,) = read(str(path)).libraries
    assert library.unread.startswith("the archive is damaged: 'utf-8' codec can't decode byte 0x90")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ELF files are Linux's")
@pytest.mark.parametrize("path", [*local_libraries(), *torch_libraries()])
def test_the_front_says_what_the_dynamic_section_says(path: str) -> None:
    with open(path, "rb") as file:
        window = Front(file, Path(path).stat().st_size)
        end = tables.front_end(window)
        try:
            table = tables.hashes(window, end)
            found = tables.needs(window, table, end)
        except tables.MovedError:
            pytest.skip("its tables are not in its front")
        whole, exported = tables.of_whole(window)
    assert {*whole.symbols} <= {*found.symbols}
    assert {*whole.libraries} <= {*found.libraries}
    assert table.exported() == exported


def test_the_limits_leave_room() -> None:
    assert 0 < SHARE <= 0.05
    assert LEAST <= 4 << 20
