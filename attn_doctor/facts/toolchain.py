"""Compilers, build tools and CUDA toolkits."""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.facts.kinds import Version


class Program(Struct, frozen=True, kw_only=True):
    """A build tool, searched for in known places; PATH is compared with what was found."""

    path: str | None = None
    """Path of the program that a build would use; empty if there is none."""
    version: Version | None = None
    """Its version."""
    family: str | None = None
    """`gcc`, `clang`, `msvc`; empty for other programs."""
    source: str | None = None
    """How it was found: `CC` or `CXX`, with `(missing)` if that program does not exist or `(with
    arguments)` if the value has arguments; `known place`, `PATH`, `wheel`, `wheel (not on PATH)`;
    `not on PATH` for a compiler that exists but that a build would not find."""


class Toolkit(Struct, frozen=True, kw_only=True):
    """One CUDA toolkit on this machine."""

    root: str | None = None
    """Its directory, to which CUDA_HOME can be set."""
    version: Version | None = None
    """Its CUDA version."""
    source: str | None = None
    """How it was found: `CUDA_HOME`, `CUDA_PATH`, `PATH`, `/usr/local`, `conda`, `wheel`, …"""
    nvcc: str | None = None
    """Path of its nvcc; empty if it has none."""
    ptxas: str | None = None
    """Path of its ptxas; empty if it has none."""
    missing_components: tuple[str, ...] | None = None
    """Parts that a torch extension needs and that it does not have: `nvcc`, `headers` (of the CUDA
    runtime), `crt`, `cublas`, `cusparse`, `cusolver` (libraries, and headers that torch's headers
    include), `cccl`, `cudart`, `ptxas`, `nvvm`."""
    in_use: bool | None = None
    """A torch extension build would use this one."""
    first_on_path: bool | None = None
    """The first nvcc on PATH is the nvcc of this one, or leads to it."""


class Build(Struct, frozen=True, kw_only=True):
    """The toolkit that a build of a torch extension (flash-attn, SageAttention) would use now."""

    cuda_home: str | None = None
    """The directory that torch's `cpp_extension` takes as CUDA_HOME; empty if it finds none."""
    cuda_home_source: str | None = None
    """How torch finds it: `CUDA_HOME`, `CUDA_PATH`, `nvcc on PATH`, `/usr/local/cuda`; empty if it
    finds none."""
    pathfinder_home: str | None = None
    """The directory that tools which prefer CUDA_PATH (`cuda.pathfinder`) take; empty if they find
    none."""
    nvcc: str | None = None
    """The nvcc of that directory; empty if it has none."""
    nvcc_on_path: str | None = None
    """The first nvcc on PATH; empty if there is none."""
    nvcc_is_script: bool | None = None
    """The first nvcc on PATH is a wrapper script, whose folder is not in a toolkit."""
    version: Version | None = None
    """CUDA version of that toolkit."""
    cuda_major: int | None = None
    """Derived: major part of that version."""
    missing_components: tuple[str, ...] | None = None
    """Parts that a build needs and does not find there, as in `toolkits[].missing_components`."""
    compatible_toolkit: str | None = None
    """Derived: root of a complete toolkit for torch's CUDA on this machine; empty if there is
    none."""
    jobs: int | None = None
    """Derived: parallel compile jobs that this machine's memory and processors allow."""
