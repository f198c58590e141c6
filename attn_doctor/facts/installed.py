"""What is installed in the examined environment: torch, Triton, packages, and their libraries."""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.facts.kinds import Version


class Torch(Struct, frozen=True, kw_only=True):
    """The torch of the examined environment, read as text and never imported."""

    installed: bool | None = None
    """A torch distribution or package is there."""
    version: Version | None = None
    """Version with its local part, such as `2.11.0+cu130`."""
    local: str | None = None
    """Local part of the version (`cu130`, `cpu`, `rocm6.4`); empty if there is none."""
    build: str | None = None
    """What it was built for: `cuda`, `rocm`, `xpu`, `cpu` or `mps`."""
    cuda: Version | None = None
    """CUDA version it was built for; None unless `torch.build` is `cuda`."""
    hip: Version | None = None
    """ROCm version it was built for; None unless `torch.build` is `rocm`."""
    debug: bool | None = None
    """A debug build."""
    git_version: str | None = None
    """Commit it was built from."""
    cxx11_abi: bool | None = None
    """Built with the new C++ ABI of libstdc++, which extensions must share."""
    path: str | None = None
    """Folder of the package."""
    installation_error: str | None = None
    """What is wrong with the installation (`no torch folder`, …); empty if it is sound."""
    source: str | None = None
    """Where it came from: `index`, `url`, `vcs`, `local`, `editable`, `conda`, `system`."""
    has_flex: bool | None = None
    """The module `torch.nn.attention.flex_attention` is in the package."""
    has_build_helper: bool | None = None
    """That module defines `build_flex_attention_kernels`, which no released torch does."""
    bytecode: bool | None = None
    """Its modules, those of its compiler too, are kept compiled for this interpreter (as `.pyc`
    files), so that importing them need not compile them. One out of date counts as kept."""
    bytecode_writable: bool | None = None
    """This user may write such files where they belong."""
    requires_triton: str | None = None
    """The triton requirement in its metadata, such as `==3.6.0`; empty if it has none."""
    requires_python: str | None = None
    """The Python requirement in its metadata."""
    missing_nvidia_wheels: tuple[str, ...] | None = None
    """CUDA wheels that its metadata demands and the environment lacks."""
    missing_libraries: tuple[str, ...] | None = None
    """Libraries that its own need and the loader of Linux would not find, so that `import torch`
    fails; None on other systems."""
    cuda_major: int | None = None
    """Derived: major part of `torch.cuda`."""
    cuda_tag: str | None = None
    """Derived: the name of its CUDA in wheel indexes, such as `cu130`."""
    minor: str | None = None
    """Derived: major and minor version, such as `2.11`."""
    cubins: tuple[str, ...] | None = None
    """Machine code for GPUs that most kernels of its CUDA library carry, read from the file, by the
    names that CUDA gives them: `80`, `90a`. Single kernels may be there for more."""
    ptx: tuple[str, ...] | None = None
    """PTX that most of those kernels carry, which the driver can compile for newer GPUs."""
    archs: tuple[int, ...] | None = None
    """Derived: compute capabilities ×10 that it carries machine code for: those of `torch.cubins`,
    else those that the release's own wheels are known to have."""
    archs_source: str | None = None
    """Derived: how `torch.archs` is known: `file` or `table`; empty if it is not."""
    gpu_code: str | None = None
    """Derived: the worst `gpus[].torch_code` of the GPUs that CUDA shows; empty without any."""
    min_driver: Version | None = None
    """Derived: lowest driver that runs its CUDA on this system (minor version compatibility)."""
    index_for_driver: str | None = None
    """Derived: the torch wheel index for this driver and these GPUs, such as `cu128`; empty if
    there is none."""
    pin_for_driver: str | None = None
    """Derived: what to install from that index: `torch==2.11.*` to stay with the installed release
    where the index has it, else `torch`; empty if there is no index."""
    max_python: Version | None = None
    """Derived: newest Python that `torch.compile` of this torch accepts."""


class Triton(Struct, frozen=True, kw_only=True):
    """Triton, the compiler behind FlexAttention and parts of SageAttention."""

    installed: bool | None = None
    """A distribution that provides the module `triton` is there."""
    version: Version | None = None
    """Its version."""
    distribution: str | None = None
    """The distribution that provides it: `triton`, `triton-windows`, `pytorch-triton`, …"""
    path: str | None = None
    """Folder of the package."""
    providers: tuple[str, ...] | None = None
    """All distributions that provide the module; more than one overwrite each other."""
    backends: tuple[str, ...] | None = None
    """Backends in the package, such as `nvidia`, `amd`."""
    setuptools_missing: bool | None = None
    """It imports setuptools, as releases before 3.3 do at their first line, and there is none."""
    ptxas: str | None = None
    """Path of the bundled ptxas; empty if there is none."""
    ptxas_version: Version | None = None
    """Derived: its CUDA version."""
    ptxas_blackwell: str | None = None
    """Path of the second bundled ptxas, for newer GPUs; empty if there is none."""
    ptxas_blackwell_version: Version | None = None
    """Derived: its CUDA version."""
    expected: str | None = None
    """Derived: the version this torch pairs with, as a specifier such as `==3.6.*`."""
    pin: str | None = None
    """Derived: the requirement to install for this torch and system, such as `triton==3.6.0`."""


class Package(Struct, frozen=True, kw_only=True):
    """One package of interest in the examined environment, read from its metadata and files."""

    installed: bool | None = None
    """Its distribution is there."""
    version: Version | None = None
    """Its version."""
    distribution: str | None = None
    """Name of the distribution that provides it."""
    path: str | None = None
    """Folder of its module; empty if the module's files are missing."""
    source: str | None = None
    """Where it came from: `index`, `url`, `vcs`, `local`, `editable`, `conda`, `system`."""
    source_url: str | None = None
    """The URL or path it was installed from, without credentials; empty if none is recorded."""
    python_tag: str | None = None
    """Python tag of its wheel, such as `cp312` or `py3`."""
    abi_tag: str | None = None
    """ABI tag of its wheel, such as `cp312`, `abi3` or `none`."""
    platform_tag: str | None = None
    """Platform tag of its wheel."""
    built_torch: Version | None = None
    """Torch it was compiled against, from its own build record or the wheel's name."""
    built_cuda: Version | None = None
    """CUDA it was compiled with, from the same places; may be a major version only."""
    built_cxx11_abi: bool | None = None
    """C++ ABI it was compiled with, from the wheel's name."""
    built_python: Version | None = None
    """Python it was compiled for, from its build record or the names of its extensions."""
    extensions: tuple[str, ...] | None = None
    """Names of its compiled extension modules."""
    requires_torch: str | None = None
    """The torch requirement in its metadata, such as `==2.10.0`, else in its wheel's name
    (`torch2.9.0andhigher`); empty if there is none."""
    requires_python: str | None = None
    """The Python requirement in its metadata."""
    built_minor: str | None = None
    """Derived: major and minor part of `built_torch`, such as `2.8`."""
    built_cuda_major: int | None = None
    """Derived: major part of `built_cuda`."""
    expected: str | None = None
    """Derived: versions that fit the installed torch, as a specifier, where a table tells; of
    flash-attn those with a ready wheel."""
    wheel: str | None = None
    """Derived: `yes` if a ready wheel exists for this torch, CUDA and Python, `no` if pip would
    compile it from source; None if the tables do not tell."""
    loads: bool | None = None
    """Derived: nothing was found that would keep its extension modules from loading, as far as
    their files tell; false if none of its main modules can load."""
    known_to_load: bool | None = None
    """Derived: `loads` is true. It is false both where it is false and where it could not be told,
    so that a build record counts where the files say nothing."""
    gpu_code: str | None = None
    """Derived: what its modules hold for the GPUs that CUDA shows, at worst: `yes` (machine code),
    `ptx` (the driver has to compile it at the first start), `no`; empty if they hold no GPU code
    or CUDA shows no GPU."""


class Extension(Struct, frozen=True, kw_only=True):
    """One compiled module, read and not loaded."""

    package: str | None = None
    """Whose it is: a group of facts such as `flash_attn`, or `hub` for a kernel from the Hub."""
    name: str | None = None
    """Its file's name up to the first dot; for a kernel from the Hub its repository too."""
    path: str | None = None
    """Its file."""
    archs: tuple[str, ...] | None = None
    """Machine code for GPUs in it, by the names that CUDA gives them: `80`, `90a` (only that
    architecture), `120f` (its family)."""
    ptx: tuple[str, ...] | None = None
    """PTX in it, which the driver can compile for newer GPUs."""
    ptx_cuda: Version | None = None
    """CUDA version that a driver must support to compile that PTX; empty without PTX."""
    missing_libraries: tuple[str, ...] | None = None
    """Libraries it needs that the loader would not find when torch has been imported."""
    missing_found_at: tuple[str, ...] | None = None
    """Where such libraries lie all the same, in folders that the loader does not search."""
    undefined_symbol_count: int | None = None
    """Symbols it needs that no library defines, those of Python's own left out."""
    first_undefined_symbols: tuple[str, ...] | None = None
    """The first few of these, as C++ writes them."""
    mismatch: str | None = None
    """What symbols tell it was built for: `torch` (another torch), `cxx-abi` (the other C++ ABI),
    `symbols` (other libraries than those here), `unseen` (they were not compared: a library of
    torch's is missing, or the system is Windows); empty if they are all defined."""
    outdated_libraries: tuple[str, ...] | None = None
    """Libraries that do not offer the version it needs, such as `libstdc++.so.6`."""
    missing_symbol_versions: tuple[str, ...] | None = None
    """These versions, such as `GLIBC_2.34 of libc.so.6`."""
    cuda_major: int | None = None
    """CUDA major version whose runtime library it needs; 0 if it needs none."""
    cxx11_abi: bool | None = None
    """The C++ ABI that its calls into torch are written in; None if they do not show it."""
    loads: bool | None = None
    """Derived: nothing was found that would keep it from loading."""
    gpu_code: str | None = None
    """Derived: as `gpu_code` of packages, for this module alone."""


class CudaWheel(Struct, frozen=True, kw_only=True):
    """A CUDA library installed as a wheel (`nvidia-…`) in the examined environment."""

    name: str | None = None
    """Distribution, such as `nvidia-cudnn-cu13`."""
    version: Version | None = None
    """Its version."""
    cuda_major: int | None = None
    """CUDA major version it belongs to."""


class ShadowingLibrary(Struct, frozen=True, kw_only=True):
    """A CUDA library that may be loaded in place of the one torch brought along."""

    name: str | None = None
    """File name, such as `libcudart.so.12`."""
    path: str | None = None
    """Where it lies."""
    source: str | None = None
    """Why the loader may take it: `LD_LIBRARY_PATH`, `LD_PRELOAD`, `conda`, `system`."""
    loaded_first: bool | None = None
    """The loader takes it before torch's own: it is in LD_PRELOAD, or in LD_LIBRARY_PATH and loaded
    by NVIDIA's libraries, which use RUNPATH, or torch's RPATH does not lead to its own."""
