"""Finds kernels in the cache of the Hugging Face Hub, as the package `kernels` does.

A kernel repository has a folder for each build variant, such as `torch211-cxx11-cu130-x86_64-linux`
or `torch-stable-abi29-cu130-x86_64-linux`. Only the variant for this torch is read; rules on
`kernels` report a missing one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from attn_doctor.host import Host

#: models--kernels-community--flash-attn2 · kernels--kernels-community--flash-attn2
_REPOSITORY = r"(?:models|kernels)--([\w.]+(?:-[\w.]+)*)--([\w.-]+)"
_VARIANT = (
    r"torch(?:-stable-abi(?P<abi>\d{2,3})|(?P<torch>\d{2,3}))(?:-cxx(?P<cxx>11|98))?"
    r"-cu(?P<cuda>\d{3})-(?P<arch>\w+)-(?P<os>linux|windows)"
)
#: Highest number of repositories that are read; a cache may contain hundreds of models.
MOST = 20


class Kernel(Struct, frozen=True):
    """A file of compiled code in a kernel's folder."""

    repository: str
    folder: str
    path: str


def cached(host: Host, torch: str, cuda: str, arch: str, abi: str) -> Iterator[Kernel]:
    """Yield the compiled files for the version `torch`; of each kernel the newest copy.

    `abi`: torch's C++ ABI, `11` or `98`; empty if it is not known.
    """
    minor, major = "".join(torch.split(".")[:2]), cuda.partition(".")[0]
    looked = 0
    for folder in _folders(host):
        for name in host.try_list(folder):
            match = re.fullmatch(_REPOSITORY, name)
            if match is None or looked >= MOST:
                continue
            snapshots = host.join(folder, name, "snapshots")
            builds = [host.join(snapshots, one, "build") for one in host.try_list(snapshots)]
            fitting = [
                host.join(build, variant)
                for build in builds
                for variant in host.try_list(build)
                if _fits(variant, minor, major, arch, host.platform.os, abi)
            ]
            if fitting:
                looked += 1
                newest = max(fitting, key=lambda one: _time(host, one))
                yield from _files(host, f"{match[1]}/{match[2]}", newest)


def _folders(host: Host) -> list[str]:
    """Return the folders where `kernels` and the Hub's client keep downloads."""
    environ = host.environ
    home = environ.get("HF_HOME") or host.join(
        environ.get("XDG_CACHE_HOME") or host.join(host.platform.home, ".cache"), "huggingface"
    )
    hub = environ.get("HF_HUB_CACHE") or host.join(home, "hub")
    return list(dict.fromkeys(filter(None, (environ.get("KERNELS_CACHE"), hub))))


def _fits(variant: str, minor: str, cuda: str, arch: str, system: str, abi: str) -> bool:
    match = re.fullmatch(_VARIANT, variant)
    if match is None or match["arch"] != arch or match["os"] != system:
        return False
    # The same CUDA major version is enough; a stable ABI works with every later torch.
    if not match["cuda"].startswith(cuda) or not cuda:
        return False
    if match["cxx"] and abi and match["cxx"] != abi:
        return False
    if match["torch"]:
        return match["torch"] == minor
    return _order(match["abi"]) <= _order(minor)


def _order(minor: str) -> tuple[int, int]:
    """`29` is 2.9, `211` is 2.11."""
    return int(minor[:1] or 0), int(minor[1:] or 0)


def _time(host: Host, path: str) -> float:
    found = host.try_stat(path)
    return found.mtime if found is not None else 0.0


def _files(host: Host, repository: str, folder: str) -> Iterator[Kernel]:
    for inner in ("", *host.try_list(folder)):
        place = host.join(folder, inner) if inner else folder
        for name in host.try_list(place):
            if name.endswith((".so", ".pyd", ".dll")):
                yield Kernel(repository, folder, host.join(place, name))
