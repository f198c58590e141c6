"""Windows' files: made here, and the launchers that setuptools and pip bring along."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path

import pytest

from attn_doctor.binaries.binary import Binary, GpuCode
from attn_doctor.binaries.read import binary, gpu_code

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
