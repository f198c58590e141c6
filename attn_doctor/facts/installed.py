"""Packages of the examined environment: torch, Triton, others, and their libraries."""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.facts.kinds import (
    ArchsSource,
    Basis,
    ExtensionMismatch,
    GpuCode,
    Origin,
    PrebuiltWheel,
    TorchBuild,
    Version,
)


class Torch(Struct, frozen=True, kw_only=True):
    """The torch of the examined environment, read as text and never imported."""

    installed: bool | None = None
    """A torch distribution or package is installed."""
    version: Version | None = None
    """Its version with the local part, such as `2.11.0+cu130`."""
    local: str | None = None
    """Local part of the version (`cu130`, `cpu`, `rocm6.4`); empty if there is none."""
    build: TorchBuild | None = None
    """Platform of the build: `cuda`, `rocm`, `xpu`, `cpu` or `mps`."""
    cuda: Version | None = None
    """CUDA version of the build; None unless `torch.build` is `cuda`."""
    hip: Version | None = None
    """ROCm version of the build; None unless `torch.build` is `rocm`."""
    debug: bool | None = None
    """A debug build."""
    git_version: str | None = None
    """Commit of the build."""
    cxx11_abi: bool | None = None
    """Built with the new C++ ABI of libstdc++. Extensions must use the same ABI."""
    path: str | None = None
    """Folder of the package."""
    installation_error: str | None = None
    """What is wrong with the installation (`no torch folder`, …); empty if nothing is."""
    import_error: str | None = None
    """Why an import of it fails for a requirement that is not met; empty if no reason was found."""
    import_doubt: str | None = None
    """Why an import of it may fail: it reaches a package that is installed in another version than
    required; empty if no reason was found. `import_error` is then unknown."""
    unknown_log: str | None = None
    """A name in TORCH_LOGS that this torch does not know; empty if it knows all."""
    lost_plugin: str | None = None
    """Package of a device backend that `import torch` loads and does not find; empty if none."""
    unrecorded_plugin: str | None = None
    """Folder of the metadata of that package if pip cannot remove it for lack of a RECORD; else
    empty."""
    source: Origin | None = None
    """Where it was installed from: `index`, `url`, `vcs`, `local`, `editable`, `conda`,
    `system`."""
    from_pypi: bool | None = None
    """A CUDA build whose metadata have no local version, as only PyPI's wheels of it do."""
    from_pythonpath: bool | None = None
    """A folder of PYTHONPATH holds it, without its metadata: often a checkout of its sources."""
    has_flex: bool | None = None
    """The module `torch.nn.attention.flex_attention` is in the package."""
    flex_import_error: str | None = None
    """Why an import of that module, or of `torch._dynamo`, which its first call imports, fails
    for a requirement that is not met; empty if no reason was found."""
    has_build_helper: bool | None = None
    """That module defines `build_flex_attention_kernels`, which no released torch does."""
    bytecode: bool | None = None
    """Its modules have `.pyc` files for this interpreter, so that an import does not compile them.
    An outdated `.pyc` file counts too."""
    bytecode_writable: bool | None = None
    """This user may write these `.pyc` files."""
    requires_triton: str | None = None
    """The triton requirement in its metadata, such as `==3.6.0`; empty if it has none."""
    requires_python: str | None = None
    """The Python requirement in its metadata."""
    missing_nvidia_wheels: tuple[str, ...] | None = None
    """CUDA wheels that its metadata requires and that are not installed."""
    overwritten_wheel: str | None = None
    """A CUDA wheel for its CUDA whose files one for another CUDA has overwritten, as a requirement
    such as `nvidia-nccl-cu13==2.28.9`; empty if there is none."""
    missing_libraries: tuple[str, ...] | None = None
    """Libraries that torch's own libraries need and that the loader would not find, so that
    `import torch` fails. On Windows only those of Microsoft's runtimes; None on macOS."""
    foreign_library: str | None = None
    """A library of LD_LIBRARY_PATH or LD_PRELOAD, which the loader of Linux takes first, and with
    which `import torch` fails; empty if there is none. None on other systems."""
    foreign_fault: str | None = None
    """What is wrong with it: `libtorch_cpu.so needs its version GOMP_4.5`."""
    foreign_variable: str | None = None
    """The variable that names it or its folder."""
    cuda_major: int | None = None
    """Derived: major part of `torch.cuda`."""
    cuda_tag: str | None = None
    """Derived: name of its CUDA version in wheel indexes, such as `cu130`."""
    minor: str | None = None
    """Derived: major and minor version, such as `2.11`."""
    release: str | None = None
    """Derived: version without the local part, such as `2.11.0`."""
    again: tuple[str, ...] | None = None
    """Derived: what pip installs to get this build again, from where it came: its requirement and
    the options of its index. Empty if no index of PyTorch has it."""
    natten_wheel: tuple[str, ...] | None = None
    """Derived: what pip installs to get NATTEN's newest wheel for this build, on Linux and x86_64;
    empty if the tables have none."""
    cubins: tuple[str, ...] | None = None
    """GPU architectures with machine code in most kernels of its CUDA library, by CUDA's names:
    `80`, `90a`. A few kernels may have code for more. Read from the file."""
    ptx: tuple[str, ...] | None = None
    """GPU architectures with PTX in most of those kernels. The driver can compile it for newer
    GPUs."""
    archs: tuple[int, ...] | None = None
    """Derived: compute capabilities ×10 with machine code: those of `torch.cubins`, else those that
    the release's own wheels are known to have."""
    archs_source: ArchsSource | None = None
    """Derived: source of `torch.archs`: `file` or `table`; empty if unknown."""
    gpu_code: GpuCode | None = None
    """Derived: the worst `gpus[].torch_code` of the GPUs visible to CUDA; empty if there is
    none."""
    min_driver: Version | None = None
    """Derived: lowest driver version for its CUDA on this system (minor version compatibility)."""
    index: str | None = None
    """Derived: the index of PyTorch that has this build, such as `cu130`, `cpu` or `rocm6.4`; empty
    for a build of others and for one that is not a release."""
    index_for_driver: str | None = None
    """Derived: the torch wheel index for this driver and these GPUs, such as `cu128`; empty if
    there is none."""
    pin_for_driver: str | None = None
    """Derived: what to install from that index: `torch==2.11.*`, the installed release, if the
    index has it, else `torch`; empty if there is no index."""
    newest_index: str | None = None
    """Derived: the torch wheel index with the newest release that has a build for this driver,
    these GPUs and this Python; empty if none has."""
    newest_release: Version | None = None
    """Derived: that release, such as `2.15`; empty if there is none."""
    max_python: Version | None = None
    """Derived: newest Python that `torch.compile` of this torch supports."""


#: The distributions that contain a module `triton`.
TRITON_DISTRIBUTIONS = (
    "triton",
    "triton-windows",
    "pytorch-triton",
    "pytorch-triton-rocm",
    "pytorch-triton-xpu",
    "triton-rocm",
    "triton-xpu",
    "triton-nightly",
)


class Triton(Struct, frozen=True, kw_only=True):
    """Triton, the compiler behind FlexAttention and parts of SageAttention."""

    installed: bool | None = None
    """A distribution with the module `triton` is installed."""
    version: Version | None = None
    """Its version."""
    distribution: str | None = None
    """The distribution that contains it: `triton`, `triton-windows`, `pytorch-triton`, …"""
    path: str | None = None
    """Folder of the package."""
    providers: tuple[str, ...] | None = None
    """All distributions that contain the module. Several of them overwrite each other's files."""
    backends: tuple[str, ...] | None = None
    """Backends in the package, such as `nvidia`, `amd`."""
    setuptools_missing: bool | None = None
    """It imports setuptools, as releases before 3.3 do, and setuptools is not installed."""
    ptxas: str | None = None
    """Path of the bundled ptxas; empty if there is none."""
    ptxas_version: Version | None = None
    """Derived: CUDA version of that ptxas."""
    ptxas_blackwell: str | None = None
    """Path of the second bundled ptxas, for newer GPUs; empty if there is none."""
    ptxas_blackwell_version: Version | None = None
    """Derived: CUDA version of that ptxas."""
    expected: str | None = None
    """Derived: the version for this torch, as a specifier such as `==3.6.*`."""
    pin: str | None = None
    """Derived: the requirement to install for this torch and system, such as `triton==3.6.0`."""


class Package(Struct, frozen=True, kw_only=True):
    """One known package of the examined environment, read from its metadata and files."""

    installed: bool | None = None
    """It is installed."""
    version: Version | None = None
    """Its version."""
    distribution: str | None = None
    """Name of its distribution."""
    path: str | None = None
    """Folder of its module; empty if the module's files are missing."""
    source: Origin | None = None
    """Where it was installed from: `index`, `url`, `vcs`, `local`, `editable`, `conda`,
    `system`."""
    source_url: str | None = None
    """The URL or path that it was installed from, without credentials; empty if not recorded."""
    python_tag: str | None = None
    """Python tag of its wheel, such as `cp312` or `py3`."""
    abi_tag: str | None = None
    """ABI tag of its wheel, such as `cp312`, `abi3` or `none`."""
    platform_tag: str | None = None
    """Platform tag of its wheel."""
    built_torch: Version | None = None
    """torch that it was compiled against, from its own build record or the wheel's name."""
    built_cuda: Version | None = None
    """CUDA that it was compiled with, from the same sources or the version in its files; sometimes
    only a major version."""
    built_cxx11_abi: bool | None = None
    """It was compiled with the new C++ ABI of libstdc++, from the wheel's name."""
    built_python: Version | None = None
    """Python that it was compiled for, from its build record or the names of its extensions."""
    extensions: tuple[str, ...] | None = None
    """Names of its compiled extension modules."""
    import_error: str | None = None
    """Why an import of it fails for a requirement that is not met; empty if no reason was found."""
    import_doubt: str | None = None
    """Why an import of it may fail: it reaches a package that is installed in another version than
    required; empty if no reason was found. `import_error` is then unknown."""
    imports_torchvision: bool | None = None
    """For Transformers: its models import torchvision where it is installed, and fail with it."""
    requires_torch: str | None = None
    """The torch requirement in its metadata, such as `==2.10.0`; else the oldest torch in its
    wheel's name (`torch2.9.0andhigher`) or in the files of torchao; empty if there is none."""
    requires_python: str | None = None
    """The Python requirement in its metadata."""
    flash_attn_range: str | None = None
    """The releases of flash-attn that xformers accepts, by its own source, as a specifier; empty if
    it names none. None for other packages."""
    kernels_range: str | None = None
    """The releases of kernels that Transformers accepts, by its own source, as a specifier; empty
    if it names none. None for other packages."""
    code: tuple[str, ...] | None = None
    """Of a Transformers or xformers that the tables do not know: names of what its source defines,
    each with a digest of what decides a call."""
    built_minor: str | None = None
    """Derived: major and minor part of `built_torch`, such as `2.8`."""
    built_cuda_major: int | None = None
    """Derived: major part of `built_cuda`."""
    expected: str | None = None
    """Derived: versions compatible with the installed torch, as a specifier, from tables; for
    flash-attn the versions with a prebuilt wheel."""
    index: str | None = None
    """Derived: for xformers where these versions are for this CUDA major version: `pypi` for a
    torch of PyPI, else the newest of torch's wheel indexes, such as `cu130`; empty if nowhere."""
    again: tuple[str, ...] | None = None
    """Derived: for torchaudio, what pip installs to get the one for this torch, from where torch
    came: a requirement and the options of an index; empty if none has it."""
    wheel: PrebuiltWheel | None = None
    """Derived: `yes` if a prebuilt wheel exists for this torch, CUDA and Python; `no` if pip would
    compile it from source; None if the tables do not list it."""
    accepts_flash_attn: bool | None = None
    """Derived: this xformers accepts the installed flash-attn, by its source, else from tables."""
    accepts_kernels: bool | None = None
    """Derived: this Transformers accepts the installed kernels, by its source."""
    loads: bool | None = None
    """Derived: no reason was found, in the files of its extension modules, why they could not be
    loaded; false if none of its main modules can be."""
    load_error: str | None = None
    """Derived: why none of its main modules can be loaded, of the first one; empty if no reason
    was found, or if it has no compiled modules."""
    known_to_load: bool | None = None
    """Derived: `loads` is true. False if `loads` is false or unknown, so that rules use the build
    record when the files give no answer."""
    gpu_code: GpuCode | None = None
    """Derived: code in its modules for the GPUs visible to CUDA, the worst case: `yes` (machine
    code), `ptx` (the driver compiles it at the first start), `no`; empty if they contain no GPU
    code or no GPU is visible."""


class Extension(Struct, frozen=True, kw_only=True):
    """One compiled module, read and not loaded."""

    package: str | None = None
    """Its package, by the name of its facts, such as `flash_attn`; `hub` for a Hub kernel."""
    name: str | None = None
    """Its file name up to the first dot; for a Hub kernel with its repository."""
    path: str | None = None
    """Path of its file."""
    fault: str | None = None
    """What is wrong with the file itself: it is empty, cut short, made for another Python or
    processor; empty if nothing is."""
    archs: tuple[str, ...] | None = None
    """GPU architectures with machine code in it, by CUDA's names: `80`, `90a` (only that
    architecture), `120f` (its family)."""
    ptx: tuple[str, ...] | None = None
    """GPU architectures with PTX in it. The driver can compile it for newer GPUs."""
    ptx_cuda: Version | None = None
    """CUDA version that a driver must support to compile that PTX; empty without PTX."""
    missing_libraries: tuple[str, ...] | None = None
    """Libraries it needs that the loader would not find after `import torch`."""
    missing_found_at: tuple[str, ...] | None = None
    """Paths of these libraries in folders that the loader does not search."""
    undefined_symbol_count: int | None = None
    """Number of symbols it needs that no library defines, without those of Python itself."""
    first_undefined_symbols: tuple[str, ...] | None = None
    """The first few of these symbols, demangled."""
    mismatch: ExtensionMismatch | None = None
    """What it was built for, according to its undefined symbols: `torch` (another torch), `cxx-abi`
    (the other C++ ABI), `libraries` (other versions of other libraries), `unchecked` (not compared:
    a library of torch is missing); empty if all symbols are defined."""
    outdated_libraries: tuple[str, ...] | None = None
    """Libraries without a symbol version that it needs, such as `libstdc++.so.6`."""
    missing_symbol_versions: tuple[str, ...] | None = None
    """These symbol versions, such as `GLIBC_2.34 of libc.so.6`."""
    cuda_major: int | None = None
    """CUDA major version of the runtime library it needs; 0 if it needs none."""
    cxx11_abi: bool | None = None
    """Its calls into torch use the new C++ ABI of libstdc++; None if they do not show it."""
    loads: bool | None = None
    """Derived: no reason was found why it could not be loaded."""
    load_error: str | None = None
    """Derived: why it cannot be loaded, such as `undefined symbol …`; empty if no reason was
    found."""
    gpu_code: GpuCode | None = None
    """Derived: as `gpu_code` of packages, for this module only."""
    requirement: str | None = None
    """Derived: what pip installs to replace it by a new copy, such as `torchao==0.14.0`; empty for
    a kernel of the Hub and for a module that torch compiled at run time."""
    again: tuple[str, ...] | None = None
    """Derived: what pip installs to get a wheel of its package for this torch, from where torch
    came: a requirement and the options of an index; empty if none is known."""
    rebuild: tuple[str, ...] | None = None
    """Derived: what pip installs to build its package for this torch: a requirement and options;
    empty for packages that have only wheels."""


class UnmetRequirement(Struct, frozen=True, kw_only=True):
    """A requirement in the metadata of an installed package that the environment does not meet."""

    package: str | None = None
    """The distribution that requires it, such as `diffusers`."""
    needs: str | None = None
    """What it requires, as for pip: `packaging>=20.0`."""
    installed: Version | None = None
    """The version that is installed; empty if none is."""
    together: str | None = None
    """What all installed packages that require it accept, as for pip; empty if nothing is."""
    rival: str | None = None
    """An installed package that excludes it: `huggingface-hub>=1.32 for diffusers 0.42.1`; empty if
    there is none."""
    renewed: str | None = None
    """The package that must be newer, because it requires a release that another one excludes:
    `transformers>4.57.1`; empty if there is none."""
    beside: str | None = None
    """That other package, as it is installed: `diffusers==0.42.1`."""
    lowered: str | None = None
    """Otherwise the other package has to be older: `diffusers<0.42.1`."""
    unchanged: str | None = None
    """Then this one stays as it is: `transformers==4.57.1`."""
    along: str | None = None
    """What the same command names so that the other packages still fit, separated by spaces:
    `huggingface-hub<2.0,>=1.32.0`; empty if nothing."""


class Dispatcher(Struct, frozen=True, kw_only=True):
    """Diffusers' attention dispatcher, `models/attention_dispatch.py`, read as text.

    All but the checksum is read only where the file is not that of a known release.
    """

    checksum: str | None = None
    """Size and CRC-32 of the file; empty if Diffusers has none."""
    names: tuple[str, ...] | None = None
    """Names of backends that it accepts."""
    masks: tuple[str, ...] | None = None
    """For each name, what it does with a mask: `takes`, `refuses`, `drops`."""
    hub: tuple[str, ...] | None = None
    """For each name, the repository of its kernel; empty if it has none."""
    codes: tuple[str, ...] | None = None
    """For each name, a digest of the code that decides how a call ends."""
    shared: str | None = None
    """The same digest of what every call goes through."""
    release: Version | None = None
    """Derived: a known release with this very file; empty if there is none."""
    reference: Version | None = None
    """Derived: the known release that it is compared with; empty if the file is that of one."""
    changed: tuple[str, ...] | None = None
    """Derived: names whose code differs from that release, or that it does not have."""
    shared_changed: bool | None = None
    """Derived: what every call goes through differs from that release."""


class NewerRelease(Struct, frozen=True, kw_only=True):
    """Derived: an installed release that is newer than the newest one that the tables know.

    Or a Diffusers whose attention dispatcher is not that of its release.
    """

    package: str | None = None
    """Name of its facts, such as `diffusers`, or `driver`."""
    version: Version | None = None
    """The installed version."""
    known: Version | None = None
    """The newest release that the tables know."""
    basis: Basis | None = None
    """`source`: from its own files; `known`: as the newest known release; `unknown`: what tables
    have for each release is unknown for it."""
    changed: tuple[str, ...] | None = None
    """Names of backends whose code differs from that of the known release: of Diffusers, and of
    Transformers. Of xformers, its operators with other constraints."""
    text: str | None = None
    """All of it as a sentence."""


class CudaWheel(Struct, frozen=True, kw_only=True):
    """A CUDA library installed as a wheel (`nvidia-…`) in the examined environment."""

    name: str | None = None
    """Distribution, such as `nvidia-cudnn-cu13`."""
    version: Version | None = None
    """Its version."""
    cuda_major: int | None = None
    """CUDA major version that it belongs to."""


class ShadowingLibrary(Struct, frozen=True, kw_only=True):
    """A CUDA library that the loader may take instead of the one installed with torch."""

    name: str | None = None
    """File name, such as `libcudart.so.12`."""
    path: str | None = None
    """Its path."""
    source: str | None = None
    """Why the loader may take it: `LD_LIBRARY_PATH`, `LD_PRELOAD`, `conda`, `system`."""
    loaded_first: bool | None = None
    """The loader takes it before torch's own: it is in LD_PRELOAD; or it is in LD_LIBRARY_PATH and
    NVIDIA's libraries, which use RUNPATH, load it; or torch's RPATH does not lead to its own."""
