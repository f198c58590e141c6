"""The driver's state, machine by machine, each from the traces that such a machine leaves."""

from __future__ import annotations

from typing import Any

import pytest

from attn_doctor.facts import Driver, Gpu
from attn_doctor.host.recorded import RecordedHost, key
from attn_doctor.probes import nvidia
from attn_doctor.probes.distributions import Distributions, Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.nvidia.answers import FIELDS, _place

Answers = dict[str, Any]

OPEN = """\
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)
GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)
"""
PROPRIETARY = """\
NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)
"""
LIB = "/usr/lib/x86_64-linux-gnu"
CACHE = f"""\
345 libs found in cache `/etc/ld.so.cache'
\tlibnvidia-ml.so.1 (libc6,x86-64) => {LIB}/libnvidia-ml.so.1
\tlibcuda.so.1 (libc6,x86-64) => {LIB}/libcuda.so.1
\tlibcuda.so.1 (libc6) => /usr/lib/i386-linux-gnu/libcuda.so.1
\tlibcuda.so (libc6,x86-64) => {LIB}/libcuda.so
"""
MISSING = {
    "code": 12,
    "name": "NVML_ERROR_LIBRARY_NOT_FOUND",
    "text": "NVML Shared Library Not Found",
}


def files(*paths: str) -> Answers:
    return {key("stat", path): {"answer": {"kind": "file"}} for path in paths}


def text(path: str, content: str) -> Answers:
    return {**files(path), key("read", path): {"answer": content}}


def ran(argv: list[str], out: str, code: int = 0, err: str = "") -> Answers:
    answer = {"outcome": "done", "code": code, "out": out, "err": err, "pid": 7}
    return {key("run", argv): {"answer": answer}}


def linux(*parts: Answers, release: str = "6.8.0-60-generic", **variables: str) -> Answers:
    """A Linux machine without a GPU, and whatever is added to it."""
    platform = {"os": "linux", "machine": "x86_64", "release": release, "cwd": "/home/ada"}
    machine: Answers = {
        "platform": {"answer": platform},
        "environ": {"answer": variables},
        "list /dev": {"answer": ["null", "tty", "zero"]},
        "list /sys/bus": {"answer": ["cpu", "pci"]},
        "list /sys/bus/pci/devices": {"answer": ["0000:00:00.0"]},
        "read /sys/bus/pci/devices/0000:00:00.0/class": {"answer": "0x060000\n"},
        **files("/sbin/ldconfig"),
        **ran(["/sbin/ldconfig", "-p"], "1 libs found in cache `/etc/ld.so.cache'\n"),
    }
    for part in parts:
        machine.update(part)
    return machine


def card(vendor: str = "10de", device: str = "2684", driver: str = "") -> Answers:
    folder = "/sys/bus/pci/devices/0000:01:00.0"
    bound = {key("real", f"{folder}/driver"): {"answer": f"/sys/bus/pci/drivers/{driver}"}}
    return {
        "list /sys/bus/pci/devices": {"answer": ["0000:01:00.0"]},
        f"read {folder}/class": {"answer": "0x030000\n"},
        f"read {folder}/vendor": {"answer": f"0x{vendor}\n"},
        f"read {folder}/device": {"answer": f"0x{device}\n"},
        **(bound if driver else {}),
    }


def module(version: str = "580.95.05", proc: str = OPEN) -> Answers:
    return {
        **text("/sys/module/nvidia/version", f"{version}\n"),
        **text("/proc/driver/nvidia/version", proc),
    }


def nodes(*names: str, openable: bool = True) -> Answers:
    names = names or ("nvidia-uvm", "nvidia0", "nvidiactl")
    access = {key("access", f"/dev/{n}", m): {"answer": openable} for n in names for m in "rw"}
    return {"list /dev": {"answer": ["null", *names, "tty"]}, **access}


def libraries(release: str = "580.95.05", folder: str = LIB) -> Answers:
    found: Answers = {}
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        path = f"{folder}/{name}"
        real = path.replace(".so.1", f".so.{release}")
        found |= {**files(path), key("real", path): {"answer": real}}
    return {**ran(["/sbin/ldconfig", "-p"], CACHE.replace(LIB, folder)), **found}


def nvml(**answer: Any) -> Answers:
    base = {"outcome": "done", "code": 0, "gpus": [], "errors": {}, "complete": True, "last": "x"}
    return {"nvml": {"answer": {**base, **answer}}}


def nvml_error(code: int, words: str) -> Answers:
    return nvml(
        errors={"init": {"code": code, "name": "", "text": words}}, library_version="13.580.95.05"
    )


def nvml_gpus(*gpus: dict[str, Any], **more: Any) -> Answers:
    whole = [
        {
            "index": number,
            "errors": {},
            "handle": True,
            "name": "NVIDIA GeForce RTX 4090",
            "compute_capability": [8, 9],
            "uuid": f"GPU-{number}",
            "pci_bus_id": f"00000000:0{number + 1}:00.0",
            "memory": {"total": 25757220864, "free": 25000000000},
            "compute_mode": 0,
            "persistence": 0,
            "mig_mode": 0,
            "processes": 0,
            **gpu,
        }
        for number, gpu in enumerate(gpus)
    ]
    known = {"init": True, "driver_version": "580.95.05", "library_version": "13.580.95.05"}
    return nvml(**{**known, "cuda": 13000, "count": len(gpus), "gpus": whole, **more})


def read(machine: Answers) -> tuple[Driver, tuple[Gpu, ...] | None, dict[str, str]]:
    host, gaps = RecordedHost(machine), Gaps()
    site = Site(folders=(), distributions=Distributions(host, ()))
    fields = nvidia.read(host, site, gaps)
    return fields["driver"], fields["gpus"], gaps.reasons


def healthy(*parts: Answers, **variables: str) -> Answers:
    base = (card(driver="nvidia"), module(), nodes(), libraries(), nvml_gpus({}))
    return linux(*base, *parts, **variables)


def test_a_healthy_machine() -> None:
    driver, gpus, gaps = read(healthy(files(f"{LIB}/libcuda.so")))
    assert driver == Driver(
        state="ok",
        error="",
        version="580.95.05",
        library_version="580.95.05",
        source="/sys/module/nvidia/version",
        open_module=True,
        cuda_max="13.0",
        libcuda=f"{LIB}/libcuda.so.1",
        libcuda_linkable=True,
        libcuda_compat=False,
        device_nodes=True,
        vendor="nvidia",
    )
    assert gpus is not None
    assert (gpus[0].sm, gpus[0].pci_bus_id, gpus[0].mig) == (89, "0000:01:00.0", "disabled")
    assert gaps == {}


def test_a_libcuda_that_nothing_can_link_with() -> None:
    driver, _, _ = read(healthy())
    assert driver.libcuda_linkable is False
    assert read(linux(files("libcuda.so")))[0].libcuda_linkable is False


def test_a_module_known_only_from_the_bus() -> None:
    """As in a sandbox that hides /proc/driver: the devices are there, NVML answers."""
    base = (card(driver="nvidia"), nodes(), libraries())
    driver, _, gaps = read(linux(*base, nvml_gpus({})))
    assert (driver.state, driver.version, driver.source) == ("ok", "580.95.05", "NVML")
    assert driver.open_module is None
    assert gaps == {"driver.open_module": "/proc/driver/nvidia/version cannot be read"}
    machine = linux(card(driver="nvidia"), files("/.dockerenv"), nvml(errors={"init": MISSING}))
    assert read(machine)[0].state == "container-without-runtime"


def test_the_proprietary_module_with_only_proc() -> None:
    machine = healthy(text("/proc/driver/nvidia/version", PROPRIETARY))
    del machine["read /sys/module/nvidia/version"]
    driver, _, _ = read(machine)
    assert (driver.version, driver.source) == ("550.90.07", "/proc/driver/nvidia/version")
    assert driver.open_module is False


def test_a_machine_without_any_gpu() -> None:
    driver, gpus, gaps = read(linux())
    assert (driver.state, driver.error, driver.vendor, driver.source) == ("no-gpu", "", "", "")
    assert (driver.libcuda, driver.libcuda_compat, driver.device_nodes) == ("", False, False)
    assert (gpus, gaps) == ((), {})


@pytest.mark.parametrize("bound", ["", "nouveau", "nova_core", "vfio-pci"])
def test_an_nvidia_gpu_without_nvidias_driver(bound: str) -> None:
    driver, gpus, gaps = read(linux(card(driver=bound)))
    assert (driver.state, gpus, gaps) == ("no-driver", (), {})
    # A GPU that a virtual machine uses is not usable here.
    assert driver.vendor == ("" if bound == "vfio-pci" else "nvidia")


def test_libraries_installed_but_the_module_not_loaded() -> None:
    """As after a kernel update for which the module was not built."""
    driver, gpus, _ = read(linux(card(), libraries(), nvml_error(9, "Driver Not Loaded")))
    assert (driver.state, driver.error, gpus) == ("no-driver", "Driver Not Loaded", ())
    assert (driver.cuda_max, driver.version) == (None, None)


@pytest.mark.parametrize(
    ("machine", "vendor"),
    [
        (card("1002", "744c", "amdgpu"), "amd"),
        (files("/dev/kfd"), "amd"),
        (card("8086", "56a0", "xe"), "intel"),
        (card("1a03", "2000", "ast"), ""),
    ],
)
def test_gpus_of_others(machine: Answers, vendor: str) -> None:
    driver, gpus, _ = read(linux(machine))
    assert (driver.state, driver.vendor, gpus) == ("no-gpu", vendor, ())


def test_an_unreadable_bus_leaves_the_gpu_unknown() -> None:
    machine = linux({"list /sys/bus/pci/devices": {"error": "EACCES"}})
    driver, gpus, gaps = read(machine)
    assert (driver.state, driver.vendor, gpus) == (None, None, None)
    assert "Permission denied" in gaps["driver.state"] or "EACCES" in gaps["driver.state"]
    assert {"driver.vendor", "gpus"} <= gaps.keys()


def test_no_gpu_behind_a_loaded_driver() -> None:
    base = (module(), nodes("nvidiactl"), libraries())
    assert read(linux(*base, nvml_gpus()))[0].state == "no-device"
    driver, gpus, _ = read(linux(*base, nvml_error(6, "Not Found")))
    assert (driver.state, driver.version, gpus) == ("no-device", "580.95.05", ())


def test_devices_that_this_user_may_not_open() -> None:
    machine = healthy(nodes(openable=False), nvml_error(4, "Insufficient Permissions"))
    driver, gpus, gaps = read(machine)
    assert (driver.state, driver.device_nodes) == ("no-permission", False)
    assert driver.error == "Insufficient Permissions"
    assert gpus is None
    assert gaps["gpus"] == "NVML answered: Insufficient Permissions"
    # The versions are known all the same, but for what only a driver that talks tells.
    assert (driver.version, driver.library_version) == ("580.95.05", "580.95.05")
    assert "driver.cuda_max" in gaps


def test_a_device_must_be_writable_and_each_kind_of_it_openable() -> None:
    def usable(*denied: str) -> bool | None:
        no = {name: {"answer": False} for name in denied}
        return read(healthy(nodes("nvidiactl", "nvidia0", "nvidia3"), no))[0].device_nodes

    assert usable() is True
    assert usable("access /dev/nvidia0 r") is True  # another user's share of the machine
    assert usable("access /dev/nvidiactl w") is False
    assert usable("access /dev/nvidiactl r") is False
    assert usable("access /dev/nvidia0 r", "access /dev/nvidia3 w") is False


@pytest.mark.parametrize(("refused", "state"), [(True, "no-permission"), (False, "error")])
def test_a_container_that_lost_its_devices(refused: bool, state: str) -> None:
    """After `systemctl daemon-reload` on its host; the mode bits still allow everything."""
    opening = {"error": "EPERM"} if refused else {"answer": ""}
    machine = healthy(
        files("/.dockerenv"), {"read /dev/nvidiactl": opening}, nvml_error(999, "Unknown Error")
    )
    driver, _, _ = read(machine)
    assert (driver.state, driver.error) == (state, "Unknown Error")
    assert driver.device_nodes is not refused


def test_an_update_that_needs_a_reboot() -> None:
    machine = healthy(
        module("570.86.10", OPEN.replace("580.95.05", "570.86.10")),
        nvml_error(18, "Driver/library version mismatch"),
    )
    driver, gpus, _ = read(machine)
    assert (driver.state, gpus) == ("library-mismatch", None)
    assert driver.error == "Driver/library version mismatch"
    assert (driver.version, driver.library_version) == ("570.86.10", "580.95.05")
    # All libraries differ from the module, so this libcuda is not a compatibility package.
    assert driver.libcuda_compat is False


def test_a_driver_without_its_libraries() -> None:
    machine = linux(
        card(driver="nvidia"), module(), nodes(), nvml(errors={"init": MISSING}, last="start")
    )
    driver, gpus, gaps = read(machine)
    assert (driver.state, driver.libcuda, driver.version) == ("no-library", "", "580.95.05")
    assert gpus is None
    assert gaps["gpus"] == "NVML answered: NVML Shared Library Not Found"


def test_a_container_without_libcuda() -> None:
    """NVIDIA_DRIVER_CAPABILITIES=utility: nvidia-smi works in it and torch does not."""
    machine = healthy(files("/.dockerenv"))
    del machine[f"stat {LIB}/libcuda.so.1"]
    driver, gpus, _ = read(machine)
    assert (driver.state, driver.libcuda, driver.error) == ("no-library", "", "")
    assert gpus is not None
    assert gpus[0].sm == 89


def test_a_container_without_nvml() -> None:
    """NVIDIA_DRIVER_CAPABILITIES=compute: torch works in it and nvidia-smi does not."""
    machine = linux(
        card(driver="nvidia"),
        module(),
        nodes(),
        files("/.dockerenv"),
        libraries(),
        nvml(errors={"init": MISSING}),
    )
    del machine[f"stat {LIB}/libnvidia-ml.so.1"]
    assert read(machine)[0].state == "no-library"


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((), id="the host's module shows through"),
        pytest.param((nodes(),), id="devices without libraries"),
        pytest.param((libraries(),), id="an image with libraries of its own"),
    ],
)
def test_a_container_without_the_runtime(parts: tuple[Answers, ...]) -> None:
    answer = {"init": MISSING}
    if parts and "list /dev" not in parts[0]:
        answer = {"init": {"code": 9, "name": "", "text": "Driver Not Loaded"}}
    machine = linux(
        card(driver="nvidia"), module(), files("/.dockerenv"), *parts, nvml(errors=answer)
    )
    driver, gpus, gaps = read(machine)
    assert (driver.state, gpus) == ("container-without-runtime", ())
    assert driver.version == "580.95.05"
    assert gaps["driver.cuda_max"] == "the driver's libraries are not in this container"


def test_a_module_without_device_files_outside_a_container() -> None:
    machine = healthy({"list /dev": {"answer": ["null"]}}, nvml_error(9, "Driver Not Loaded"))
    driver, _, _ = read(machine)
    assert (driver.state, driver.error, driver.device_nodes) == (
        "error",
        "Driver Not Loaded",
        False,
    )


@pytest.mark.parametrize("outcome", ["timeout", "abandoned"])
def test_facts_from_files_remain_if_the_driver_hangs(outcome: str) -> None:
    hung = {"complete": False, "last": "start", "outcome": outcome, "pid": 4711}
    driver, gpus, gaps = read(healthy(nvml(**hung)))
    assert (driver.state, driver.version) == ("not-answering", "580.95.05")
    assert (driver.open_module, driver.libcuda) == (True, f"{LIB}/libcuda.so.1")
    # The name of the library's file tells its version, too.
    assert driver.library_version == "580.95.05"
    assert gpus is None
    assert gaps["gpus"].startswith("NVML did not answer within 2.5 s during its start")
    assert ("4711" in gaps["gpus"]) == (outcome == "abandoned")
    assert gaps["driver.cuda_max"] == gaps["gpus"]


def test_a_device_that_hangs_is_not_touched() -> None:
    class Fragile(RecordedHost):
        def read(self, path: str, limit: int = 1 << 16) -> str:
            assert path != "/dev/nvidiactl", "this would hang attn-doctor itself"
            return super().read(path, limit)

    hung = {"complete": False, "last": "start", "outcome": "timeout"}
    host = Fragile(healthy(nvml(**hung)))
    site = Site(folders=(), distributions=Distributions(host, ()))
    assert nvidia.read(host, site, Gaps())["driver"].device_nodes is True


def test_a_child_that_does_not_start_leaves_the_driver_unknown() -> None:
    driver, gpus, gaps = read(healthy(nvml(complete=False, last="", outcome="timeout")))
    assert (driver.state, driver.version, gpus) == (None, "580.95.05", None)
    assert "did not start" in gaps["driver.state"]


# WSL


def wsl(*parts: Answers, **variables: str) -> Answers:
    base: tuple[Answers, ...] = (
        nodes("dxg"),
        libraries("1.1", "/usr/lib/wsl/lib"),
        {"list /sys/bus/pci/devices": {"answer": []}},
    )
    return linux(*base, *parts, release="5.15.167.4-microsoft-standard-WSL2", **variables)


def test_working_wsl() -> None:
    driver, gpus, gaps = read(wsl(nvml_gpus({}, driver_version="581.29")))
    assert (driver.state, driver.version, driver.source) == ("ok", "581.29", "NVML")
    assert (driver.libcuda, driver.device_nodes) == ("/usr/lib/wsl/lib/libcuda.so.1", True)
    assert (driver.libcuda_compat, driver.vendor) == (False, "nvidia")
    assert gpus is not None
    assert gaps == {}


@pytest.mark.parametrize(
    ("code", "words"),
    [(17, "GPU access blocked by the operating system"), (9, "Driver Not Loaded")],
)
def test_wsl_libraries_without_a_driver_behind_them(code: int, words: str) -> None:
    driver, gpus, _ = read(wsl(nvml_error(code, words)))
    assert (driver.state, driver.error, gpus) == ("wsl-stub", words, None)


def test_a_container_in_wsl_whose_devices_are_blocked() -> None:
    """https://github.com/microsoft/WSL/issues/9962: the driver works in WSL itself."""
    blocked = nvml_error(17, "GPU access blocked by the operating system")
    driver, gpus, _ = read(wsl(files("/.dockerenv"), blocked))
    assert (driver.state, gpus) == ("no-permission", None)


def test_a_linux_driver_inside_wsl_shadows_the_one_of_windows() -> None:
    driver, _, _ = read(wsl(libraries("535.183.01"), nvml_gpus({})))
    assert (driver.state, driver.libcuda) == ("wsl-stub", f"{LIB}/libcuda.so.1")


def test_wsl_whose_loader_does_not_look_into_its_library_folder() -> None:
    machine = wsl(
        files("/usr/lib/wsl/lib/libcuda.so.1"),
        ran(["/sbin/ldconfig", "-p"], ""),
        nvml(errors={"init": MISSING}),
    )
    driver, _, _ = read(machine)
    assert (driver.state, driver.libcuda) == ("no-library", "")


def test_wsl_without_nvidia_has_an_unknown_state() -> None:
    machine = wsl(ran(["/sbin/ldconfig", "-p"], ""))
    del machine["stat /usr/lib/wsl/lib/libcuda.so.1"]
    driver, gpus, gaps = read(machine)
    assert (driver.state, driver.vendor, gpus) == (None, None, None)
    assert "Windows passes no NVIDIA driver to WSL" in gaps["driver.state"]


# Which libcuda


def test_ld_library_path_comes_first_and_a_compat_package_is_known() -> None:
    compat = "/usr/local/cuda-13.0/compat/libcuda.so.1"
    machine = healthy(files(compat), LD_LIBRARY_PATH="/opt/x:/usr/local/cuda-13.0/compat")
    driver, _, _ = read(machine)
    assert (driver.libcuda, driver.libcuda_compat) == (compat, True)


def test_a_libcuda_of_another_release_is_a_compat_one() -> None:
    path = "/opt/cuda/libcuda.so.1"
    real = {key("real", path): {"answer": "/opt/cuda/libcuda.so.590.44.01"}}
    driver, _, _ = read(healthy(files(path), real, LD_LIBRARY_PATH="/opt/cuda"))
    assert (driver.libcuda, driver.libcuda_compat) == (path, True)


def test_without_ldconfig_the_configured_folders_are_looked_through() -> None:
    machine = healthy(
        text("/etc/ld.so.conf", f"{LIB}\n"), ran(["/sbin/ldconfig", "-p"], "", 1, "Can't open")
    )
    assert read(machine)[0].libcuda == f"{LIB}/libcuda.so.1"
    machine.update(text("/etc/ld.so.conf", ""))
    driver, _, gaps = read(machine)
    assert (driver.libcuda, driver.libcuda_linkable, driver.libcuda_compat) == (None, None, None)
    assert driver.state == "ok"
    assert gaps["driver.libcuda"] == "ldconfig ended with code 1: Can't open"


@pytest.mark.parametrize(
    ("cache", "asked"), [("libc.so.6\0libm.so.6", False), ("libc.so.6\0libcuda.so.1", True)]
)
def test_ldconfig_runs_only_if_the_loaders_cache_names_the_driver(cache: str, asked: bool) -> None:
    driver, _, _ = read(healthy(text("/etc/ld.so.cache", cache)))
    assert driver.libcuda == (f"{LIB}/libcuda.so.1" if asked else None)


def test_nvml_from_an_unknown_place_means_libcuda_may_be_there_too() -> None:
    machine = healthy(ran(["/sbin/ldconfig", "-p"], ""))
    driver, _, gaps = read(machine)
    assert (driver.state, driver.libcuda) == ("ok", None)
    assert "driver.libcuda" in gaps


# CUDA_VISIBLE_DEVICES


def test_hidden_gpus() -> None:
    machine = healthy(nvml_gpus({}, {}), CUDA_VISIBLE_DEVICES="1")
    _, gpus, gaps = read(machine)
    assert gpus is not None
    assert [gpu.visible for gpu in gpus] == [False, True]
    assert gaps == {}


def test_numbers_mean_nothing_where_gpus_differ() -> None:
    other = {"name": "NVIDIA RTX A2000", "compute_capability": [8, 6]}
    machine = healthy(nvml_gpus({}, other), CUDA_VISIBLE_DEVICES="1")
    _, gpus, gaps = read(machine)
    assert gpus is not None
    assert [gpu.visible for gpu in gpus] == [None, None]
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in gaps["gpus[0].visible"]


# nvidia-smi


def smi(out: str, code: int = 0) -> Answers:
    query = f"--query-gpu={','.join(FIELDS)}"
    argv = ["/usr/bin/nvidia-smi", query, "--format=csv,noheader,nounits"]
    return {**files("/usr/bin/nvidia-smi"), **ran(argv, out, code)}


#: A Python that cannot call a library.
NO_NVML = nvml(
    errors={"import": {"code": None, "text": "No module named '_ctypes'"}}, complete=False
)
UNCALLED = "NVML cannot be called: No module named '_ctypes'"


def test_nvidia_smi_replaces_nvml() -> None:
    line = (
        "0, NVIDIA H100 80GB HBM3, 9.0, GPU-1, 00000000:18:00.0, 81559, 80970, Default,"
        " Enabled, Disabled, 580.95.05\n"
        "1, NVIDIA GeForce RTX 4090, 8.9, GPU-2, 00000000:41:00.0, 24564, [N/A],"
        " Exclusive_Process, Disabled, [N/A], 580.95.05\n"
    )
    driver, gpus, gaps = read(healthy(NO_NVML, smi(line)))
    assert (driver.state, driver.version, driver.error) == ("ok", "580.95.05", "")
    assert gpus is not None
    assert [(one.sm, one.memory_free_mib, one.mig) for one in gpus] == [
        (90, 80970, "disabled"),
        (89, None, "unsupported"),
    ]
    assert (gpus[1].compute_mode, gpus[0].persistence) == ("exclusive-process", True)
    assert gpus[1].pci_bus_id == "0000:41:00.0"
    assert gaps["driver.cuda_max"] == UNCALLED
    assert {name for name in gaps if name.startswith("gpus")} == {
        "gpus[0].processes",
        "gpus[1].processes",
        "gpus[1].memory_free_mib",
    }


def test_an_old_nvidia_smi_omits_fields() -> None:
    line = (
        "0, NVIDIA A100, [N/A], GPU-1, 00000000:18:00.0, 40536, 40000, Default, Enabled, Enabled\n"
    )
    _, gpus, gaps = read(healthy(NO_NVML, smi(line)))
    assert gpus is not None
    assert (gpus[0].sm, gpus[0].compute_capability) == (None, None)
    assert (gpus[0].mig, gpus[0].mig_devices) == ("enabled", None)
    assert {"gpus[0].sm", "gpus[0].compute_capability", "gpus[0].mig_devices"} <= gaps.keys()


def test_nvidia_smi_fails_with_the_number_of_nvml() -> None:
    words = (
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.86\n"
    )
    for code in (18, 255):
        driver, gpus, _ = read(healthy(NO_NVML, smi(words, code)))
        assert driver.state == "library-mismatch"
        assert driver.error == "Driver/library version mismatch"
        assert gpus is None
    driver, _, _ = read(healthy(NO_NVML, smi("No devices were found", 6)))
    assert (driver.state, driver.error) == ("no-device", "No devices were found")


def test_nvidia_smi_that_hangs_is_killed() -> None:
    machine = healthy(NO_NVML, smi(""))
    name = next(one for one in machine if one.startswith("run /usr/bin/nvidia-smi"))
    machine[name] = {"answer": {"outcome": "timeout"}}
    driver, gpus, gaps = read(machine)
    assert (driver.state, gpus) == (None, None)
    assert gaps["driver.state"] == f"{UNCALLED}; nvidia-smi did not answer within 2 s"


def test_nvidia_smi_is_asked_where_only_devices_show() -> None:
    line = "0, NVIDIA H100, 9.0, GPU-1, 00000000:18:00.0, 1, 1, Default, Enabled, Disabled, 580.1\n"
    parts = (nodes(), libraries(), NO_NVML, smi(line))
    assert read(linux(*parts))[0].version == "580.1"
    # Not so where there are libraries and nothing else, nor for the bare /dev/dxg of WSL.
    assert read(linux(libraries(), NO_NVML, smi(line)))[1] == ()
    machine = wsl(libraries(), NO_NVML, smi(line))
    del machine["stat /usr/lib/wsl/lib/libcuda.so.1"]
    assert read(machine)[1] is None


def test_a_child_that_could_not_be_started() -> None:
    machine = healthy({"nvml": {"answer": {"outcome": "refused", "err": "EAGAIN"}}})
    assert "could not be started: EAGAIN" in read(machine)[2]["driver.state"]
    machine = healthy({"nvml": {"answer": {"outcome": "missing"}}})
    assert "could not be started" in read(machine)[2]["driver.state"]


def test_neither_nvml_nor_nvidia_smi() -> None:
    driver, gpus, gaps = read(healthy(NO_NVML))
    assert (driver.state, driver.version, gpus) == (None, "580.95.05", None)
    assert gaps["driver.state"] == UNCALLED
    assert gaps["gpus"] == UNCALLED


def test_nvidia_smi_is_not_run_after_nvml_answered() -> None:
    driver, _, _ = read(healthy(nvml_error(999, "Unknown Error"), smi("0, x\n")))
    assert (driver.state, driver.error) == ("error", "Unknown Error")


# Others


def windows(*parts: Answers) -> Answers:
    platform = {"os": "windows", "machine": "AMD64", "release": "11", "version": "10.0.26100"}
    machine: Answers = {
        "platform": {"answer": platform},
        "environ": {"answer": {"SYSTEMROOT": "C:\\Windows"}},
    }
    for part in parts:
        machine.update(part)
    return machine


def pnputil(out: str) -> Answers:
    program = "C:\\Windows\\System32\\pnputil.exe"
    return ran([program, "/enum-devices", "/connected", "/class", "Display"], out)


RTX4090 = """\
Microsoft PnP Utility

Instance ID:                PCI\\VEN_10DE&DEV_2684&SUBSYS_40961458&REV_A1\\4&2283F625&0&0008
Device Description:         NVIDIA GeForce RTX 4090
Class Name:                 Display
"""


def test_working_windows() -> None:
    dlls = files("C:\\Windows\\System32\\nvml.dll", "C:\\Windows\\System32\\nvcuda.dll")
    answer = nvml_gpus({"persistence": None, "errors": {"persistence": {"code": 3}}})
    driver, gpus, gaps = read(windows(dlls, pnputil(RTX4090), answer))
    assert (driver.state, driver.version, driver.source) == ("ok", "580.95.05", "NVML")
    assert driver.libcuda == "C:\\Windows\\System32\\nvcuda.dll"
    assert (driver.libcuda_compat, driver.device_nodes, driver.vendor) == (False, None, "nvidia")
    assert gpus is not None
    assert gpus[0].persistence is False
    assert gaps == {}


def test_windows_without_the_driver() -> None:
    driver, gpus, _ = read(windows(pnputil(RTX4090)))
    assert (driver.state, driver.vendor, driver.libcuda, gpus) == ("no-driver", "nvidia", "", ())
    driver, _, _ = read(windows(pnputil("Microsoft PnP Utility\n")))
    assert (driver.state, driver.vendor) == ("no-gpu", "")
    driver, _, gaps = read(windows())
    assert driver.state is None
    assert "pnputil does not exist" in gaps["driver.state"]


def test_a_mac() -> None:
    platform = {"os": "macos", "machine": "arm64", "release": "25.1.0"}
    driver, gpus, gaps = read({"platform": {"answer": platform}})
    assert (driver.state, driver.vendor, gpus, gaps) == ("no-gpu", "apple", (), {})
    driver, _, gaps = read({"platform": {"answer": {**platform, "machine": "x86_64"}}})
    assert (driver.state, driver.vendor) == (None, None)
    assert "driver.state" in gaps


def test_a_jetson_is_not_a_machine_without_gpu() -> None:
    machine = linux(files("/dev/nvhost-gpu"), nvml(errors={"init": MISSING}))
    driver, gpus, gaps = read(machine)
    assert (driver.state, driver.vendor, gpus) == (None, "nvidia", None)
    assert "Jetson" in gaps["driver.state"]


def test_a_machine_without_readable_files() -> None:
    platform = {"os": "linux", "machine": "x86_64", "release": "6.1.0"}
    driver, gpus, gaps = read({"platform": {"answer": platform}})
    assert (driver.state, gpus) == (None, None)
    assert "/sys is not mounted" in gaps["driver.state"]


def test_a_count_without_end_takes_little_memory() -> None:
    base = (card(driver="nvidia"), module(), nodes(), libraries())
    _, gpus, _ = read(linux(*base, nvml(count=10**100, gpus=[])))
    assert len(gpus or ()) == 1024


def test_a_last_question_with_another_form() -> None:
    """Guided fuzzing found one: a line that is not ours."""
    assert _place("gpus*0.processes") == "when asked for the driver and its GPUs"
    assert _place("gpus.2.name") == "at GPU 2"
    assert _place("gpus.2.processes").startswith("at GPU 3;")
    assert _place("count").startswith("at GPU 0;")
    assert _place("driver_version") == "when asked for the driver and its GPUs"
