"""Where the examined environment has the CUDA libraries that torch loads, and their headers.

Only the wheels that torch's own wheels require are known: `nvidia/cu13` since CUDA 13, one folder
for each library before. conda and torch builds that bring their own runtime lay them out otherwise,
and the stub GPU was not tested with them.
"""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.shell import commands
from attn_doctor.shell.commands import argv_for

#: Headers that the source includes, by which the compiled library differs.
HEADERS = ("cuda.h", "cuda_occupancy.h", "driver_types.h", "vector_types.h")


class Toolkit(Struct, frozen=True, kw_only=True):
    """CUDA's wheels in one environment."""

    include: str
    """Folder of the headers."""
    libraries: tuple[str, ...]
    """Paths of the runtime, of cuBLAS and of cuBLASLt."""


def find(facts: Facts) -> Toolkit:
    """The wheels of the examined environment.

    Raises `AttnDoctorError` if it has no CUDA build of torch, or not its wheels.
    """
    major = _major(facts)
    for site in facts.python.site_packages or ():
        one = Path(site, "nvidia", f"cu{major}")
        if _has(one / "lib", f"libcudart.so.{major}"):
            return _complete(facts, one / "include", one / "lib", one / "lib", major)
        split = Path(site, "nvidia", "cuda_runtime")
        if _has(split / "lib", f"libcudart.so.{major}"):
            blas = Path(site, "nvidia", "cublas", "lib")
            return _complete(facts, split / "include", split / "lib", blas, major)
    raise AttnDoctorError(_elsewhere(facts, major))


def _has(folder: Path, name: str) -> bool:
    return os.path.isfile(folder / name)


def _major(facts: Facts) -> int:
    """CUDA's major version that torch was built for."""
    torch = facts.torch
    place = facts.python.path or "the examined environment"
    if torch.installed is False:
        raise AttnDoctorError(
            f"torch is not installed in {place}: kernels for another GPU are built with the same"
            " wheel of torch as there"
        )
    if torch.build is not None and torch.build != "cuda":
        raise AttnDoctorError(
            f"torch {torch.version} in {place} is a build for {torch.build}: kernels for an NVIDIA"
            " GPU are built with the CUDA build of torch, which also installs without a GPU; use"
            " the same wheel as on the machine with the GPU"
        )
    if not torch.cuda:
        why = facts.gaps.get("torch.cuda") or "nothing in the package tells"
        raise AttnDoctorError(f"{place}: the CUDA version of torch is unknown: {why}")
    return int(torch.cuda.split(".")[0])


def _complete(facts: Facts, include: Path, lib: Path, blas: Path, major: int) -> Toolkit:
    suffix = "" if major >= 13 else f"-cu{major}"
    for name in HEADERS:
        if not _has(include, name):
            raise _lost(facts, include / name, f"nvidia-cuda-runtime{suffix}")
    libraries = [lib / f"libcudart.so.{major}"]
    for name in (f"libcublas.so.{major}", f"libcublasLt.so.{major}"):
        if not _has(blas, name):
            raise _lost(facts, blas / name, f"nvidia-cublas{suffix}")
        libraries.append(blas / name)
    return Toolkit(include=str(include), libraries=tuple(map(str, libraries)))


def _lost(facts: Facts, path: Path, wheel: str) -> AttnDoctorError:
    version = next((one.version for one in facts.cuda_wheels or () if one.name == wheel), None)
    wanted = f"{wheel}=={version}" if version else wheel
    command = argv_for(("pip", "install", "--force-reinstall", "--no-deps", wanted), facts)
    return AttnDoctorError(
        f"{path} is missing, which belongs to {wheel}; install it again: {commands.line(command)}"
    )


def _elsewhere(facts: Facts, major: int) -> str:
    """Say why the wheels are missing, in one sentence."""
    torch = facts.torch
    name = f"torch {torch.version}"
    fix = "use an environment made by pip or uv with torch's wheel from PyPI or pytorch.org"
    own = sorted(Path(torch.path or os.devnull, "lib").glob("libcudart*.so*"))
    if torch.source == "conda" or facts.python.environment == "conda":
        return (
            f"{name} has no CUDA wheels beside it (conda puts the libraries into"
            f" {facts.python.prefix}/lib), and the stub GPU was not tested with these; {fix}"
        )
    if own:
        return (
            f"{name} brings its own CUDA runtime ({own[0]}) without headers, from which the stub"
            f" GPU cannot be made; {fix}"
        )
    return (
        f"{name} was built for CUDA {torch.cuda}, and libcudart.so.{major} is in no nvidia folder"
        f" of {', '.join(facts.python.site_packages or ()) or 'its site-packages'}; {fix}"
    )
