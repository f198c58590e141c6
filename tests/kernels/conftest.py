"""Caches made by hand in the form that torch, Triton and the others give theirs."""

from __future__ import annotations

import json
import os
import pickle
import struct
import sys
import sysconfig
from pathlib import Path

import pytest

FX = "f5322fysuv7zomwqnm6nvxy4nazatxedcdm3z2mdarei6frjz6lw"
AOT = "ae37vxvxqcuygi3phtlzcstqgdifny2is7uzzqp5pdvsdrlg273g"
CODE = "covlj3b2sdvb5jgeltnod7xw52z6wtmvg5sehb6smodmp2sw5tak"
FILE = "qk7b3i27rlhjebclplcrzu3vdsyf3vnixz5rjqgtdktm7lra6dn"
KEY = "F3R3GCWZSX4NXOFWD72QT3AYZRU6AU2OS6NWRC5E42HTM3J5TZ5Q"
OTHER = "PQLL6Z6GKCESERXVU67BTG5FNCJREXJCY5XTYYG4KAZNUTKMJVZA"


def elf(machine: int = 62, kind: int = 3, size: int = 4096) -> bytes:
    """A whole 64-bit ELF file with two section headers at its end."""
    offset = size - 128
    head = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", kind, machine, 1, 0, 0, offset, 0, 64, 0, 0, 64, 2, 1)
    return head + bytes(size - len(head))


class Maker:
    """Writes cache folders."""

    KEY, OTHER, FX, AOT, CODE, FILE = KEY, OTHER, FX, AOT, CODE, FILE
    elf = staticmethod(elf)

    def write(self, path: Path, data: bytes | str = b"x") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def kernel(
        self, root: Path, key: str = KEY, *, arch: int = 90, version: str = "3.6.0", name: str = "k"
    ) -> Path:
        """One Triton kernel with its group, as Triton 3.6 writes it."""
        folder = root / key
        target = {"backend": "cuda", "arch": arch, "warp_size": 32}
        described = {"hash": "0" * 64, "target": target, "triton_version": version, "name": name}
        self.write(folder / f"{name}.cubin", elf(190, 2))
        self.write(folder / f"{name}.ttir", "module {}")
        self.write(folder / f"{name}.json", json.dumps(described))
        children = [f"{name}.{end}" for end in ("cubin", "ttir", "json")]
        group = {"child_paths": {child: str(folder / child) for child in children}}
        self.write(folder / f"__grp__{name}.json", json.dumps(group))
        return folder

    def inductor(self, root: Path, *, arch: int = 90, version: str = "3.6.0") -> Path:
        """A cache of torch.compile with one graph, its code and its kernel."""
        self.kernel(root / "triton" / "0", arch=arch, version=version)
        bundle = (root / "triton" / "0" / KEY / "k.json").read_bytes()
        graph = {"cache_key": CODE, "_fx_graph_cache_key": FX, "bundle": [bundle]}
        self.write(root / "fxgraph" / FX[1:3] / FX / FILE, pickle.dumps(graph, 5))
        self.write(root / "aotautograd" / AOT / FILE, pickle.dumps({"compiled_fw": [FX]}, 5))
        self.write(root / CODE[1:3] / f"{CODE}.py", f"# AOT ID: ['0_inference']\n# {KEY}\n")
        self.write(root / CODE[1:3] / f"{CODE}.main.so", elf())
        self.write(root / "locks" / f"{CODE}.lock", b"")
        return root

    def extension(self, root: Path, version: str = "py312_cu130", name: str = "fused") -> Path:
        folder = root / version / name
        ninja = "ninja_required_version = 1.3\ncxx = c++\nnvcc = /usr/local/cuda/bin/nvcc\n"
        self.write(folder / "build.ninja", ninja)
        self.write(folder / ".ninja_log", "# ninja log v5\n")
        self.write(folder / "main.cpp", "int main;")
        self.write(folder / f"{name}.so", elf())
        return folder

    def old_lock(self, root: Path, version: str = "py312_cu130") -> Path:
        """An extension whose build died long ago, also where others' processes cannot be seen."""
        folder = self.extension(root, version)
        lock = self.write(folder / "lock", b"")
        for path in folder.iterdir():
            os.utime(path, (0, 0))
        return lock

    def small_kernel(self, root: Path, arch: str = "9.0", nvrtc: str = "13.0") -> Path:
        name = f"i0e_kernel_arch{arch}_nvrtc{nvrtc}_sass_7012_{'a1' * 20}"
        return self.write(root / name, elf(190, 2))

    def hub(self, root: Path, variant: str = "torch29-cxx11-cu128-x86_64-linux") -> Path:
        repo = root / "models--kernels-community--flash-attn2"
        blob = self.write(repo / "blobs" / "ab12", elf())
        folder = repo / "snapshots" / "0a1b2c" / "build" / variant / "flash_attn2"
        folder.mkdir(parents=True)
        (folder / "_flash.abi3.so").symlink_to(blob)
        return repo

    def driver(self, root: Path) -> Path:
        self.write(root / "index", b"\0" * 64)
        self.write(root / "4" / "2" / "e3d8f6a09b1c2d", b"\0" * 64)
        return root


@pytest.fixture
def make() -> Maker:
    return Maker()


@pytest.fixture
def real_library() -> Path:
    """A shared library that a real linker wrote."""
    folder = Path(sysconfig.get_path("platstdlib")) / "lib-dynload"
    found = sorted(folder.glob("*.so")) + sorted(Path(sys.prefix).rglob("*.so"))
    if not found:
        pytest.skip("this Python has no extension modules")
    return found[0]
