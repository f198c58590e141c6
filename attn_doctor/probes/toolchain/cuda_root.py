"""Reads one CUDA toolkit's directory: its programs, its version, and missing components.

File names and folders differ between packages of NVIDIA, Debian and conda, and wheels. The system's
own nvcc is run for its version only if no file contains it.
"""

from __future__ import annotations

import re

from msgspec import Struct

from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.toolchain import programs

#: Folder in which Debian and Ubuntu keep the `bin` and `nvvm` of their packages.
DEBIAN = "/usr/lib/nvidia-cuda-toolkit"
#: Headers that every CUDA extension of torch includes, through ATen/cuda/CUDAContext.h.
HEADERS = {
    "headers": "cuda_runtime.h",
    "crt": "crt/host_config.h",
    "cublas": "cublas_v2.h",
    "cusparse": "cusparse.h",
    "cusolver": "cusolverDn.h",
}
#: CUDA 13 moved these headers into the folder `cccl`.
CCCL = ("cccl/thrust/version.h", "thrust/version.h")
#: Seconds for `nvcc --version`.
LIMIT = 2.0


class Root(Struct, frozen=True):
    """The directory of a toolkit."""

    path: str
    source: str
    """How it was found."""
    tools: str = ""
    """Folder of nvcc's own tools, such as ptxas, if they are elsewhere."""
    distribution: str = ""
    """Its wheel; empty for other toolkits."""


def tool(host: Host, root: str, name: str) -> str:
    """Return the path of a program in the `bin` of a toolkit, or empty text."""
    folders = (("bin", "x64"), ("bin", "x86_64"), ("bin",)) if host.windows else (("bin",),)
    paths = (host.join(root, *folder, name + _exe(host)) for folder in folders)
    return next((path for path in paths if host.is_file(path)), "")


def tools_of(host: Host, root: str) -> str:
    """Return where the nvcc in `root` finds its own tools, following a script but not a link.

    Called through a link, nvcc looks for `nvcc.profile` beside the link (seen with nvcc 13.0).
    """
    nvcc = tool(host, root, "nvcc")
    target = programs.wrapped(host, nvcc, "nvcc") if nvcc else None
    return above(host, target) if target and host.is_file(target) else root


def above(host: Host, path: str) -> str:
    """Return the directory two levels up: the root of a toolkit for a program in its `bin`."""
    return host.parent(host.parent(path))


def has_headers(host: Host, root: str) -> bool:
    """Whether the header of the CUDA runtime is in `root`."""
    return any(host.is_file(host.join(one, "cuda_runtime.h")) for one in _includes(host, root))


def missing_components(
    host: Host, root: str, tools: str = "", *, build: bool = False
) -> tuple[str, ...]:
    """Return the parts for a torch extension that `root` and nvcc's `tools` do not have.

    With `build`, folders of CPATH, CUDA_INC_PATH, LIBRARY_PATH and similar variables count too.
    """
    include = _includes(host, root)
    include += _variables(host, build, "CPATH", "CPLUS_INCLUDE_PATH", "CUDA_INC_PATH")
    own = _includes(host, tools) if tools and tools != root else []

    def header(*names: str, folders: list[str]) -> bool:
        return any(host.is_file(host.join(f, *n.split("/"))) for f in folders for n in names)

    there = {
        "nvcc": bool(tool(host, root, "nvcc")),
        # C++ sources of an extension use only the directory that torch names. Headers that only
        # nvcc includes may also be beside nvcc.
        **{name: header(file, folders=include) for name, file in HEADERS.items()},
        "cccl": header(*CCCL, folders=own + include),
        "cudart": _has_cudart(host, root, _variables(host, build, "LIBRARY_PATH")),
        "ptxas": any(tool(host, place, "ptxas") for place in (root, tools) if place),
        "nvvm": _has_cicc(host, tools or root),
    }
    return tuple(name for name, found in there.items() if not found)


def _includes(host: Host, root: str) -> list[str]:
    folders = [host.join(root, "include")]
    if not host.windows:
        # conda's activation scripts and nvcc add the folder of the target.
        arm = host.platform.machine in ("aarch64", "arm64")
        targets = ("sbsa-linux", "aarch64-linux") if arm else (f"{host.platform.machine}-linux",)
        folders += [host.join(root, "targets", name, "include") for name in targets]
    return folders


def _has_cudart(host: Host, root: str, extra: list[str]) -> bool:
    """Whether the linker finds `-lcudart`. It needs `libcudart.so`, which wheels do not have."""
    if host.windows:
        return host.is_file(host.join(root, "lib", "x64", "cudart.lib"))
    wide = host.join(root, "lib64")
    # torch names `lib64`, or `lib` where there is no `lib64`.
    folders = [wide if host.is_dir(wide) else host.join(root, "lib"), *extra]
    if root == "/usr":
        folders += [f"/usr/lib/{host.platform.machine}-linux-gnu", "/usr/lib"]
    return any(host.is_file(host.join(folder, "libcudart.so")) for folder in folders)


def _has_cicc(host: Host, root: str) -> bool:
    paths = (host.join(root, *place, "cicc" + _exe(host)) for place in (("nvvm", "bin"), ("bin",)))
    return any(host.is_file(path) for path in paths)


def _variables(host: Host, wanted: bool, *names: str) -> list[str]:
    """Return the folders in some path variables."""
    separator = ";" if host.windows else ":"
    values = (host.environ.get(name, "") for name in names if wanted)
    return [folder for value in values for folder in value.split(separator) if folder]


def version(host: Host, site: Site, gaps: Gaps, root: Root, fact: str) -> str | None:
    """Return the CUDA version of a toolkit; of wheels, which all have versions, that of nvcc."""
    if root.distribution:
        distribution = site.distributions.get(root.distribution)
        return ".".join(distribution.version.split(".")[:2]) if distribution is not None else None
    found = (
        _written_by_wheel(host, root.path)
        or _written(host, root.path)
        or _written_by_conda(host, root.path)
    )
    nvcc = tool(host, root.tools or root.path, "nvcc")
    if found or nvcc:
        return found or _asked(host, gaps, nvcc, fact)
    # NVIDIA's runtime-only packages have their version only in the folder's name.
    match = re.search(r"/cuda-(\d+\.\d+)$", host.real(root.path))
    if match is None:
        gaps.add(fact, f"{root.path} contains no file with its CUDA version")
    return match[1] if match is not None else None


def _written(host: Host, root: str) -> str:
    """Return the version in the files of a toolkit, or empty text."""
    # {"cuda": {"name": "CUDA SDK", "version": "13.0.1"}, "cuda_nvcc": {"version": "13.0.88"}, …}
    text = host.try_read(host.join(root, "version.json"), 1 << 14)
    pattern = r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"([\d.]+)"'
    match = re.search(pattern, text) if text else None
    if match is None:
        # CUDA Version 11.0.228
        text = host.try_read(host.join(root, "version.txt"), 256)
        match = re.search(r"CUDA Version (\d+\.[\d.]+)", text) if text else None
    if match is not None:
        return match[1]
    for folder in _includes(host, root):
        # #define CUDART_VERSION  13000, in the first 7,000 bytes of a header of a million.
        header = host.join(folder, "cuda_runtime_api.h")
        lines = host.try_grep(header, "CUDART_VERSION", limit=1 << 16)
        for words in map(str.split, lines):
            number = words[2] if words[:2] == ["#define", "CUDART_VERSION"] and words[2:] else ""
            if number.isdecimal() and 4 <= len(number) <= 6:
                return f"{int(number) // 1000}.{int(number) % 1000 // 10}"
    return ""


def _written_by_wheel(host: Host, root: str) -> str:
    """Return the version of the nvcc wheel in another folder of wheels, or empty text.

    Such a folder (`pip install --target`, another environment) mixes wheels of several releases:
    its headers may be newer than its compiler.
    """
    if host.parent(root).rpartition("/")[2] != "nvidia" or host.windows:
        return ""
    for name in host.try_list(host.parent(host.parent(root))):
        # nvidia_cuda_nvcc-13.2.86.dist-info, nvidia_cuda_nvcc_cu12-12.8.93.dist-info
        match = re.match(r"nvidia_cuda_nvcc(?:_cu\d+)?-(\d+\.\d+)[\d.]*\.dist-info$", name)
        if match is not None:
            return match[1]
    return ""


def _written_by_conda(host: Host, root: str) -> str:
    """Return the version in the name of conda's record of nvcc, or empty text."""
    prefix = host.parent(root) if host.windows else root
    for name in host.try_list(host.join(prefix, "conda-meta")):
        # cuda-nvcc-tools-12.8.93-he02047a_0.json
        match = re.match(r"cuda-nvcc(?:-tools|-impl)?-(\d+\.\d+)[\d.]*-", name)
        if match is not None:
            return match[1]
    return ""


def _asked(host: Host, gaps: Gaps, nvcc: str, fact: str) -> str | None:
    """Return the version that `nvcc --version` prints, if this nvcc is the system's own."""
    found = host.try_stat(nvcc)
    place = nvcc.startswith(("/usr/", "/opt/")) and programs.wrapped(host, nvcc, "nvcc") is None
    own = found is not None and found.uid == 0 and not found.mode & 0o002
    if not place or not own or host.danger(nvcc):
        gaps.add(fact, f"no file names the CUDA version of {nvcc}, and it is not the system's own")
        return None
    ran = host.run([nvcc, "--version"], LIMIT)
    # Cuda compilation tools, release 13.0, V13.0.88
    match = re.search(r"release (\d+\.\d+)", ran.out)
    if match is None:
        gaps.add(fact, ran.why_not(nvcc, LIMIT) or f"{nvcc} --version names no release")
    return match[1] if match is not None else None


def _exe(host: Host) -> str:
    return ".exe" if host.windows else ""
