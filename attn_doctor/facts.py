"""The facts: everything the probes may learn, and the only names that rules may use.

A fact's name is its attribute path from `Facts` (`torch.version`, `gpus[0].sm`). ``None`` has
one meaning, *could not tell*; the reason stands in `Facts.gaps`. Something that is simply not
there is ``installed = False`` or an empty path, never a missing value. The sentence under each
field is its documentation; `docs/facts.md` is generated from this file.

Nothing here reads the machine and nothing here judges it.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

__all__ = [
    "ELEMENTS",
    "SCHEMA",
    "Build",
    "BuiltKernels",
    "Cache",
    "CudaWheel",
    "Directory",
    "Driver",
    "Extension",
    "Facts",
    "Gpu",
    "Package",
    "PciDevice",
    "Program",
    "Python",
    "Shadow",
    "System",
    "Toolkit",
    "Torch",
    "Triton",
    "Version",
]

#: Version of the snapshot format. It rises when a fact is renamed or changes its meaning.
SCHEMA = 1

#: A version as text, compared by PEP 440. Text survives JSON; `2.10` does not become 2.1.
Version = Annotated[str, Meta(extra={"kind": "version"})]


class System(Struct, frozen=True, kw_only=True):
    """The operating system and its resources."""

    os: str | None = None
    """`linux`, `windows` or `macos`. WSL counts as linux; see `system.wsl`."""
    kernel: str | None = None
    """Kernel release, as `uname -r` prints it."""
    distribution: str | None = None
    """Distribution id in lower case, such as `ubuntu`, or the product name on Windows and macOS."""
    distribution_version: Version | None = None
    """Release of the distribution, such as `22.04`."""
    distribution_name: str | None = None
    """Name of the distribution as a person would write it."""
    wsl: int | None = None
    """0 outside WSL, else 1 or 2 for the generation of WSL."""
    container: str | None = None
    """Kind of container (`docker`, `podman`, `kubernetes`, `apptainer`, `lxc`, `other`), empty
    outside one."""
    arch: str | None = None
    """Processor architecture: `x86_64`, `aarch64`, …"""
    glibc: Version | None = None
    """Version of the GNU C library."""
    musl: bool | None = None
    """The C library is musl (Alpine), for which torch publishes no wheels."""
    cpus: int | None = None
    """Processors this process may use."""
    ram_total_mib: int | None = None
    """Physical memory in MiB, or the container's limit where that is smaller."""
    ram_available_mib: int | None = None
    """Memory that can be had without swapping, in MiB."""
    shm_total_mib: int | None = None
    """Size of /dev/shm in MiB."""
    shm_free_mib: int | None = None
    """Free space in /dev/shm in MiB."""
    ldconfig: str | None = None
    """Path of `ldconfig`, which Triton asks for libcuda; empty if there is none."""
    user_is_root: bool | None = None
    """attn-doctor runs as root."""


class Directory(Struct, frozen=True, kw_only=True):
    """A directory that compilers and caches write to."""

    purpose: str | None = None
    """`home`, `tmp` or `cache`."""
    path: str | None = None
    """Absolute path."""
    exists: bool | None = None
    """The directory exists."""
    writable: bool | None = None
    """This user may create files in it, or could create it."""
    noexec: bool | None = None
    """It is mounted `noexec`: compiled code in it cannot be loaded."""
    filesystem: str | None = None
    """Kind of file system, such as `ext4`, `tmpfs`, `nfs4`, `overlay`."""
    network: bool | None = None
    """The file system lies on another machine."""
    free_mib: int | None = None
    """Free space in MiB."""


class Python(Struct, frozen=True, kw_only=True):
    """The interpreter under examination, which need not be the one that runs attn-doctor."""

    path: str | None = None
    """Path of the interpreter."""
    chosen: str | None = None
    """Why this interpreter is examined, such as `VIRTUAL_ENV is set`."""
    version: Version | None = None
    """Python version, such as `3.12.3`."""
    minor: Version | None = None
    """Derived: major and minor version, such as `3.12`."""
    implementation: str | None = None
    """`cpython`, `pypy`, …"""
    abi: str | None = None
    """ABI tag of its extension modules, such as `cp312` or `cp313t`."""
    free_threaded: bool | None = None
    """Built without the global interpreter lock."""
    debug: bool | None = None
    """A debug build."""
    prefix: str | None = None
    """Root of the environment (`sys.prefix`)."""
    base_prefix: str | None = None
    """Root of the Python installation underneath (`sys.base_prefix`)."""
    environment: str | None = None
    """`venv`, `conda` or `system`."""
    externally_managed: bool | None = None
    """The distribution forbids pip to install here (PEP 668)."""
    headers: str | None = None
    """Path of `Python.h`; empty if it is not there."""
    include: str | None = None
    """Directory where `Python.h` belongs."""
    site_packages: tuple[str, ...] | None = None
    """Directories that hold its distributions, in import order."""
    site_packages_writable: bool | None = None
    """This user may install packages where pip would put them (`purelib`)."""
    pip: Version | None = None
    """Version of pip in the environment; empty if there is none."""
    uv: str | None = None
    """Path of `uv`; empty if there is none."""
    made_by_uv: bool | None = None
    """The environment was made by uv (`uv venv`), which installs no pip."""
    user_site: str | None = None
    """The user site directory that this interpreter adds to its path; empty if it adds none."""
    pythonpath: tuple[str, ...] | None = None
    """Entries of PYTHONPATH."""
    planted: tuple[str, ...] | None = None
    """Files outside site-packages that would be imported in place of a known package."""
    duplicates: tuple[str, ...] | None = None
    """Distributions found more than once, as `name: version in place, version in place`."""
    leftovers: tuple[str, ...] | None = None
    """Half-removed distributions (`~orch…`) that pip left behind."""
    pth_code: tuple[str, ...] | None = None
    """`.pth` files that run code at every start of this interpreter."""
    distributions: int | None = None
    """How many distributions are installed."""


class PciDevice(Struct, frozen=True, kw_only=True):
    """A display or compute device on the PCI bus, seen without any driver."""

    address: str | None = None
    """PCI address, such as `0000:01:00.0`."""
    vendor: str | None = None
    """`nvidia`, `amd`, `intel` or `other`."""
    device_id: str | None = None
    """Four hexadecimal digits."""
    name: str | None = None
    """Product name from a PCI id table; empty if the id is in none."""
    sm: int | None = None
    """Compute capability ×10 of an NVIDIA product; None if the table does not tell."""
    kernel_driver: str | None = None
    """Kernel driver bound to it, such as `nvidia`, `nouveau`, `vfio-pci`; empty if none is."""


class Driver(Struct, frozen=True, kw_only=True):
    """The GPU driver. What it supports is one of three versions called CUDA."""

    state: str | None = None
    """`ok`, or why no GPU can be used: `no-driver` (a GPU without NVIDIA driver), `no-device`
    (driver, but no GPU), `no-gpu` (neither), `no-permission`, `library-mismatch`, `no-library`,
    `container-without-runtime`, `wsl-stub`, `not-answering`, `gpu-lost`, `error`."""
    error: str | None = None
    """What the driver or NVML answered, word for word; empty if nothing went wrong."""
    version: Version | None = None
    """Version of the NVIDIA driver; of the kernel module where it differs from the library."""
    library_version: Version | None = None
    """Version of the user-space library (libnvidia-ml)."""
    source: str | None = None
    """Where the driver's version was read."""
    open_module: bool | None = None
    """The kernel module is NVIDIA's open one."""
    cuda_max: Version | None = None
    """Highest CUDA version this driver runs."""
    libcuda: str | None = None
    """Path of `libcuda.so.1` (`nvcuda.dll`) as the loader would find it; empty if it would not."""
    libcuda_linkable: bool | None = None
    """An unversioned `libcuda.so` stands beside it, which Triton up to 3.5 links against."""
    libcuda_compat: bool | None = None
    """The libcuda that would be loaded is a forward-compatibility one (`cuda-compat`)."""
    device_nodes: bool | None = None
    """`/dev/nvidiactl` (on WSL `/dev/dxg`) exists and may be opened by this user."""
    vendor: str | None = None
    """Whose GPU there is to use: `nvidia`, `amd`, `intel`, `apple`; empty if none was found."""
    best_sm: int | None = None
    """Derived: highest compute capability ×10 of the GPUs that CUDA shows; 0 if it shows none."""


class Gpu(Struct, frozen=True, kw_only=True):
    """One NVIDIA GPU, as NVML describes it."""

    index: int | None = None
    """NVML's index, which follows the PCI bus."""
    name: str | None = None
    """Product name."""
    sm: int | None = None
    """Compute capability ×10: 89 for 8.9, 120 for 12.0."""
    compute_capability: Version | None = None
    """Compute capability, such as `8.9`."""
    memory_total_mib: int | None = None
    """Memory in MiB."""
    memory_free_mib: int | None = None
    """Free memory in MiB."""
    mig: str | None = None
    """`enabled`, `disabled`, or `unsupported`."""
    mig_devices: int | None = None
    """MIG instances on this GPU."""
    compute_mode: str | None = None
    """`default`, `exclusive-process`, `prohibited` (or `exclusive-thread`)."""
    persistence: bool | None = None
    """Persistence mode is on."""
    processes: int | None = None
    """Processes that use it now."""
    uuid: str | None = None
    """NVML's unique id; left out of reports."""
    pci_bus_id: str | None = None
    """PCI address."""
    visible: bool | None = None
    """CUDA_VISIBLE_DEVICES does not hide it."""
    in_torch_archs: bool | None = None
    """Derived: the installed torch carries code for it, machine code or PTX."""
    torch_code: str | None = None
    """Derived: what that is: `yes` (machine code), `ptx` (the driver has to compile it), `no`."""


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
    lacks: tuple[str, ...] | None = None
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
    lacks: tuple[str, ...] | None = None
    """What a build would miss there (see `toolkits[].lacks`)."""
    fitting_home: str | None = None
    """Derived: root of a toolkit here that fits torch's CUDA and lacks nothing; empty if none."""
    jobs: int | None = None
    """Derived: compile jobs that fit this machine's memory and processors."""


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
    broken: str | None = None
    """What is wrong with the installation (`no torch folder`, …); empty if it is sound."""
    source: str | None = None
    """Where it came from: `index`, `url`, `vcs`, `local`, `editable`, `conda`, `system`."""
    has_flex: bool | None = None
    """The module `torch.nn.attention.flex_attention` is in the package."""
    has_build_helper: bool | None = None
    """That module defines `build_flex_attention_kernels`, which no released torch does."""
    requires_triton: str | None = None
    """The triton requirement in its metadata, such as `==3.6.0`; empty if it has none."""
    requires_python: str | None = None
    """The Python requirement in its metadata."""
    nvidia_wheels_missing: tuple[str, ...] | None = None
    """CUDA wheels that its metadata demands and the environment lacks."""
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
    fits: bool | None = None
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
    missing: tuple[str, ...] | None = None
    """Libraries it needs that the loader would not find when torch has been imported."""
    elsewhere: tuple[str, ...] | None = None
    """Where such libraries lie all the same, in folders that the loader does not search."""
    undefined: int | None = None
    """Symbols it needs that no library defines, those of Python's own left out."""
    undefined_first: tuple[str, ...] | None = None
    """The first few of these, as C++ writes them."""
    misfit: str | None = None
    """What symbols tell it was built for: `torch` (another torch), `cxx-abi` (the other C++ ABI),
    `symbols` (other libraries than those here), `unseen` (they were not compared: a library of
    torch's is missing, or the system is Windows); empty if they are all defined."""
    too_old: tuple[str, ...] | None = None
    """Libraries that do not offer the version it needs, such as `libstdc++.so.6`."""
    versions_missing: tuple[str, ...] | None = None
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


class Shadow(Struct, frozen=True, kw_only=True):
    """A CUDA library that may be loaded in place of the one torch brought along."""

    library: str | None = None
    """File name, such as `libcudart.so.12`."""
    path: str | None = None
    """Where it lies."""
    source: str | None = None
    """Why the loader may take it: `LD_LIBRARY_PATH`, `LD_PRELOAD`, `conda`, `system`."""
    wins: bool | None = None
    """The loader takes it before torch's own: it is in LD_PRELOAD, or in LD_LIBRARY_PATH and loaded
    by NVIDIA's libraries, which use RUNPATH, or torch's RPATH does not lead to its own."""


class Cache(Struct, frozen=True, kw_only=True):
    """A folder of compiled things."""

    kind: str | None = None
    """`inductor` and its parts `fxgraph` and `aotautograd`, `triton`, `extensions`, `jiterator`,
    `driver`, and `cute` where FlashAttention 4 is told to keep its kernels."""
    path: str | None = None
    """Where it lies, or would be made."""
    source: str | None = None
    """The variable that sets the place, or `default`."""
    exists: bool | None = None
    """It is there."""
    bytes: int | None = None
    """Size of its files; of those counted, where `complete` is false."""
    entries: int | None = None
    """Number of files; of those counted, where `complete` is false."""
    newest: str | None = None
    """Day and time of its newest file, UTC, ISO 8601; empty if it has none."""
    complete: bool | None = None
    """All of it was counted within the time limit."""
    writable: bool | None = None
    """This user may write to it, or could create it."""
    noexec: bool | None = None
    """It lies on a `noexec` mount."""
    filesystem: str | None = None
    """Kind of file system it lies on."""
    network: bool | None = None
    """The file system lies on another machine."""
    volatile: bool | None = None
    """It lies under the temporary directory, in memory, or in a container's own layer: lost at
    reboot or when the container ends."""
    stale_locks: int | None = None
    """Lock files of extension builds that are older than an hour, as no live build leaves them."""
    foreign_owner: bool | None = None
    """It belongs to another user."""


class BuiltKernels(Struct, frozen=True, kw_only=True):
    """What `attn-doctor build-kernels` recorded for one device in one cache folder."""

    path: str | None = None
    """The record (manifest.json)."""
    folder: str | None = None
    """The cache folder it speaks of."""
    error: str | None = None
    """Why the record cannot be used; empty if it can."""
    place: str | None = None
    """The device that was built for: `cpu`, or as in `cuda:0 NVIDIA H200`."""
    specs: int | None = None
    """Kernel specs in the record."""
    built: int | None = None
    """Those that were built and proven to be reused."""
    not_reused: int | None = None
    """Those that were built, and that a fresh process compiled again."""
    unproven: int | None = None
    """Kernels and warm-ups that were built without their GPU, or taken in without being run, and
    that still have to be compared with a float64 reference on it."""
    kernels_alone: int | None = None
    """Those of which only Triton's compiled kernels were taken in."""
    failed: int | None = None
    """Those that could not be built."""
    cleared: int | None = None
    """Those whose files were cleared and that have not been built again."""
    warmups: int | None = None
    """Programs that were run to fill the caches (`build-kernels -- python …`)."""
    seconds: float | None = None
    """Seconds that building took; the next start pays them again if the kernels are lost."""
    newest: str | None = None
    """Day and time of the last build, UTC, ISO 8601; empty if nothing was built."""
    torch: Version | None = None
    """Torch they were built with."""
    torch_cuda: str | None = None
    """CUDA of that torch; empty for a CPU build."""
    triton: Version | None = None
    """Triton they were built with; empty without one."""
    ptxas: str | None = None
    """ptxas they were compiled by."""
    python: Version | None = None
    """Python they were built under."""
    device: str | None = None
    """Name of the GPU, or `cpu`."""
    sm: int | None = None
    """Its compute capability ×10."""
    driver: Version | None = None
    """GPU driver at that time."""
    cc: str | None = None
    """C compiler at that time."""
    cxx: str | None = None
    """C++ compiler at that time."""
    cpu: str | None = None
    """Vector instructions they were compiled for; CPU kernels only."""
    environment: tuple[str, ...] | None = None
    """Environment variables that matter and were set, as `NAME=value`."""
    missing: int | None = None
    """Recorded files that are gone or have another size."""
    held_paths: tuple[str, ...] | None = None
    """Folders other than this one in which its graphs were built, and beside whose files torch
    writes the results of its autotuning."""
    held_path_blocked: str | None = None
    """The first of them that this user can neither write to nor create; empty if there is none."""
    here: bool | None = None
    """Derived: that device is on this machine."""
    drift: str | None = None
    """Derived: what has moved since, so that kernels have to be built anew; empty if nothing."""
    unaffected: str | None = None
    """Derived: what has moved since and makes no kernel stale; empty if nothing."""
    stale: int | None = None
    """Derived: specs and warm-ups that have to be built anew because of `drift`."""
    driver_moved: str | None = None
    """Derived: the driver is `newer` or `older` than at that time; empty if it is the same."""


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
    extensions: tuple[Extension, ...] | None = None
    """Compiled modules of the packages of interest, and of kernels from the Hub for this torch; on
    Linux and Windows."""
    cuda_wheels: tuple[CudaWheel, ...] | None = None
    """CUDA libraries installed as wheels."""
    shadows: tuple[Shadow, ...] | None = None
    """CUDA libraries that may be loaded in place of torch's."""
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
    """Environment variables that matter here; one that is not set reads as empty text."""
    caches: tuple[Cache, ...] | None = None
    """Folders of compiled things."""
    manifests: tuple[BuiltKernels, ...] | None = None
    """What was built ahead of time, one for each device in a cache folder."""
    pretended: tuple[str, ...] = ()
    """What was made up with `--pretend`; none of it in a real examination."""
    gaps: dict[str, str] = {}
    """For a fact that could not be read, why."""

    def gap(self, name: str) -> str:
        """Why the fact `name` is unknown: its own reason, or that of the probe it belongs to."""
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            reason = self.gaps.get(".".join(parts[:length]))
            if reason:
                return reason
        # `caches[0].noexec` may be unknown for the reason that holds for all `caches`.
        return self.gaps.get(name.partition("[")[0], "")


#: What one element of each list of facts is called in rules with `for_each`.
ELEMENTS: dict[str, str] = {
    "directories": "directory",
    "pci": "device",
    "gpus": "gpu",
    "toolkits": "toolkit",
    "extensions": "extension",
    "cuda_wheels": "wheel",
    "shadows": "shadow",
    "caches": "cache",
    "manifests": "manifest",
}


def to_json(facts: Facts) -> bytes:
    """`facts` as one JSON object, fields in the order of this file."""
    return msgspec.json.format(msgspec.json.encode(facts), indent=1)


def to_builtins(facts: Facts) -> dict[str, Any]:
    """`facts` as plain dictionaries, lists and scalars."""
    plain: dict[str, Any] = msgspec.to_builtins(facts)
    return plain
