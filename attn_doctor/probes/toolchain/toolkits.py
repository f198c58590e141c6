"""Finds every CUDA toolkit on the machine, and the one that a build would use.

`build` does exactly what torch's `_find_cuda_home` does, which does not follow links; whether that
directory is enough for a build is in `missing_components`. What the build script of a package does
by itself is not known here.

torch: https://github.com/pytorch/pytorch/blob/main/torch/utils/cpp_extension.py
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from attn_doctor.facts import Build, Toolkit
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.machine import loader
from attn_doctor.probes.toolchain import cuda_root, programs
from attn_doctor.probes.toolchain.cuda_root import DEBIAN, Root

#: Variables that point to a toolkit, those that torch and NVIDIA's tools read first.
VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDAToolkit_ROOT")
WINDOWS = r"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA"
#: Folders of wheels with nvcc in them, in the order of cuda.pathfinder, and their distributions.
WHEELS = (("nvidia/cu13", "nvidia-cuda-nvcc"), ("nvidia/cuda_nvcc", "nvidia-cuda-nvcc-cu12"))


def read(host: Host, site: Site, gaps: Gaps) -> dict[str, Any]:
    """Return the toolkits, and what a build would use."""
    found = _all(host, site)
    build = _build(host, site, gaps, found)
    taken = host.real(build.cuda_home) if build.cuda_home else ""
    first = _behind(host, build.nvcc_on_path) if build.nvcc_on_path else None
    shown = host.real(first.path) if first is not None else ""
    toolkits = tuple(
        Toolkit(
            root=one.path,
            version=cuda_root.version(host, site, gaps, one, f"toolkits[{index}].version"),
            source=one.source,
            nvcc=cuda_root.tool(host, one.path, "nvcc"),
            ptxas=cuda_root.tool(host, one.path, "ptxas"),
            missing_components=cuda_root.missing_components(host, one.path, one.tools),
            in_use=taken in (host.real(one.path), host.real(one.tools or one.path)),
            first_on_path=shown == host.real(one.path),
        )
        for index, one in enumerate(found)
    )
    return {"toolkits": toolkits, "build": build}


# Finding


def _all(host: Host, site: Site) -> list[Root]:
    """Return every toolkit once, in the order in which they are found."""
    kept: dict[str, Root] = {}
    for one in (
        *_from_variables(host),
        *_from_path(host),
        *_from_places(host),
        *_from_own(host),
        *_from_conda(host, site),
        *_from_wheels(host, site),
    ):
        kept.setdefault(host.real(one.path), one)
    return list(kept.values())


def _from_variables(host: Host) -> list[Root]:
    names = [*VARIABLES, *sorted(name for name in host.environ if name.startswith("CUDA_PATH_V"))]
    pairs = ((host.environ.get(name, ""), name) for name in names)
    return [
        Root(path.rstrip("/\\") or path, name, cuda_root.tools_of(host, path))
        for path, name in pairs
        if path and (cuda_root.tool(host, path, "nvcc") or cuda_root.has_headers(host, path))
    ]


def _from_path(host: Host) -> list[Root]:
    """Return the toolkits behind `nvcc` on PATH."""
    roots = (_behind(host, path) for path in programs.on_path(host, "nvcc"))
    return [root for root in roots if root is not None]


def _behind(host: Host, nvcc: str) -> Root | None:
    """Return the toolkit of an nvcc on PATH; wrapper scripts and links are followed."""
    target = programs.wrapped(host, nvcc, "nvcc")
    if target is None:
        target = host.real(nvcc)
    if target.startswith(DEBIAN + "/"):
        return Root("/usr", "PATH", DEBIAN)
    if target and host.is_file(target):
        return Root(cuda_root.above(host, target), "PATH")
    return None


def _is_toolkit(name: str) -> bool:
    """Whether a folder is called `cuda`, or like `cuda-13.0`."""
    number = name.removeprefix("cuda-")
    if number == name:
        return name == "cuda"
    return number[:1].isdecimal() and number.replace(".", "").isdecimal()


def _from_places(host: Host) -> list[Root]:
    """Return the toolkits in the folders that installers use."""
    if host.windows:
        names = (name for name in host.try_list(WINDOWS) if name.startswith("v"))
        return [Root(host.join(WINDOWS, name), "Program Files") for name in names]
    found = []
    for folder in ("/usr/local", "/opt"):
        # The versions before `/usr/local/cuda`, which is a link to one of them.
        for name in sorted(host.try_list(folder), key=lambda name: (name == "cuda", name)):
            root = host.join(folder, name)
            if _is_toolkit(name) and host.is_dir(root):
                found.append(Root(root, folder))
    if host.is_file(DEBIAN + "/bin/nvcc"):
        found.append(Root("/usr", "Debian package", DEBIAN))
    releases = f"/opt/nvidia/hpc_sdk/Linux_{host.platform.machine}"
    for release in host.try_list(releases):
        folder = host.join(releases, release, "cuda")
        versions = host.try_list(folder) if release[0].isdigit() else ()
        versions = tuple(name for name in versions if re.fullmatch(r"\d+\.\d+", name))
        found += [Root(host.join(folder, name), "HPC SDK") for name in versions]
    return found


def _from_own(host: Host) -> list[Root]:
    """Return the toolkits that `fix --cuda-home --install` installed."""
    folder = own_folder(host.environ, windows=host.windows)
    names = host.try_list(folder) if folder else ()
    roots = [host.join(folder, name) for name in names if re.fullmatch(r"cuda-\d[\d.]*", name)]
    return [Root(root, "attn-doctor") for root in roots if host.is_dir(root)]


def own_folder(environ: Mapping[str, str], *, windows: bool) -> str:
    """Return the folder of toolkits that attn-doctor installs; empty without a home."""
    if windows:
        local = environ.get("LOCALAPPDATA", "")
        return f"{local}\\attn-doctor\\toolkits" if local else ""
    data, home = environ.get("XDG_DATA_HOME", ""), environ.get("HOME", "")
    if not data.startswith("/"):  # the specification says to ignore a relative one
        data = f"{home}/.local/share" if home.startswith("/") else ""
    return f"{data}/attn-doctor/toolkits" if data else ""


def _from_conda(host: Host, site: Site) -> list[Root]:
    prefixes = dict.fromkeys((host.environ.get("CONDA_PREFIX", ""), site.prefix))
    roots = (
        host.join(prefix, "Library") if host.windows else prefix
        for prefix in prefixes
        if prefix and host.is_dir(host.join(prefix, "conda-meta"))
    )
    return [Root(root, "conda") for root in roots if cuda_root.tool(host, root, "nvcc")]


def _from_wheels(host: Host, site: Site) -> list[Root]:
    found = []
    for place, name in WHEELS:
        one = site.distributions.get(name)
        root = host.join(one.site, *place.split("/")) if one is not None else ""
        if root and any(cuda_root.tool(host, root, name) for name in ("nvcc", "ptxas")):
            found.append(Root(root, "wheel", distribution=name))
    return found


# What a build takes


def _build(host: Host, site: Site, gaps: Gaps, found: list[Root]) -> Build:
    home, source = _cuda_home(host)
    first = programs.first_on_path(host, "nvcc")
    nvcc = cuda_root.tool(host, home, "nvcc") if home else ""
    tools = cuda_root.tools_of(host, home) if home else ""
    version = None
    if nvcc or (home and cuda_root.has_headers(host, home)):
        # A script or a link leads to another toolkit; the version is that of its nvcc.
        behind = home if tools == DEBIAN else tools
        reals = (host.real(behind), cuda_root.above(host, host.real(nvcc)))
        known = next((one for one in found if host.real(one.path) in reals), Root(behind, source))
        version = cuda_root.version(host, site, gaps, known, "build.version")
    return Build(
        cuda_home=home,
        cuda_home_source=source,
        pathfinder_home=_pathfinder_home(host, site),
        nvcc=nvcc,
        nvcc_on_path=first,
        nvcc_is_script=_misleads(host, first),
        version=version,
        missing_components=cuda_root.missing_components(host, home, tools, build=True)
        if home
        else (),
    )


def _cuda_home(host: Host) -> tuple[str, str]:
    """Return what torch takes as CUDA_HOME, and from where."""
    # An empty CUDA_HOME counts as not set; an empty CUDA_PATH is used.
    for name in ("CUDA_HOME", "CUDA_PATH"):
        value = host.environ.get(name)
        if value or (name == "CUDA_PATH" and value is not None):
            return value, name
    nvcc = programs.first_on_path(host, "nvcc")
    if nvcc:
        return cuda_root.above(host, nvcc), "nvcc on PATH"
    if host.windows:
        names = [name for name in host.try_list(WINDOWS) if re.match(r"v.*\.", name)]
        return (host.join(WINDOWS, names[0]), "Program Files") if names else ("", "")
    if host.try_stat("/usr/local/cuda") is not None:
        return "/usr/local/cuda", "/usr/local/cuda"
    return "", ""


def _misleads(host: Host, nvcc: str) -> bool:
    """Whether `nvcc` is a script for another toolkit; Debian's, which belongs to `/usr`, is not."""
    target = programs.wrapped(host, nvcc, "nvcc") if nvcc else None
    return target is not None and not target.startswith(DEBIAN + "/")


def _pathfinder_home(host: Host, site: Site) -> str:
    """Return where cuda.pathfinder 1.9 finds nvcc: wheels, conda, CUDA_PATH, CUDA_HOME, libcudart.

    https://nvidia.github.io/cuda-python/cuda-pathfinder/latest/
    """
    conda = host.environ.get("CONDA_PREFIX", "")
    roots = [host.join(folder, *place.split("/")) for place, _ in WHEELS for folder in site.folders]
    if conda:
        roots.append(host.join(conda, "Library") if host.windows else conda)
    # If CUDA_PATH is set, CUDA_HOME is not used, even if nothing is found.
    roots.append(host.environ.get("CUDA_PATH") or host.environ.get("CUDA_HOME") or "")
    roots.append(_root_of_cudart(host))
    for root in roots:
        nvcc = cuda_root.tool(host, root, "nvcc") if root else ""
        if nvcc and programs.runnable(host, nvcc):
            return host.real(root) if host.windows else cuda_root.above(host, host.real(nvcc))
    return ""


def _root_of_cudart(host: Host) -> str:
    """Return the toolkit with the libcudart that the loader would take, or empty text."""
    folders = loader.environment_folders(host) + loader.system_folders(host)
    names = ("libcudart.so.13", "libcudart.so.12")
    found = next((path for name in names if (path := loader.find(host, name, folders))), "")
    folder = host.parent(found)
    if folder.rpartition("/")[2] not in ("lib", "lib64"):
        return ""
    root = host.parent(folder)
    inside = host.parent(root).endswith("/targets")
    return cuda_root.above(host, root) if inside else root
