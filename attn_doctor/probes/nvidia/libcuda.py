"""Where the dynamic loader finds the driver's libraries: libcuda and libnvidia-ml.

What counts is what a process such as torch would load: LD_LIBRARY_PATH first, then the loader's
cache, then its default folders. A folder that only some extension's RUNPATH names is not seen.
"""

from __future__ import annotations

import posixpath
import re

from msgspec import Struct

from attn_doctor.host import Host
from attn_doctor.probes.machine import loader

CUDA = "libcuda.so.1"
NVML = "libnvidia-ml.so.1"
LDCONFIG = ("/sbin/ldconfig", "/usr/sbin/ldconfig")
LDCONFIG_SECONDS = 0.4
#: How `ldconfig -p` marks a library that a 64-bit process of this machine can load.
_MARKS = {"x86_64": "x86-64", "aarch64": "AArch64", "ppc64le": "64bit"}


class Libraries(Struct, frozen=True, kw_only=True):
    """Paths of the driver's libraries; empty where the loader would find none."""

    cuda: str = ""
    nvml: str = ""
    why: str = ""
    """Why the loader's cache could not be asked; empty if it could."""


def find(host: Host) -> Libraries:
    """The libraries as the loader of this machine would find them."""
    if host.windows:
        return _windows(host)
    if host.platform.os != "linux":
        return Libraries()
    first = loader.environment_folders(host)
    found = {name: loader.find(host, name, first) for name in (CUDA, NVML)}
    why = ""
    if not all(found.values()):
        cache, why = _cache(host)
        # The cache knows the default folders too; without it they are looked through.
        folders = loader.system_folders(host) if why else ()
        for name, path in found.items():
            cached = next((one for one in cache.get(name, ()) if host.is_file(one)), "")
            found[name] = path or cached or loader.find(host, name, folders)
    return Libraries(cuda=found[CUDA], nvml=found[NVML], why=why)


def linkable(host: Host, path: str) -> bool:
    """A `libcuda.so` without a version stands beside the library at `path`."""
    return bool(path) and host.is_file(posixpath.join(posixpath.dirname(path), "libcuda.so"))


def release(host: Host, path: str) -> str:
    """The driver release that a library belongs to, by the name of its file; or empty text."""
    # libcuda.so.580.95.05; under WSL libcuda.so.1.1, which tells nothing
    match = re.search(r"\.so\.(\d{3,}\.[\d.]*\d)$", host.real(path)) if path else None
    return match[1] if match else ""


def is_compat(host: Host, path: str, module: str) -> bool:
    """The libcuda at `path` is one of a `cuda-compat` package, for a newer CUDA than the driver's.

    https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
    """
    if not path:
        return False
    folders = (*path.split("/"), *host.real(path).split("/"))
    own = release(host, path)
    return "compat" in folders or bool(own and module and own != module)


def _cache(host: Host) -> tuple[dict[str, list[str]], str]:
    """The paths that the loader's cache holds for each library, and why it could not be read."""
    program = next((path for path in LDCONFIG if host.is_file(path)), "")
    if not program:
        return {}, "there is no ldconfig"
    ran = host.run([program, "-p"], LDCONFIG_SECONDS)
    if not ran.ok:
        return {}, ran.why_not("ldconfig", LDCONFIG_SECONDS)
    mark = _MARKS.get(host.platform.machine, "")
    found: dict[str, list[str]] = {CUDA: [], NVML: []}
    for line in ran.out.splitlines():
        # 	libcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1
        left, arrow, path = line.strip().partition(" => ")
        name, _, kind = left.partition(" ")
        if arrow and name in found and mark in kind:
            found[name].append(path)
    return found, ""


def _windows(host: Host) -> Libraries:
    root = host.environ.get("SYSTEMROOT", "C:\\Windows")
    files = host.environ.get("PROGRAMFILES", "C:\\Program Files")
    # The second place is that of drivers before 2018, where nvidia-ml-py looks as well.
    nvml = (
        host.join(root, "System32", "nvml.dll"),
        host.join(files, "NVIDIA Corporation", "NVSMI", "nvml.dll"),
    )
    cuda = host.join(root, "System32", "nvcuda.dll")
    return Libraries(
        cuda=cuda if host.is_file(cuda) else "",
        nvml=next((path for path in nvml if host.is_file(path)), ""),
    )
