"""GPU code in fat binaries that nvcc 13.0 made, against what cuobjdump says of them.

`fatbins/` was compiled from `fatbins/source.cu` with `nvcc -shared -cudart none`, stripped:
plain (80, 90), variants (90a, 100a, 120f, PTX 100f), packed (-Xfatbin -compress-all; 75, 80, PTX
80), ptx_only (PTX 80), linked (-rdc=true; 80).
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from attn_doctor.binaries.binary import GpuCode
from attn_doctor.binaries.read import gpu_code

FATBINS = Path(__file__).parent / "fatbins"
CODE = {
    "plain": GpuCode(cubins={"80": 1, "90": 1}),
    "variants": GpuCode(cubins={"90a": 1, "100a": 1, "120f": 1}, ptx={"100f": 1}, isa="9.0"),
    "packed": GpuCode(cubins={"75": 1, "80": 1}, ptx={"80": 1}, isa="9.0"),
    "ptx_only": GpuCode(ptx={"80": 1}, isa="9.0"),
    "linked": GpuCode(cubins={"80": 1}),
}


def listed(text: str) -> tuple[Counter[str], Counter[str]]:
    """Cubins and PTX in the output of cuobjdump."""
    cubins = re.findall(r"^ELF file.*\.sm_(\w+)\.cubin$", text, re.MULTILINE)
    return Counter(cubins), Counter(re.findall(r"^PTX file.*\.sm_(\w+)\.ptx$", text, re.MULTILINE))


def without_families(found: dict[str, int]) -> Counter[str]:
    """cuobjdump 13.0 prints machine code for 120f as 120."""
    counts: Counter[str] = Counter()
    for name, count in found.items():
        counts[name.rstrip("f")] += count
    return counts


@pytest.mark.parametrize("name", CODE)
def test_what_nvcc_made(name: str) -> None:
    assert gpu_code(str(FATBINS / f"{name}.so")) == CODE[name]


def test_the_same_as_cuobjdump() -> None:
    blocks = (FATBINS / "cuobjdump.txt").read_text().split("# ")[1:]
    assert len(blocks) == len(CODE)
    for block in blocks:
        name, _, text = block.partition(".so\n")
        cubins, ptx = listed(text)
        found = gpu_code(str(FATBINS / f"{name}.so"))
        assert without_families(found.cubins) == cubins
        assert found.ptx == ptx


def test_a_library_of_this_machine_equals_cuobjdump() -> None:
    """ATTN_DOCTOR_GPU_LIBRARIES: paths of libraries, such as all of torch's; needs cuobjdump."""
    paths = os.environ.get("ATTN_DOCTOR_GPU_LIBRARIES", "").split(os.pathsep)
    program = shutil.which("cuobjdump")
    if paths == [""] or program is None:
        pytest.skip("no libraries named, or no cuobjdump")
    for path in paths:
        argv = [program, "--list-elf", "--list-ptx", path]
        ran = subprocess.run(argv, capture_output=True, text=True, check=False)
        if "fatal" in ran.stderr:
            continue  # it cannot read some stripped libraries that we can
        cubins, ptx = listed(ran.stdout)
        found = gpu_code(path)
        assert (without_families(found.cubins), found.ptx) == (cubins, ptx), path


def test_a_library_without_gpu_code() -> None:
    import _struct

    path = getattr(_struct, "__file__", None)
    if path is None:
        pytest.skip("the standard library is built in")
    assert gpu_code(path) == GpuCode()


def test_only_the_first_few(tmp_path: Path) -> None:
    found = gpu_code(str(many(tmp_path, 50)), most=3)
    assert found == GpuCode(cubins={"80": 3}, whole=False)


def test_all_of_many(tmp_path: Path) -> None:
    assert gpu_code(str(many(tmp_path, 50))) == GpuCode(cubins={"80": 50})


def test_padding_between_fat_binaries(tmp_path: Path) -> None:
    assert gpu_code(str(many(tmp_path, 5, padding=24))) == GpuCode(cubins={"80": 5})


def test_no_time_left(tmp_path: Path) -> None:
    found = gpu_code(str(many(tmp_path, 5)), seconds=1e-9)
    assert not found.whole
    assert not found.damaged


def test_rubbish_between_fat_binaries(tmp_path: Path) -> None:
    path = many(tmp_path, 3)
    data = path.read_bytes()
    second = data.index(
        struct.pack("<I", 0xBA55ED50), data.index(struct.pack("<I", 0xBA55ED50)) + 4
    )
    path.write_bytes(data[:second] + b"rubbish!" + data[second + 8 :])
    found = gpu_code(str(path))
    assert found.cubins == {"80": 1}
    assert found.damaged == f"no fat binary at {second}"
    assert not found.whole


def many(folder: Path, count: int, padding: int = 0) -> Path:
    """An ELF file whose `.nv_fatbin` holds `count` fat binaries with 8 bytes for 8.0."""
    entry = (
        struct.pack("<HHIQIIHHIIIQQQ", 2, 0x101, 64, 8, 0, 0, 8, 1, 80, 0, 0, 0x11, 0, 0)
        + b"cubin..."
    )
    binary = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry)) + entry + bytes(padding)
    return elf_with(folder / "many.so", b".nv_fatbin", binary * count)


def elf_with(path: Path, name: bytes, content: bytes) -> Path:
    """An ELF file of nothing but one section."""
    names = b"\0" + name + b"\0.shstrtab\0"
    first = 64
    table = first + len(content) + len(names)
    sections = [
        struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        struct.pack("<IIQQQQIIQQ", 1, 1, 2, 0, first, len(content), 0, 0, 8, 0),
        struct.pack(
            "<IIQQQQIIQQ", len(name) + 2, 3, 0, 0, first + len(content), len(names), 0, 0, 1, 0
        ),
    ]
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, table, 0, 64, 56, 0, 64, 3, 2
    )
    path.write_bytes(header + content + names + b"".join(sections))
    return path
