"""The facts: everything that probes can learn, and the only names that rules may use.

A fact's name is its attribute path from `Facts` (`torch.version`, `gpus[0].sm`). ``None`` has
one meaning, *unknown*; `Facts.gaps` holds the reason. Something that is absent is
``installed = False`` or an empty path, never a missing value. The sentence under each field is its
documentation; `tools/fact_reference.py` writes `docs/facts.md` from these modules. Each module has
the name of the package of `probes` that fills it; `caches` is filled by `probes/machine`.

Nothing here reads the machine or evaluates it.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from attn_doctor.facts.caches import BuiltKernels, Cache
from attn_doctor.facts.installed import (
    TRITON_DISTRIBUTIONS,
    CudaWheel,
    Dispatcher,
    Extension,
    NewerRelease,
    Package,
    ShadowingLibrary,
    Torch,
    Triton,
    UnmetRequirement,
)
from attn_doctor.facts.interpreter import (
    DamagedMetadata,
    Duplicate,
    IncompletePackage,
    Interpreter,
    Python,
)
from attn_doctor.facts.kinds import Version
from attn_doctor.facts.machine import Directory, PciDevice, System
from attn_doctor.facts.nvidia import Driver, Gpu
from attn_doctor.facts.toolchain import Build, Program, Toolkit

__all__ = [
    "ELEMENTS",
    "PACKAGES",
    "SCHEMA",
    "TRITON_DISTRIBUTIONS",
    "Build",
    "BuiltKernels",
    "Cache",
    "CudaWheel",
    "DamagedMetadata",
    "Directory",
    "Dispatcher",
    "Driver",
    "Duplicate",
    "Extension",
    "Facts",
    "Gpu",
    "IncompletePackage",
    "Interpreter",
    "NewerRelease",
    "Package",
    "PciDevice",
    "Program",
    "Python",
    "ShadowingLibrary",
    "System",
    "Toolkit",
    "Torch",
    "Triton",
    "UnmetRequirement",
    "Version",
    "to_builtins",
    "to_json",
]

#: Version of the snapshot format. A released fact that is renamed or redefined raises it.
SCHEMA = 1


class Facts(Struct, frozen=True, kw_only=True):
    """All facts about one machine and one Python environment; a snapshot is this as JSON."""

    schema: int = SCHEMA
    """Version of the snapshot format."""
    attn_doctor: Version | None = None
    """Version of attn-doctor that made the snapshot."""
    taken: str | None = None
    """When it was made, UTC, ISO 8601."""
    system: System = System()
    """The operating system and its resources."""
    directories: tuple[Directory, ...] | None = None
    """Directories that compilers and caches write to."""
    python: Python = Python()
    """The interpreter under examination."""
    interpreters: tuple[Interpreter, ...] | None = None
    """Interpreters with torch, the preferred one first; not looked for with `--python`."""
    pci: tuple[PciDevice, ...] | None = None
    """Display and compute devices on the PCI bus."""
    driver: Driver = Driver()
    """The GPU driver."""
    gpus: tuple[Gpu, ...] | None = None
    """NVIDIA GPUs that the driver shows."""
    toolkits: tuple[Toolkit, ...] | None = None
    """CUDA toolkits on this machine."""
    build: Build = Build()
    """The toolkit a torch extension build would use."""
    cc: Program = Program()
    """The C compiler that Triton and extension builds would use."""
    cxx: Program = Program()
    """The C++ compiler that Inductor and extension builds would use."""
    cl: Program = Program()
    """Microsoft's compiler, on Windows."""
    ninja: Program = Program()
    """ninja, which makes extension builds parallel."""
    cmake: Program = Program()
    """CMake."""
    torch: Torch = Torch()
    """PyTorch."""
    triton: Triton = Triton()
    """Triton."""
    dispatcher: Dispatcher = Dispatcher()
    """Diffusers' attention dispatcher."""
    extensions: tuple[Extension, ...] | None = None
    """Compiled modules of known packages, and of kernels from the Hub for this torch. Linux and
    Windows only."""
    damaged_metadata: tuple[DamagedMetadata, ...] | None = None
    """Metadata of known packages that cannot be read."""
    unreadable_files: tuple[str, ...] | None = None
    """Files and folders of known packages that this user may not read, one of each package."""
    incomplete_packages: tuple[IncompletePackage, ...] | None = None
    """Known packages, and packages that they import, with files that are gone or cut short."""
    unrecorded_packages: tuple[str, ...] | None = None
    """Those of them without `RECORD`, the list of their files, so that pip cannot replace them."""
    duplicates: tuple[Duplicate, ...] | None = None
    """Known packages and CUDA wheels that are installed more than once."""
    unmet_requirements: tuple[UnmetRequirement, ...] | None = None
    """Requirements of these packages, and of those that they require, that are not met. Without
    torch, Triton and CUDA, which other facts describe."""
    newer_releases: tuple[NewerRelease, ...] | None = None
    """Derived: installed releases that are newer than the tables of this attn-doctor know, and a
    Diffusers with another attention dispatcher than its release."""
    cuda_wheels: tuple[CudaWheel, ...] | None = None
    """CUDA libraries installed as wheels."""
    shadowing_libraries: tuple[ShadowingLibrary, ...] | None = None
    """CUDA libraries that the loader may take instead of torch's."""
    torchvision: Package = Package()
    """torchvision."""
    torchaudio: Package = Package()
    """torchaudio."""
    flash_attn: Package = Package()
    """FlashAttention 2 (distribution `flash-attn`)."""
    flash_attn_3: Package = Package()
    """FlashAttention 3 (distribution `flash_attn_3`, module `flash_attn_interface`)."""
    flash_attn_4: Package = Package()
    """FlashAttention 4 (distribution `flash-attn-4`, module `flash_attn.cute`)."""
    sageattention: Package = Package()
    """SageAttention 1 or 2."""
    sageattn3: Package = Package()
    """SageAttention 3 for Blackwell."""
    xformers: Package = Package()
    """xformers."""
    diffusers: Package = Package()
    """Diffusers."""
    transformers: Package = Package()
    """Transformers."""
    accelerate: Package = Package()
    """Accelerate."""
    kernels: Package = Package()
    """Hugging Face `kernels`, which loads kernels from the Hub."""
    torchao: Package = Package()
    """torchao."""
    bitsandbytes: Package = Package()
    """bitsandbytes."""
    simpletuner: Package = Package()
    """SimpleTuner."""
    finetrainers: Package = Package()
    """Finetrainers."""
    env: dict[str, str] = {}
    """Environment variables that affect attention, builds and caches; empty if not set."""
    caches: tuple[Cache, ...] | None = None
    """Cache folders of compiled code."""
    manifests: tuple[BuiltKernels, ...] | None = None
    """Kernels that were built ahead of time, one element for each device in a cache folder."""
    simulated: tuple[str, ...] = ()
    """Values given with `--pretend`, and those assumed with them; empty for a real machine."""
    gaps: dict[str, str] = {}
    """For each fact that could not be read, the reason."""

    def gap(self, name: str) -> str:
        """Return why the fact `name` is unknown: its own reason, or that of its probe."""
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            reason = self.gaps.get(".".join(parts[:length]))
            if reason:
                return reason
        # `caches[0].noexec` may be unknown for a reason that applies to all `caches`.
        return self.gaps.get(name.partition("[")[0], "")


#: Names of the fields that describe a package, in their order.
PACKAGES: tuple[str, ...] = tuple(
    name
    for name, default in zip(Facts.__struct_fields__, msgspec.structs.astuple(Facts()), strict=True)
    if isinstance(default, Package)
)

#: Name of one element of each list of facts, in rules with `for_each`.
ELEMENTS: dict[str, str] = {
    "directories": "directory",
    "pci": "device",
    "gpus": "gpu",
    "interpreters": "interpreter",
    "toolkits": "toolkit",
    "extensions": "extension",
    "damaged_metadata": "metadata",
    "incomplete_packages": "incomplete",
    "duplicates": "duplicate",
    "unmet_requirements": "requirement",
    "newer_releases": "release",
    "cuda_wheels": "wheel",
    "shadowing_libraries": "library",
    "caches": "cache",
    "manifests": "manifest",
}


def to_json(facts: Facts) -> bytes:
    """Return `facts` as one JSON object, fields in the order of their classes."""
    return msgspec.json.format(msgspec.json.encode(facts), indent=1)


def to_builtins(facts: Facts) -> dict[str, Any]:
    """Return `facts` as plain dictionaries, lists and scalars."""
    plain: dict[str, Any] = msgspec.to_builtins(facts)
    return plain
