"""NVIDIA GPUs and their driver."""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.facts.kinds import DriverState, GpuCode, GpuVendor, Mig, Version


class Driver(Struct, frozen=True, kw_only=True):
    """The GPU driver. The CUDA version that it supports differs from torch's and the toolkit's."""

    state: DriverState | None = None
    """`ok`, or why no GPU can be used: `no-driver` (a GPU without NVIDIA driver), `no-device`
    (driver, but no GPU), `no-gpu` (neither), `no-permission`, `library-mismatch`, `no-library`,
    `container-without-runtime`, `wsl-stub`, `not-answering`, `gpu-lost`, `error`."""
    error: str | None = None
    """The driver's or NVML's own error text; empty without one."""
    version: Version | None = None
    """Version of the NVIDIA driver; of its kernel module if module and library differ."""
    library_version: Version | None = None
    """Version of the user-space library (libnvidia-ml)."""
    source: str | None = None
    """Where the driver's version was read."""
    open_module: bool | None = None
    """The kernel module is NVIDIA's open-source one."""
    cuda_max: Version | None = None
    """Highest CUDA version that this driver supports."""
    libcuda: str | None = None
    """Path of the `libcuda.so.1` (`nvcuda.dll`) that the loader finds; empty if it finds none."""
    libcuda_linkable: bool | None = None
    """An unversioned `libcuda.so` is in the same folder; Triton up to 3.5 links against it."""
    libcuda_compat: bool | None = None
    """The loader would take a forward-compatibility libcuda (`cuda-compat`)."""
    device_nodes: bool | None = None
    """`/dev/nvidiactl` (on WSL `/dev/dxg`) exists and this user may open it."""
    vendor: GpuVendor | None = None
    """Vendor of the usable GPU: `nvidia`, `amd`, `intel`, `apple`; empty if none was found."""
    best_sm: int | None = None
    """Derived: highest compute capability ×10 of the GPUs visible to CUDA; 0 if there is none."""


class Gpu(Struct, frozen=True, kw_only=True):
    """One NVIDIA GPU, as NVML reports it."""

    index: int | None = None
    """NVML's index, in the order of PCI addresses."""
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
    mig: Mig | None = None
    """`enabled`, `disabled`, or `unsupported`."""
    mig_devices: int | None = None
    """MIG instances on this GPU."""
    compute_mode: str | None = None
    """`default`, `exclusive-process`, `prohibited` (or `exclusive-thread`)."""
    persistence: bool | None = None
    """Persistence mode is on."""
    processes: int | None = None
    """Number of processes that compute on it now. One that only draws does not count."""
    uuid: str | None = None
    """NVML's unique id; removed from reports."""
    pci_bus_id: str | None = None
    """PCI address."""
    visible: bool | None = None
    """CUDA_VISIBLE_DEVICES does not hide it."""
    in_torch_archs: bool | None = None
    """Derived: the installed torch contains code for it, machine code or PTX."""
    torch_code: GpuCode | None = None
    """Derived: torch's code for it: `yes` (machine code), `ptx` (the driver compiles it), `no`."""
    min_nvcc: Version | None = None
    """Derived: oldest CUDA, from 11.8 on, whose nvcc compiles for it."""
