"""Reads the GPU driver and NVIDIA's GPUs: /sys and /proc first, then NVML, nvidia-smi last.

NVML answers from a child process with a time limit; a driver that hangs costs that time and no
more. NVML knows the driver, not CUDA: it shows GPUs that CUDA_VISIBLE_DEVICES hides, and it
works where libcuda, which torch needs as well, is missing.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from attn_doctor.facts import Driver, Gpu, PciDevice
from attn_doctor.facts.kinds import DriverState, GpuVendor
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.machine import pci, system
from attn_doctor.probes.nvidia import libcuda
from attn_doctor.probes.nvidia.answers import Answers, ask
from attn_doctor.probes.nvidia.gpus import from_nvml, from_smi
from attn_doctor.probes.nvidia.state import (
    LIBRARY_NOT_FOUND,
    NO_PERMISSION,
    OPERATING_SYSTEM,
    UNKNOWN,
    Traces,
    state,
)

SYS_VERSION = "/sys/module/nvidia/version"
PROC_VERSION = "/proc/driver/nvidia/version"
WSL_LIBCUDA = "/usr/lib/wsl/lib/libcuda.so.1"
#: A Jetson's GPU, which is on no PCI bus and, before JetPack 7, has no NVML.
TEGRA = ("/dev/nvhost-gpu", "/dev/nvgpu")
#: States in which there is certainly no GPU to list.
NO_GPUS = ("no-driver", "no-device", "no-gpu", "container-without-runtime")


class _Seen(Struct, frozen=True, kw_only=True):
    """What files tell, before anything is asked that might hang."""

    linux: bool
    module: str
    """Version of the loaded kernel module; empty if none is loaded."""
    source: str
    """The file that told it."""
    open_module: bool | None
    control: str
    """The driver's control device."""
    nodes: bool
    openable: bool
    wsl: bool
    wsl_libraries: bool
    container: bool
    tegra: bool
    libraries: libcuda.Libraries
    devices: tuple[PciDevice, ...]
    bus_reason: str


def read(host: Host, site: Site, gaps: Gaps) -> dict[str, Any]:
    """The fields `driver` and `gpus` of `Facts`."""
    seen = _look(host)
    heard = ask(host, _present(seen)) if _worth_asking(seen) else Answers()
    traces = _traces(host, seen, heard)
    verdict = None if seen.tegra and not heard.nvml.get("init") else state(traces)
    driver = Driver(
        state=verdict,
        error="" if verdict == "no-gpu" else heard.error,
        open_module=seen.open_module,
        device_nodes=seen.nodes and traces.openable if seen.linux else None,
        vendor=_vendor(host, seen, heard),
        **_versions(host, seen, heard, verdict),
        **_libcuda(host, seen, heard, verdict),
    )
    _explain(driver, seen, heard, gaps)
    return {"driver": driver, "gpus": _gpus(host, verdict, heard, gaps)}


def _look(host: Host) -> _Seen:
    linux = host.platform.os == "linux"
    wsl = linux and system.wsl(host) == 2
    control = "/dev/dxg" if wsl else "/dev/nvidiactl"
    names = host.try_list("/dev") if linux else ()
    numbered = [f"/dev/{name}" for name in names if re.fullmatch(r"nvidia\d+", name)]
    has_control = linux and control.removeprefix("/dev/") in names
    version = host.try_read(SYS_VERSION, 64).strip() if linux else ""
    # NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (…)
    # NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024
    text = host.try_read(PROC_VERSION, 4096) if linux else ""
    match = re.search(r"^NVRM version:.*?Module.*?\s(\d{3,}\.[\d.]*\d)\s", text, re.MULTILINE)
    devices, bus_reason = pci.look(host)
    return _Seen(
        linux=linux,
        module=version or (match[1] if match else ""),
        source=SYS_VERSION if version else PROC_VERSION if match else "",
        open_module="Open Kernel Module" in text if match else None,
        control=control,
        nodes=has_control or bool(numbered),
        openable=has_control
        and _may_open(host, control)
        and (not numbered or any(_may_open(host, path) for path in numbered)),
        wsl=wsl,
        wsl_libraries=wsl and host.is_file(WSL_LIBCUDA),
        container=linux and system.container(host) != "",
        tegra=linux and any(host.try_stat(path) for path in TEGRA),
        libraries=libcuda.find(host),
        devices=devices,
        bus_reason=bus_reason,
    )


def _may_open(host: Host, path: str) -> bool:
    return host.access(path, "r") and host.access(path, "w")


def _present(seen: _Seen) -> bool:
    """There are signs of a driver, not only of its libraries."""
    files = bool(seen.module) or seen.wsl_libraries or seen.tegra
    return files or (seen.nodes and not seen.wsl) or (not seen.linux and bool(seen.libraries.nvml))


def _worth_asking(seen: _Seen) -> bool:
    """Anything at all hints at a driver. Without, starting a process for NVML is for nothing."""
    libraries = seen.libraries
    bound = any(device.kernel_driver == "nvidia" for device in seen.devices)
    return bool(libraries.nvml or libraries.why or bound) or _present(seen)


def _traces(host: Host, seen: _Seen, heard: Answers) -> Traces:
    nvml = heard.nvml
    openable = seen.openable
    if openable and heard.code in (NO_PERMISSION, OPERATING_SYSTEM, UNKNOWN) and not heard.hung:
        # The mode bits allow it, but a container's device rules may still forbid it, which only
        # opening shows. NVML just tried that and came back, so it does not hang.
        try:
            host.read(seen.control, 0)
        except PermissionError:
            openable = False
        except OSError:
            pass
    bound = any(device.kernel_driver == "nvidia" for device in seen.devices)
    known = _libcuda_known(seen, heard)
    codes = (one["errors"].get("handle", {}).get("code") for one in nvml.get("gpus", ()))
    count = nvml.get("count") if nvml else None
    return Traces(
        code=heard.code if nvml else LIBRARY_NOT_FOUND,
        answered=not heard.hung,
        gpus=len(heard.smi.gpus) if heard.smi.code == 0 else count,
        gpu_codes=tuple(code or 0 for code in codes),
        module=bool(seen.module) or bound,
        nodes=seen.nodes,
        openable=openable,
        libcuda=bool(seen.libraries.cuda) if known else None,
        container=seen.container,
        wsl=seen.wsl,
        wsl_libraries=seen.wsl_libraries,
        # The libcuda that Windows lends is `libcuda.so.1.1`; a Linux driver's has a release.
        foreign_libcuda=seen.wsl and libcuda.release(host, seen.libraries.cuda) != "",
        on_bus=None
        if seen.bus_reason
        else any(device.vendor == "nvidia" for device in seen.devices),
    )


def _libcuda_known(seen: _Seen, heard: Answers) -> bool:
    """Whether the search for libcuda can be trusted.

    Not if the loader's cache could not be read, nor if NVML was loaded from a place where the
    search did not find it (NixOS, for one).
    """
    loaded = heard.code is not None and heard.code != LIBRARY_NOT_FOUND and not heard.smi.code
    unseen = loaded and heard.nvml.get("last") and not seen.libraries.nvml
    return bool(seen.libraries.cuda) or not (seen.libraries.why or unseen)


def _libcuda(
    host: Host, seen: _Seen, heard: Answers, verdict: DriverState | None
) -> dict[str, Any]:
    path = seen.libraries.cuda
    if not _libcuda_known(seen, heard):
        return {"libcuda": None, "libcuda_linkable": None, "libcuda_compat": None}
    return {
        "libcuda": path,
        "libcuda_linkable": libcuda.linkable(host, path) if not host.windows else None,
        # With a library mismatch every library differs from the module, compat or not.
        "libcuda_compat": seen.linux
        and libcuda.is_compat(host, path, "" if verdict == "library-mismatch" else seen.module),
    }


def _versions(
    host: Host, seen: _Seen, heard: Answers, verdict: DriverState | None
) -> dict[str, Any]:
    nvml = heard.nvml
    own = heard.smi.gpus[0].get("driver_version") if heard.smi.gpus else None
    told = ((seen.module, seen.source), (nvml.get("driver_version"), "NVML"), (own, "nvidia-smi"))
    version, source = next(((text, place) for text, place in told if text), (None, ""))
    # 13.580.95.05: the CUDA major version, then the driver's own
    library = str(nvml.get("library_version") or "").partition(".")[2]
    cuda = nvml.get("cuda") if verdict not in ("no-driver", "no-gpu") else None
    return {
        "version": version,
        "source": source,
        "library_version": library or libcuda.release(host, seen.libraries.nvml) or None,
        "cuda_max": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
    }


def _vendor(host: Host, seen: _Seen, heard: Answers) -> GpuVendor | None:
    """Whose GPU there is; NVIDIA's before AMD's before Intel's, as torch would choose."""
    if host.platform.os == "macos" and host.platform.machine == "arm64":
        return "apple"
    here = {device.vendor for device in seen.devices if device.kernel_driver != "vfio-pci"}
    if "nvidia" in here or heard.nvml.get("count") or heard.smi.gpus:
        return "nvidia"
    if seen.module or seen.tegra or seen.wsl_libraries or (seen.nodes and not seen.wsl):
        return "nvidia"
    if "amd" in here or (seen.linux and host.try_stat("/dev/kfd")):
        return "amd"
    if "intel" in here:
        return "intel"
    return None if seen.bus_reason or seen.wsl else ""


def _explain(driver: Driver, seen: _Seen, heard: Answers, gaps: Gaps) -> None:
    """A gap for each value that should have been readable."""
    reason = heard.unanswered or "NVML gave no answer"
    if driver.state is None:
        gaps.add("driver.state", _why_no_state(seen, heard))
    if driver.libcuda is None:
        why = seen.libraries.why or "NVML was found in a place where libcuda was not looked for"
        for name in ("libcuda", "libcuda_linkable", "libcuda_compat"):
            gaps.add(f"driver.{name}", why)
    if driver.vendor is None:
        gaps.add("driver.vendor", seen.bus_reason or "WSL does not show whose GPU Windows has")
    absent = driver.state in ("no-driver", "no-gpu") or (driver.state is None and not heard.nvml)
    if driver.open_module is None and seen.linux and not (absent or seen.wsl):
        gaps.add("driver.open_module", f"{PROC_VERSION} cannot be read")
    if absent:
        return
    if driver.state == "container-without-runtime":
        reason = "the driver's libraries are not in this container"
    for name in ("version", "library_version", "cuda_max"):
        if getattr(driver, name) is None:
            gaps.add(f"driver.{name}", reason)


def _why_no_state(seen: _Seen, heard: Answers) -> str:
    if seen.tegra:
        return "a Jetson's GPU does not answer through NVML"
    if seen.wsl and not seen.wsl_libraries:
        place = "this container" if seen.container else "WSL"
        return f"Windows passes no NVIDIA driver to {place}; whether it has one cannot be seen"
    if seen.module or seen.nodes:
        return heard.unanswered or "NVML could not be asked"
    return f"no NVIDIA driver was found, and whether there is a GPU is unknown: {seen.bus_reason}"


def _gpus(
    host: Host, verdict: DriverState | None, heard: Answers, gaps: Gaps
) -> tuple[Gpu, ...] | None:
    if heard.smi.gpus:
        return from_smi(heard.smi, host.environ, gaps)
    if heard.nvml.get("count") is not None:
        return from_nvml(heard.nvml, heard.unanswered, host.environ, gaps)
    if verdict in NO_GPUS:
        return ()
    gaps.add("gpus", heard.unanswered or "whether there is an NVIDIA GPU could not be told")
    return None
