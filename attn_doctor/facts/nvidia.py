"""NVIDIA's GPUs and the driver that shows them."""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.facts.kinds import Version


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
