"""Compares our readers of ELF and PE files with pyelftools and pefile on real files."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from attn_doctor.binaries.elf import Elf
from attn_doctor.binaries.read import _highest, binary, versions
from attn_doctor.binaries.symbols import Library, gnu_hash, undefined_symbols
from attn_doctor.binaries.window import Window
from tests.binaries.test_pe import launchers

pefile = pytest.importorskip("pefile")
pytest.importorskip("elftools")

from elftools.elf.dynamic import DynamicSection  # noqa: E402
from elftools.elf.elffile import ELFFile  # noqa: E402
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection  # noqa: E402
from elftools.elf.sections import SymbolTableSection  # noqa: E402

#: Defined symbols of each library that are looked up; libtorch_cpu has 500,000.
SYMBOLS = 200
LOCAL = ("libc.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "libz.so.1")


def local_libraries() -> list[str]:
    """Libraries of this machine and extensions of this Python, the first few of each."""
    folders = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64")
    named = [Path(folder, name) for name in LOCAL for folder in folders]
    extensions = sorted(Path(sysconfig.get_path("platstdlib"), "lib-dynload").glob("*.so"))
    modules = [Path(sys.modules[name].__file__ or "") for name in ("msgspec._core",)]
    found = {str(path.resolve()): str(path) for path in named if path.is_file()}
    return [*found.values(), *map(str, extensions[:3]), *map(str, modules)]


def torch_libraries() -> list[str]:
    """The libraries of the torch that ATTN_DOCTOR_TORCH_PYTHON names."""
    python = os.environ.get("ATTN_DOCTOR_TORCH_PYTHON", "")
    if not python:
        return []
    code = "import sysconfig; print(sysconfig.get_path('platlib'))"
    done = subprocess.run(
        [python, "-Ic", code], capture_output=True, text=True, timeout=60, check=True
    )
    return [str(path) for path in sorted(Path(done.stdout.strip(), "torch", "lib").glob("*.so"))]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ELF files are Linux's")
@pytest.mark.parametrize("path", [*local_libraries(), *torch_libraries()])
def test_elf_files_read_as_by_pyelftools(path: str) -> None:
    with open(path, "rb") as file:
        elf = ELFFile(file)
        dynamic = next(part for part in elf.iter_sections() if isinstance(part, DynamicSection))
        tags: dict[str, list[str]] = {}
        for tag in dynamic.iter_tags():
            for kind in ("needed", "soname", "rpath", "runpath"):
                if tag.entry.d_tag == f"DT_{kind.upper()}":
                    tags.setdefault(kind, []).append(getattr(tag, kind))
        required, defined = _versions(elf)
        table = next(
            part
            for part in elf.iter_sections()
            if isinstance(part, SymbolTableSection) and part.name == ".dynsym"
        )
        undefined, provided = _symbols(table)
    found = binary(path)
    assert (found.format, found.damaged) == ("elf", "")
    assert list(found.needed) == tags.get("needed", [])
    assert found.soname == (tags.get("soname") or [""])[0]
    for name in ("rpath", "runpath"):
        folders = [one for text in tags.get(name, []) for one in text.split(":") if one]
        assert list(getattr(found, name)) == folders
    answer = versions(path)
    assert answer.damaged == ""
    assert answer.wants == {name: _highest(names) for name, names in required.items()}
    assert answer.gives == _highest(defined)
    window = Window(path)
    try:
        assert {one.name.decode() for one in undefined_symbols(Elf(window))} == undefined
        library = Library(window, path)
        for symbol in provided:
            assert library.has(symbol, gnu_hash(symbol)), symbol
        assert not library.has(
            b"attn_doctor_no_such_symbol", gnu_hash(b"attn_doctor_no_such_symbol")
        )
    finally:
        window.close()


def _versions(elf: ELFFile) -> tuple[dict[str, list[str]], list[str]]:
    """Required symbol versions by library, without weak ones, and defined versions."""
    required: dict[str, list[str]] = {}
    defined: list[str] = []
    for part in elf.iter_sections():
        if isinstance(part, GNUVerNeedSection):
            for library, versions in part.iter_versions():
                names = [one.name for one in versions if not one.entry.vna_flags & 2]
                if names:
                    required.setdefault(library.name, []).extend(names)
        elif isinstance(part, GNUVerDefSection):
            for version, names in part.iter_versions():
                if not version.entry.vd_flags & 1:  # the first entry is the file itself
                    defined.append(next(iter(names)).name)
    return required, defined


def _symbols(table: SymbolTableSection) -> tuple[set[str], list[bytes]]:
    """Undefined global symbols, and the first of those that others can use."""
    undefined: set[str] = set()
    provided: list[bytes] = []
    for symbol in table.iter_symbols():
        bind, section = symbol.entry.st_info.bind, symbol.entry.st_shndx
        if section == "SHN_UNDEF":
            if bind == "STB_GLOBAL" and symbol.name:
                undefined.add(symbol.name)
        elif bind in ("STB_GLOBAL", "STB_WEAK", "STB_LOOS") and len(provided) < SYMBOLS:
            provided.append(symbol.name.encode())
    return undefined, provided


@pytest.mark.parametrize("path", launchers(), ids=lambda path: path.name)
def test_pe_files_read_as_by_pefile(path: Path) -> None:
    image = pefile.PE(str(path), fast_load=True)
    image.parse_data_directories([pefile.DIRECTORY_ENTRY["IMAGE_DIRECTORY_ENTRY_IMPORT"]])
    found = binary(str(path))
    assert (found.format, found.damaged) == ("pe", "")
    assert list(found.needed) == [one.dll.decode() for one in image.DIRECTORY_ENTRY_IMPORT]
    machines = {0x8664: "x86_64", 0xAA64: "aarch64", 0x14C: "i686"}
    assert found.machine == machines[image.FILE_HEADER.Machine]
