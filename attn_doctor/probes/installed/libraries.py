"""Finds CUDA libraries: those installed as wheels, and those that shadow torch's own.

The loader of Linux takes a library by its name (`libcudart.so.12`), so only a library of the same
major version can shadow another one. The libraries of a torch wheel name their folders by RPATH,
which the loader searches before LD_LIBRARY_PATH; NVIDIA's use RUNPATH, which it searches after it.
So libraries that torch loads itself cannot be shadowed, and those that NVIDIA's libraries load can.
Observed with LD_DEBUG on torch 2.4 and 2.11; other builds of torch may be linked differently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from attn_doctor.facts import CudaWheel, ShadowingLibrary
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.machine import loader

_LIBRARY = (
    # Of cuDNN only the part that is loaded first; the loader treats the others alike.
    r"lib(cudart|cublas|cublasLt|cudnn|cudnn_graph|cudnn_ops_infer|nvrtc|nvrtc-builtins|cufft"
    r"|cusparse|cusparseLt|cusolver|nccl|nvJitLink)\.so\.\d[\d.]*"
)
#: How their names start. Most folders have none.
_STARTS = ("libcu", "libnv", "libnccl.")
#: Wheels without a suffix such as `-cu12` whose version is that of CUDA.
_VERSIONED = r"nvidia-(cuda-\w+|cublas|nvjitlink|nvtx|nvvm|nvfatbin|nvptxcompiler)"
#: Wheels without a suffix that have a version of their own.
_UNVERSIONED = r"nvidia-(cufft|cufile|curand|cusolver|cusparse|npp|nvjpeg)"


def read(host: Host, site: Site, gaps: Gaps) -> dict[str, Any]:
    """Return the CUDA wheels of the environment, and the libraries that may shadow them."""
    return {"cuda_wheels": _wheels(site), "shadowing_libraries": tuple(_shadows(host, site))}


# Wheels


def _wheels(site: Site) -> tuple[CudaWheel, ...]:
    named = sorted((one.name, one.version) for one in site.distributions)
    names = [(name, version) for name, version in named if name.startswith("nvidia-")]
    # Since CUDA 13 the names have no suffix: nvidia-cufft 12.0.0.61 belongs to CUDA 13.
    newest = max((_major(v) or 0 for n, v in names if re.fullmatch(_VERSIONED, n)), default=0)
    wheels = []
    for name, version in names:
        suffix = re.search(r"-cu(\d\d)$", name)
        if suffix is not None:
            wheels.append(CudaWheel(name=name, version=version, cuda_major=int(suffix[1])))
        elif re.fullmatch(_VERSIONED, name):
            wheels.append(CudaWheel(name=name, version=version, cuda_major=_major(version)))
        elif re.fullmatch(_UNVERSIONED, name):
            wheels.append(CudaWheel(name=name, version=version, cuda_major=newest or None))
    return tuple(wheels)


def _major(version: str) -> int | None:
    head = version.partition(".")[0]
    # Placeholders on the index have versions such as 0.0.1.
    return int(head) if re.fullmatch(r"[0-9]{2,9}", head) and int(head) >= 11 else None


# Shadows


class _Own(Struct, frozen=True):
    """A library that was installed with torch."""

    folder: str
    beside: bool
    """It is in torch's own site-packages, to which the RPATH of torch's libraries points."""


def _shadows(host: Host, site: Site) -> Iterator[ShadowingLibrary]:
    torch = site.module(host, "torch") if host.platform.os == "linux" else ""
    own = _own(host, site, torch) if torch else {}
    if not own:
        return
    places = {one.folder for one in own.values()}
    yield from _in_preload(host, own)
    first = [one for one in loader.environment_folders(host) if host.real(one) not in places]
    last = [one for one in _other_folders(host, site) if host.real(one[0]) not in places]
    apart = not all(one.beside for one in own.values())
    preloaded = opened_by(host, torch) if first or apart else frozenset()
    for folder in first:
        for name in host.try_list(folder):
            path = host.join(folder, name)
            if name in own:
                first_loaded = _shadowed(name, own[name], preloaded) or _by_runpath(name, preloaded)
                yield ShadowingLibrary(
                    name=name, path=path, source="LD_LIBRARY_PATH", loaded_first=first_loaded
                )
            elif name == "libcuda.so.1" and "stubs" in folder.split("/"):
                # A stub is only for linking; every call to it fails.
                yield ShadowingLibrary(
                    name=name, path=path, source="LD_LIBRARY_PATH", loaded_first=True
                )
    for folder, source in last:
        # The parts of cuDNN are in the folder of its main library.
        for name in (name for name in sorted(own) if "_" not in name):
            path = host.join(folder, name)
            if host.is_file(path):
                first_loaded = _shadowed(name, own[name], preloaded)
                yield ShadowingLibrary(
                    name=name, path=path, source=source, loaded_first=first_loaded
                )


def _own(host: Host, site: Site, torch: str) -> dict[str, _Own]:
    """Return the CUDA libraries that were installed with torch."""
    folders = [host.join(torch, "lib")]
    for one in site.folders:
        place = host.join(one, "nvidia")
        folders += [host.join(place, name, "lib") for name in host.try_list(place)]
    root = host.parent(torch) + "/"
    found: dict[str, _Own] = {}
    for folder in folders:
        shared = [name for name in host.try_list(folder) if name.startswith(_STARTS)]
        names = [name for name in shared if re.fullmatch(_LIBRARY, name)]
        real = host.real(folder) if names else ""
        for name in names:
            found.setdefault(name, _Own(real, folder.startswith(root)))
    return found


def _in_preload(host: Host, own: dict[str, _Own]) -> Iterator[ShadowingLibrary]:
    for path in re.split(r"[ :]+", host.environ.get("LD_PRELOAD", "")):
        # libcudart.so.12.4.127 is a libcudart.so.12
        file = path.rpartition("/")[2] + "."
        name = next((name for name in own if file.startswith(name + ".")), "")
        if name and host.is_file(path):
            yield ShadowingLibrary(name=name, path=path, source="LD_PRELOAD", loaded_first=True)


def _shadowed(name: str, own: _Own, preloaded: frozenset[str]) -> bool:
    """Whether RPATH does not lead to torch's own, and torch does not load it by its full path.

    libcudart is loaded before torch loads libraries by path.
    """
    return not own.beside and (_stem(name) not in preloaded or name.startswith("libcudart."))


def _by_runpath(name: str, preloaded: frozenset[str]) -> bool:
    """Whether NVIDIA's libraries load it, which name its folder by RUNPATH."""
    inner = name.startswith(("libcudnn_", "libnvJitLink.", "libnvrtc-builtins.", "libnvrtc."))
    return inner and _stem(name) not in preloaded


def opened_by(host: Host, torch: str) -> frozenset[str]:
    """Return the libraries that this torch loads first by full path, such as `libnvJitLink`.

    Its source lists them after the line that opens /proc/self/maps: none in 2.4, most in 2.11.
    https://github.com/pytorch/pytorch/issues/138460
    """
    opened = 'open("/proc/self/maps")'
    needles = (opened, "_preload_cuda_deps()", "except ", '"lib')
    text = "\n".join(host.try_grep(host.join(torch, "__init__.py"), *needles))
    before, mark, after = text.partition(opened)
    calls = after.partition("except ")[0]
    source = before if "_preload_cuda_deps()" in calls else calls
    return frozenset(re.findall(r'"(lib[\w-]+)\.so', source)) if mark else frozenset()


def _other_folders(host: Host, site: Site) -> Iterator[tuple[str, str]]:
    """Yield folders that the loader searches only after those that libraries name."""
    for prefix in dict.fromkeys((host.environ.get("CONDA_PREFIX", ""), site.prefix)):
        if prefix and host.is_dir(host.join(prefix, "conda-meta")):
            yield host.join(prefix, "lib"), "conda"
    for folder in loader.system_folders(host):
        yield folder, "system"


def _stem(name: str) -> str:
    return name.partition(".")[0]
