"""Works out the state of the GPU driver from its traces.

Nothing is read here: `Traces` holds what was read, `state` returns one of the values of
`facts.Driver.state`, where they are explained.
"""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.facts.kinds import DriverState

#: NVML's error numbers (nvmlReturn_t) that have a state of their own; the others are `error`.
#: https://docs.nvidia.com/deploy/nvml-api/latest/nvml-api-reference.html
NO_PERMISSION = 4  # "does not have permission to talk to the driver"
NOT_FOUND = 6  # nvmlInit found no GPU at all; nvidia-smi says "No devices were found"
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
GPU_IS_LOST = 15  # "fallen off the bus or has otherwise become inaccessible"
RESET_REQUIRED = 16
OPERATING_SYSTEM = 17  # "blocked by the operating system/cgroups"
LIB_RM_VERSION_MISMATCH = 18
GPU_NOT_FOUND = 28
UNKNOWN = 999

_BY_CODE: dict[int, DriverState] = {
    NO_PERMISSION: "no-permission",
    NOT_FOUND: "no-device",
    GPU_NOT_FOUND: "no-device",
    # One lost GPU keeps nvidia-smi and often all of CUDA from working until a reset or reboot:
    # https://github.com/JosephKJ/OWOD/issues/81
    GPU_IS_LOST: "gpu-lost",
    RESET_REQUIRED: "gpu-lost",
    # An update replaced the libraries while the old kernel module stayed loaded:
    # https://github.com/oddmario/NVIDIA-Ubuntu-Driver-Guide/issues/4
    LIB_RM_VERSION_MISMATCH: "library-mismatch",
}


class Traces(Struct, frozen=True, kw_only=True):
    """Signs of an NVIDIA driver on a Linux machine or in WSL."""

    code: int | None = None
    """NVML's answer to nvmlInit: 0 for success, its error number, None if it was not asked."""
    answered: bool = True
    """NVML answered within its time limit."""
    gpus: int | None = None
    """Number of GPUs that NVML lists."""
    gpu_codes: tuple[int, ...] = ()
    """NVML's answer to the question for each GPU's handle."""
    module: bool = False
    """The kernel module is loaded."""
    nodes: bool = False
    """/dev/nvidiactl or /dev/nvidia0 exists (on WSL, /dev/dxg)."""
    openable: bool = False
    """This user may open them."""
    libcuda: bool | None = None
    """The loader finds libcuda; None if unknown."""
    container: bool = False
    """This is inside a container."""
    wsl: bool = False
    """The kernel is that of WSL."""
    wsl_libraries: bool = False
    """Windows provides an NVIDIA driver to WSL (/usr/lib/wsl/lib/libcuda.so.1)."""
    foreign_libcuda: bool = False
    """On WSL: the loader takes the libcuda of a Linux driver, which cannot work there."""
    on_bus: bool | None = None
    """An NVIDIA GPU is on the PCI bus; None if the bus could not be read."""


def state(seen: Traces) -> DriverState | None:
    """Return the state of the driver; None if the traces do not show it."""
    if not seen.answered:
        return "not-answering"
    if seen.code == 0:
        return _running(seen)
    if seen.code == OPERATING_SYSTEM and seen.container:
        # The cgroup of the container blocks the devices, in WSL too:
        # https://github.com/microsoft/WSL/issues/9962
        return "no-permission"
    if seen.code in (OPERATING_SYSTEM, DRIVER_NOT_LOADED) and seen.wsl:
        # The library is there without a usable driver: /dev/dxg or driver files of Windows are
        # missing, or the GPU is in TCC mode, which WSL cannot use.
        # https://github.com/microsoft/WSL/issues/9938, /issues/11865
        return "wsl-stub"
    if seen.code == OPERATING_SYSTEM:
        return "no-permission"
    if seen.code == UNKNOWN and seen.nodes and not seen.openable:
        # A container that loses its devices to a `systemctl daemon-reload` on its host says
        # "Unknown Error": https://github.com/NVIDIA/nvidia-container-toolkit/issues/48
        return "no-permission"
    if seen.code in _BY_CODE:
        return _BY_CODE[seen.code]
    if seen.code in (None, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND):
        return _unreached(seen)
    return "error"


def _running(seen: Traces) -> DriverState:
    """Return the state if NVML works; CUDA may still not run."""
    if seen.gpus is None:
        return "error"
    lost = [code for code in seen.gpu_codes if code in (GPU_IS_LOST, RESET_REQUIRED)]
    if lost:
        return "gpu-lost"
    if not seen.gpus:
        return "no-device"
    failed = [code for code in seen.gpu_codes if code]
    if len(failed) == seen.gpus:
        return "no-permission" if set(failed) <= {NO_PERMISSION, OPERATING_SYSTEM} else "error"
    if seen.foreign_libcuda:
        # https://docs.nvidia.com/cuda/wsl-user-guide: no Linux driver may be installed in WSL.
        return "wsl-stub"
    if seen.libcuda is False:
        # In a container: `compute` is missing in NVIDIA_DRIVER_CAPABILITIES.
        return "no-library"
    return "ok"


def _unreached(seen: Traces) -> DriverState | None:
    """Return the state if NVML is missing or found no driver."""
    if seen.wsl:
        if seen.wsl_libraries:
            return "no-library" if seen.nodes else "wsl-stub"
        return None  # WSL does not show whether Windows has an NVIDIA GPU
    if seen.module or seen.nodes:
        # With libcuda but without NVML, NVIDIA_DRIVER_CAPABILITIES lacks `utility`.
        bare = seen.code == LIBRARY_NOT_FOUND and not seen.libcuda
        if seen.container and (not seen.nodes or bare):
            return "container-without-runtime"
        if seen.nodes and not seen.openable:
            return "no-permission"
        if seen.code == LIBRARY_NOT_FOUND:
            return "no-library"
        # The module is loaded and its devices can be opened (or do not exist yet, because
        # nvidia-modprobe creates them): NVML's own error text is all there is. If NVML was not
        # asked, the state is unknown.
        return None if seen.code is None else "error"
    if seen.on_bus is None:
        return None
    return "no-driver" if seen.on_bus else "no-gpu"
