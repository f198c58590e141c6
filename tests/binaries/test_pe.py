"""Windows' files: made here, and the launchers that setuptools and pip bring along."""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pefile
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attn_doctor.binaries import functions
from attn_doctor.binaries.binary import Binary, GpuCode, Unresolved
from attn_doctor.binaries.demangle import readable
from attn_doctor.binaries.pe import Pe
from attn_doctor.binaries.read import binary, gpu_code
from attn_doctor.binaries.window import Window

FAT = Path(__file__).parent / "fatbins" / "plain.so"


def launchers() -> list[Path]:
    """Real PE files of 64 bits for x86 that come with Python's own tools."""
    found = []
    for module, name in (("setuptools", "cli-64.exe"), ("pip._vendor.distlib", "w64.exe")):
        try:
            spec = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            continue
        if spec is not None and spec.origin:
            found.append(Path(spec.origin).parent / name)
    return [path for path in found if path.is_file()]


def test_real_files() -> None:
    paths = launchers()
    if not paths:
        pytest.skip("neither setuptools nor pip is installed")
    for path in paths:
        found = binary(str(path))
        assert (found.format, found.machine, found.damaged) == ("pe", "x86_64", "")
        assert "KERNEL32.dll" in found.needed
        assert gpu_code(str(path)) == GpuCode()


def test_needs_and_gpu_code(tmp_path: Path) -> None:
    path = pe(tmp_path / "_C.pyd", ["python312.dll", "c10.dll", "cudart64_12.dll"])
    needed = ("python312.dll", "c10.dll", "cudart64_12.dll")
    assert binary(str(path)) == Binary(format="pe", machine="x86_64", needed=needed)
    assert gpu_code(str(path)) == GpuCode(cubins={"90a": 1})


def test_no_imports(tmp_path: Path) -> None:
    assert binary(str(pe(tmp_path / "a.dll", []))).needed == ()


def test_a_list_of_dlls_without_end(tmp_path: Path) -> None:
    path = pe(tmp_path / "a.dll", ["a.dll"] * 5000)
    assert binary(str(path)).damaged == "its list of DLLs has no end"


def test_cut_short(tmp_path: Path) -> None:
    whole = pe(tmp_path / "a.dll", ["a.dll"]).read_bytes()
    for length in range(2, len(whole), 7):
        (tmp_path / "b.dll").write_bytes(whole[:length])
        assert binary(str(tmp_path / "b.dll")).format in ("pe", "")


def pe(path: Path, dlls: list[str]) -> Path:
    """A DLL with an import table, and a section of GPU code for 9.0a."""
    entry = struct.pack("<HHIQIIHHIIIQQQ", 2, 0, 64, 8, 0, 0, 8, 1, 90, 0, 0, 1 << 20, 0, 0)
    fat = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 72) + entry + bytes(8)
    names = b"".join(name.encode() + b"\0" for name in dlls)
    table = 20 * (len(dlls) + 1)
    address, place = 0x1000, 0x400
    rows, start = b"", address + table
    for name in dlls:
        rows += struct.pack("<IIIII", 0, 0, 0, start, 0)
        start += len(name) + 1
    imports = rows + bytes(20) + names
    size = len(imports)
    directories = struct.pack("<IIII", 0, 0, address if dlls else 0, table) + bytes(14 * 8)
    optional = struct.pack("<H", 0x20B).ljust(112, b"\0") + directories
    sections = struct.pack("<8sIIII16x", b".rdata", size, address, size, place)
    sections += struct.pack("<8sIIII16x", b".nv_fatb", len(fat), 1 << 24, len(fat), place + size)
    coff = struct.pack("<4sHHIIIHH", b"PE\0\0", 0x8664, 2, 0, 0, 0, len(optional), 0)
    head = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x40) + coff + optional + sections
    path.write_bytes(head.ljust(place, b"\0") + imports + fat)
    return path


#: What torchvision 0.21 takes from torch 2.6, and torch 2.9 does not have.
TO_SCALAR = "?toScalarType@TypeMeta@caffe2@@QEAA?AW4ScalarType@c10@@XZ"
TENSOR = "??0Tensor@at@@QEAA@XZ"


def linked(
    path: Path,
    imports: Mapping[str, Sequence[str | int]],
    exports: Sequence[str] = (),
    wide: bool = True,
) -> Path:
    """A DLL that takes functions by name or number from others, and offers some by name."""
    base, place = 0x1000, 0x400
    data = bytearray()

    def put(piece: bytes) -> int:
        data.extend(bytes(-len(data) % 8) + piece)
        return base + len(data) - len(piece)

    form, number = ("<Q", 1 << 63) if wide else ("<I", 1 << 31)
    rows = b""
    for dll, names in imports.items():
        entries = [
            number | name if isinstance(name, int) else put(b"\0\0" + name.encode() + b"\0")
            for name in names
        ]
        thunks = put(b"".join(struct.pack(form, one) for one in [*entries, 0]))
        rows += struct.pack("<IIIII", thunks, 0, 0, put(dll.encode() + b"\0"), thunks)
    table = put(rows + bytes(20))
    addresses = [put(name.encode() + b"\0") for name in sorted(exports, key=str.encode)]
    list_of_names = put(b"".join(struct.pack("<I", one) for one in addresses))
    count = len(exports)
    ordinals = put(b"".join(struct.pack("<H", one) for one in range(count)))
    code = put(struct.pack("<I", base) * count)
    offered = put(
        struct.pack("<IIHHIIIIIII", 0, 0, 0, 0, 0, 1, count, count, code, list_of_names, ordinals)
    )
    directories = struct.pack("<IIII", offered, 40, table, len(rows) + 20) + bytes(14 * 8)
    start = 112 if wide else 96
    optional = struct.pack("<H", 0x20B if wide else 0x10B).ljust(start - 4, b"\0")
    optional += struct.pack("<I", 16) + directories
    size = len(data)
    sections = struct.pack("<8sIIII16x", b".rdata", size, base, size, place)
    machine = 0x8664 if wide else 0x14C
    coff = struct.pack("<4sHHIIIHH", b"PE\0\0", machine, 1, 0, 0, 0, len(optional), 0x2022)
    head = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x40) + coff + optional + sections
    path.write_bytes(head.ljust(place, b"\0") + bytes(data))
    return path


NAMES = st.text("?@_$azAZ019", min_size=1, max_size=40)


@given(
    st.dictionaries(
        st.sampled_from(("c10.dll", "torch_cpu.dll", "KERNEL32.dll")),
        st.lists(NAMES | st.integers(1, 1 << 15), max_size=8),
        max_size=3,
    ),
    st.sets(NAMES, max_size=30),
    st.booleans(),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_functions_are_those_that_pefile_finds(
    tmp_path: Path, imports: dict[str, list[str | int]], exports: set[str], wide: bool
) -> None:
    path = linked(tmp_path / "a.dll", imports, sorted(exports), wide)
    oracle = pefile.PE(data=path.read_bytes())  # a path would stay open
    taken = {
        row.dll.decode(): [one.name for one in row.imports if one.name is not None]
        for row in getattr(oracle, "DIRECTORY_ENTRY_IMPORT", ())
    }
    with closing(Window(str(path))) as window:
        read = Pe(window)
        found = {dll: list(names) for dll, names in read.functions()}
        assert {dll: names for dll, names in found.items() if names} == {
            dll: names for dll, names in taken.items() if names
        }
        offered = read.exports()
        assert all(name.encode() in offered for name in exports)
        assert not any(
            f"{name}!".encode() in offered for name in exports if f"{name}!" not in exports
        )


def test_functions_that_torch_does_not_have(tmp_path: Path) -> None:
    c10 = linked(tmp_path / "c10.dll", {}, [TENSOR, "other"])
    cudart = linked(tmp_path / "cudart64_12.dll", {}, ["cudaMalloc"])
    path = linked(
        tmp_path / "_C.pyd",
        {
            "cudart64_12.dll": ["cudaMalloc", "cudaNew"],
            "C10.dll": [TENSOR, TO_SCALAR, 7],
            "KERNEL32.dll": ["CloseHandle"],
            "python3.dll": ["PyLong_AsLong"],
        },
    )
    libraries = [str(c10), str(cudart)]
    assert functions.unresolved([(str(path), libraries), (str(c10), libraries)]) == [
        Unresolved(count=2, torch=1, first=(TO_SCALAR, "cudaNew")),
        Unresolved(),
    ]
    damaged = tmp_path / "c10.dll"
    damaged.write_bytes(b"MZ")
    (found,) = functions.unresolved([(str(path), libraries)])
    assert found.damaged.startswith(f"{damaged}: ")


def test_a_list_of_functions_without_end(tmp_path: Path) -> None:
    whole = linked(tmp_path / "a.pyd", {"c10.dll": ["one", "two"]}).read_bytes()
    c10 = str(linked(tmp_path / "c10.dll", {}, ["one"]))
    for length in range(2, len(whole), 5):
        (tmp_path / "b.pyd").write_bytes(whole[:length])
        (found,) = functions.unresolved([(str(tmp_path / "b.pyd"), [c10])])
        assert found.damaged or found.count <= 2


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (TO_SCALAR, "caffe2::TypeMeta::toScalarType(…)"),
        ("?_def@Library@torch@@AEAAAEAV12@$$QEAUX@@@Z", "torch::Library::_def(…)"),
        (TENSOR, TENSOR),
        ("cudaMalloc", "cudaMalloc"),
    ],
)
def test_names_of_windows_are_readable(name: str, shown: str) -> None:
    assert readable(name) == shown
