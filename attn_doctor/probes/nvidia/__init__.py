"""Reads the GPU driver and NVIDIA's GPUs: first /sys and /proc, then NVML, then nvidia-smi.

A child process with a time limit asks NVML, so that a hanging driver costs no more than that time.
NVML knows the driver, not CUDA: it lists GPUs that CUDA_VISIBLE_DEVICES hides, and it works without
libcuda, which torch needs.
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
from attn_doctor.probes.nvidia.state import (
    LIBRARY_NOT_FOUND,
    NO_PERMISSION,
    OPERATING_SYSTEM,
    UNKNOWN,
    Traces,
    state,
)
from attn_doctor.probes.running import Probe

SYS_VERSION = "/sys/module/nvidia/version"
PROC_VERSION = "/proc/driver/nvidia/version"
WSL_LIBCUDA = "/usr/lib/wsl/lib/libcuda.so.1"
#: Device files of a Jetson's GPU, which is not on a PCI bus and has no NVML before JetPack 7.
TEGRA = ("/dev/nvhost-gpu", "/dev/nvgpu")
#: States in which there is certainly no GPU to list.
NO_GPUS = ("no-driver", "no-device", "no-gpu", "container-without-runtime")


class _Files(Struct, frozen=True, kw_only=True):
    """What files show, read before any question that could hang."""

    linux: bool
    module: str
    """Version of the loaded kernel module; empty if none is loaded."""
    source: str
    """The file with that version."""
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
    files = _look(host)
    answers = ask(host, _present(files)) if _worth_asking(files) else Answers()
    traces = _traces(host, files, answers)
    verdict = None if files.tegra and not answers.nvml.get("init") else state(traces)
    driver = Driver(
        state=verdict,
        error="" if verdict == "no-gpu" else answers.error,
        open_module=files.open_module,
        device_nodes=files.nodes and traces.openable if files.linux else None,
        vendor=_vendor(host, files, answers),
        **_versions(host, files, answers, verdict),
        **_libcuda(host, files, answers, verdict),
    )
    _explain(driver, files, answers, gaps)
    return {"driver": driver, "gpus": _gpus(host, verdict, answers, gaps)}


def _look(host: Host) -> _Files:
    linux = host.platform.os == "linux"
    wsl = linux and system.wsl(host) == 2
    control = "/dev/dxg" if wsl else "/dev/nvidiactl"
    names = host.try_list("/dev") if linux else ()
    numbers = ((name, name.removeprefix("nvidia")) for name in names)
    numbered = [f"/dev/{name}" for name, end in numbers if end != name and end.isdecimal()]
    has_control = linux and control.removeprefix("/dev/") in names
    version = host.try_read(SYS_VERSION, 64).strip() if linux else ""
    # NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (…)
    # NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024
    text = host.try_read(PROC_VERSION, 4096) if linux else ""
    pattern = r"^NVRM version:.*?Module.*?\s(\d{3,}\.[\d.]*\d)\s"
    match = re.search(pattern, text, re.MULTILINE) if text else None
    devices, bus_reason = pci.look(host)
    return _Files(
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


def _present(files: _Files) -> bool:
    """There are signs of a driver, not only of its libraries."""
    signs = bool(files.module) or files.wsl_libraries or files.tegra
    signs = signs or (files.nodes and not files.wsl)
    return signs or (not files.linux and bool(files.libraries.nvml))


def _worth_asking(files: _Files) -> bool:
    """There is any sign of a driver. Without one, a process that asks NVML would be wasted time."""
    libraries = files.libraries
    bound = any(device.kernel_driver == "nvidia" for device in files.devices)
    return bool(libraries.nvml or libraries.why or bound) or _present(files)


def _traces(host: Host, files: _Files, answers: Answers) -> Traces:
    nvml = answers.nvml
    openable = files.openable
    if openable and answers.code in (NO_PERMISSION, OPERATING_SYSTEM, UNKNOWN) and not answers.hung:
        # The mode bits allow it, but a container's device rules may forbid it, which only
        # opening shows. NVML just opened it and returned, so opening does not hang.
        try:
            host.read(files.control, 0)
        except PermissionError:
            openable = False
        except OSError:
            pass
    bound = any(device.kernel_driver == "nvidia" for device in files.devices)
    known = _libcuda_known(files, answers)
    codes = (one["errors"].get("handle", {}).get("code") for one in nvml.get("gpus", ()))
    count = nvml.get("count") if nvml else None
    return Traces(
        code=answers.code if nvml else LIBRARY_NOT_FOUND,
        answered=not answers.hung,
        gpus=len(answers.smi.gpus) if answers.smi.code == 0 else count,
        gpu_codes=tuple(code or 0 for code in codes),
        module=bool(files.module) or bound,
        nodes=files.nodes,
        openable=openable,
        libcuda=bool(files.libraries.cuda) if known else None,
        container=files.container,
        wsl=files.wsl,
        wsl_libraries=files.wsl_libraries,
        # The libcuda that Windows provides is `libcuda.so.1.1`; a Linux driver's has a release.
        foreign_libcuda=files.wsl and libcuda.release(host, files.libraries.cuda) != "",
        on_bus=None
        if files.bus_reason
        else any(device.vendor == "nvidia" for device in files.devices),
    )


def _libcuda_known(files: _Files, answers: Answers) -> bool:
    """Whether the search for libcuda is reliable.

    It is not if the loader's cache could not be read, or if NVML was loaded from a place that the
    search does not know (on NixOS, for example).
    """
    loaded = answers.code is not None and answers.code != LIBRARY_NOT_FOUND and not answers.smi.code
    unseen = loaded and answers.nvml.get("last") and not files.libraries.nvml
    return bool(files.libraries.cuda) or not (files.libraries.why or unseen)


def _libcuda(
    host: Host, files: _Files, answers: Answers, verdict: DriverState | None
) -> dict[str, Any]:
    path = files.libraries.cuda
    if not _libcuda_known(files, answers):
        return {"libcuda": None, "libcuda_linkable": None, "libcuda_compat": None}
    return {
        "libcuda": path,
        "libcuda_linkable": libcuda.linkable(host, path) if not host.windows else None,
        # With a library mismatch every library differs from the module, compat or not.
        "libcuda_compat": files.linux
        and libcuda.is_compat(host, path, "" if verdict == "library-mismatch" else files.module),
    }


def _versions(
    host: Host, files: _Files, answers: Answers, verdict: DriverState | None
) -> dict[str, Any]:
    nvml = answers.nvml
    own = answers.smi.gpus[0].get("driver_version") if answers.smi.gpus else None
    sources = (
        (files.module, files.source),
        (nvml.get("driver_version"), "NVML"),
        (own, "nvidia-smi"),
    )
    version, source = next(((text, place) for text, place in sources if text), (None, ""))
    # 13.580.95.05: the CUDA major version, then the driver's own
    library = str(nvml.get("library_version") or "").partition(".")[2]
    cuda = nvml.get("cuda") if verdict not in ("no-driver", "no-gpu") else None
    return {
        "version": version,
        "source": source,
        "library_version": library or libcuda.release(host, files.libraries.nvml) or None,
        "cuda_max": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
    }


def _vendor(host: Host, files: _Files, answers: Answers) -> GpuVendor | None:
    """Return the vendor of the GPU; NVIDIA before AMD before Intel, as torch would choose."""
    if host.platform.os == "macos" and host.platform.machine == "arm64":
        return "apple"
    here = {device.vendor for device in files.devices if device.kernel_driver != "vfio-pci"}
    if "nvidia" in here or answers.nvml.get("count") or answers.smi.gpus:
        return "nvidia"
    if files.module or files.tegra or files.wsl_libraries or (files.nodes and not files.wsl):
        return "nvidia"
    if "amd" in here or (files.linux and host.try_stat("/dev/kfd")):
        return "amd"
    if "intel" in here:
        return "intel"
    return None if files.bus_reason or files.wsl else ""


def _explain(driver: Driver, files: _Files, answers: Answers, gaps: Gaps) -> None:
    """Add a gap for each value that should have been readable."""
    reason = answers.unanswered or "NVML gave no answer"
    if driver.state is None:
        gaps.add("driver.state", _why_no_state(files, answers))
    if driver.libcuda is None:
        why = files.libraries.why or "NVML was found in a folder where libcuda was not searched for"
        for name in ("libcuda", "libcuda_linkable", "libcuda_compat"):
            gaps.add(f"driver.{name}", why)
    if driver.vendor is None:
        gaps.add(
            "driver.vendor", files.bus_reason or "WSL does not show the vendor of Windows' GPU"
        )
    absent = driver.state in ("no-driver", "no-gpu") or (driver.state is None and not answers.nvml)
    if driver.open_module is None and files.linux and not (absent or files.wsl):
        gaps.add("driver.open_module", f"{PROC_VERSION} cannot be read")
    if absent:
        return
    if driver.state == "container-without-runtime":
        reason = "the driver's libraries are not in this container"
    for name in ("version", "library_version", "cuda_max"):
        if getattr(driver, name) is None:
            gaps.add(f"driver.{name}", reason)


def _why_no_state(files: _Files, answers: Answers) -> str:
    if files.tegra:
        return "a Jetson's GPU does not answer through NVML"
    if files.wsl and not files.wsl_libraries:
        place = "this container" if files.container else "WSL"
        return f"Windows passes no NVIDIA driver to {place}; whether it has one is unknown"
    if files.module or files.nodes:
        return answers.unanswered or "NVML could not be asked"
    return f"no NVIDIA driver was found, and whether there is a GPU is unknown: {files.bus_reason}"


def _gpus(
    host: Host, verdict: DriverState | None, answers: Answers, gaps: Gaps
) -> tuple[Gpu, ...] | None:
    if answers.smi.gpus:
        from attn_doctor.probes.nvidia.gpus import from_smi

        return from_smi(answers.smi, host.environ, gaps)
    if answers.nvml.get("count") is not None:
        from attn_doctor.probes.nvidia.gpus import from_nvml

        return from_nvml(answers.nvml, answers.unanswered, host.environ, gaps)
    if verdict in NO_GPUS:
        return ()
    gaps.add("gpus", answers.unanswered or "whether there is an NVIDIA GPU could not be determined")
    return None


PROBE = Probe("NVIDIA", ("driver", "gpus"), read)
