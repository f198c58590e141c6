"""What extensions and kernels are compiled with: compilers, build tools and CUDA toolkits."""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.facts.kinds import Version


class Program(Struct, frozen=True, kw_only=True):
    """A build tool, looked for in known places. PATH is only compared with what was found."""

    path: str | None = None
    """Path of the one a build would use; empty if there is none."""
    version: Version | None = None
    """Its version."""
    family: str | None = None
    """`gcc`, `clang`, `msvc`; empty for other programs."""
    source: str | None = None
    """Where the choice came from: `CC` or `CXX`, followed by `(missing)` if it leads nowhere or
    `(with arguments)` if it is more than a program; `known place`, `PATH`, `wheel`, `wheel (not on
    PATH)`; `not on PATH` for a compiler that is there and would not be found."""


class Toolkit(Struct, frozen=True, kw_only=True):
    """One CUDA toolkit on this machine."""

    root: str | None = None
    """The directory CUDA_HOME would point to."""
    version: Version | None = None
    """Its CUDA version."""
    source: str | None = None
    """How it was found: `CUDA_HOME`, `CUDA_PATH`, `PATH`, `/usr/local`, `conda`, `wheel`, …"""
    nvcc: str | None = None
    """Path of its nvcc; empty if it has none."""
    ptxas: str | None = None
    """Path of its ptxas; empty if it has none."""
    missing_components: tuple[str, ...] | None = None
    """What a torch extension would miss: `nvcc`, `headers` (of the CUDA runtime), `crt`, `cublas`,
    `cusparse`, `cusolver` (headers too, which torch's own include), `cccl`, `cudart`, `ptxas`,
    `nvvm`."""
    in_use: bool | None = None
    """A torch extension build would take this one."""


class Build(Struct, frozen=True, kw_only=True):
    """The toolkit that building a torch extension (flash-attn, SageAttention) would use now."""

    cuda_home: str | None = None
    """What torch's cpp_extension resolves CUDA_HOME to; empty if it finds nothing."""
    cuda_home_source: str | None = None
    """`CUDA_HOME`, `CUDA_PATH`, `nvcc on PATH`, `/usr/local/cuda`; empty if nothing was found."""
    pathfinder_home: str | None = None
    """What tools that prefer CUDA_PATH (cuda.pathfinder) resolve to; empty if nothing."""
    nvcc: str | None = None
    """The nvcc of that directory; empty if it has none."""
    nvcc_on_path: str | None = None
    """The first nvcc on PATH; empty if there is none."""
    nvcc_is_script: bool | None = None
    """The first nvcc on PATH is a wrapper script, so its folder does not lead to the toolkit."""
    version: Version | None = None
    """CUDA version of that toolkit."""
    cuda_major: int | None = None
    """Derived: major part of that version."""
    missing_components: tuple[str, ...] | None = None
    """What a build would miss there (see `toolkits[].missing_components`)."""
    compatible_toolkit: str | None = None
    """Derived: root of a toolkit here that fits torch's CUDA and lacks nothing; empty if none."""
    jobs: int | None = None
    """Derived: compile jobs that fit this machine's memory and processors."""
