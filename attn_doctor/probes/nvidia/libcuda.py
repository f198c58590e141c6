"""Finds the driver's libraries, libcuda and libnvidia-ml, as the dynamic loader would.

The order is that of a process such as torch: LD_LIBRARY_PATH, then the loader's cache, then its
default folders. A folder that only the RUNPATH of some extension names is not searched.
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
#: The loader's cache. The names of all libraries stand in it as they are.
CACHE = "/etc/ld.so.cache"
LDCONFIG_SECONDS = 0.4
#: How `ldconfig -p` marks a library that a 64-bit process of this machine can load.
_MARKS = {"x86_64": "x86-64", "aarch64": "AArch64", "ppc64le": "64bit"}


class Libraries(Struct, frozen=True, kw_only=True):
    """Paths of the driver's libraries; empty if the loader would not find them."""

    cuda: str = ""
    nvml: str = ""
    why: str = ""
    """Why the loader's cache could not be read; empty if it was read."""


def find(host: Host) -> Libraries:
    """Find the libraries as the loader of this machine would."""
    if host.windows:
        return _windows(host)
    if host.platform.os != "linux":
        return Libraries()
    first = loader.environment_folders(host)
    found = {name: loader.find(host, name, first) for name in (CUDA, NVML)}
    why = ""
    if not all(found.values()):
        cache, why = _cache(host)
        # The cache includes the default folders; without the cache they are searched.
        folders = loader.system_folders(host) if why else ()
        for name, path in found.items():
            cached = next((one for one in cache.get(name, ()) if host.is_file(one)), "")
            found[name] = path or cached or loader.find(host, name, folders)
    return Libraries(cuda=found[CUDA], nvml=found[NVML], why=why)


def linkable(host: Host, path: str) -> bool:
    """Whether a `libcuda.so` without a version is in the folder of the library at `path`."""
    return bool(path) and host.is_file(posixpath.join(posixpath.dirname(path), "libcuda.so"))


def release(host: Host, path: str) -> str:
    """Return the driver release in the file name of a library; empty if there is none."""
    # libcuda.so.580.95.05; under WSL libcuda.so.1.1, which is not a release
    match = re.search(r"\.so\.(\d{3,}\.[\d.]*\d)$", host.real(path)) if path else None
    return match[1] if match else ""


def is_compat(host: Host, path: str, module: str) -> bool:
    """Whether the libcuda at `path` is from a `cuda-compat` package, for a newer CUDA.

    https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
    """
    if not path:
        return False
    folders = (*path.split("/"), *host.real(path).split("/"))
    own = release(host, path)
    return "compat" in folders or bool(own and module and own != module)


def _cache(host: Host) -> tuple[dict[str, list[str]], str]:
    """Return each library's paths in the loader's cache, and why it could not be read."""
    program = next((path for path in LDCONFIG if host.is_file(path)), "")
    if not program:
        return {}, "there is no ldconfig"
    if not _may_be_cached(host):
        return {}, ""
    ran = host.run([program, "-p"], LDCONFIG_SECONDS)
    if not ran.ok:
        return {}, ran.why_not("ldconfig", LDCONFIG_SECONDS)
    mark = _MARKS.get(host.platform.machine, "")
    found: dict[str, list[str]] = {CUDA: [], NVML: []}
    for line in ran.out.splitlines() if any(name in ran.out for name in found) else ():
        # 	libcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1
        left, arrow, path = line.strip().partition(" => ")
        name, _, kind = left.partition(" ")
        if arrow and name in found and mark in kind:
            found[name].append(path)
    return found, ""


def _may_be_cached(host: Host) -> bool:
    """Whether a library of the driver is in the loader's cache, or that file cannot be read."""
    try:
        return bool(host.grep(CACHE, CUDA, NVML))
    except OSError:
        return True


def _windows(host: Host) -> Libraries:
    root = host.environ.get("SYSTEMROOT", "C:\\Windows")
    files = host.environ.get("PROGRAMFILES", "C:\\Program Files")
    # The second path is that of drivers before 2018; nvidia-ml-py tries it too.
    nvml = (
        host.join(root, "System32", "nvml.dll"),
        host.join(files, "NVIDIA Corporation", "NVSMI", "nvml.dll"),
    )
    cuda = host.join(root, "System32", "nvcuda.dll")
    return Libraries(
        cuda=cuda if host.is_file(cuda) else "",
        nvml=next((path for path in nvml if host.is_file(path)), ""),
    )
