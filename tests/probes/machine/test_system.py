"""The operating system, WSL, containers, and what they let a process use."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from attn_doctor.facts import System
from attn_doctor.host.local import LocalHost
from attn_doctor.probes.distributions import Distributions, Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.machine import system
from tests.probes.tree import GIB, MOUNTINFO, machine

MEMINFO = "MemTotal:       65536000 kB\nMemFree:  1 kB\nMemAvailable:   32768000 kB\n"
UBUNTU = 'PRETTY_NAME="Ubuntu 22.04.4 LTS"\nNAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu\n'
MIB = 1 << 20


def read(files: dict[str, str] | None = None, **how: Any) -> tuple[System, dict[str, str]]:
    linux = {"/proc/meminfo": MEMINFO, "/etc/os-release": UBUNTU, "/sbin/ldconfig": ""}
    texts = {**(linux if how.get("os", "linux") == "linux" else {}), **(files or {})}
    host = machine(texts, **{"folders": ["/dev/shm"], **how})
    gaps = Gaps()
    site = Site(folders=(), distributions=Distributions(host, ()))
    found: System = system.read(host, site, gaps)["system"]
    return found, gaps.reasons


def test_linux() -> None:
    found, gaps = read()
    assert found == System(
        os="linux",
        kernel="6.8.0-60-generic",
        distribution="ubuntu",
        distribution_version="22.04",
        distribution_name="Ubuntu 22.04.4 LTS",
        wsl=0,
        container="",
        arch="x86_64",
        glibc="2.39",
        musl=False,
        cpus=16,
        ram_total_mib=64000,
        ram_available_mib=32000,
        shm_total_mib=102400,
        shm_free_mib=40960,
        ldconfig="/sbin/ldconfig",
        user_is_root=False,
        unreachable_folders=(),
    )
    assert gaps == {}


def test_root() -> None:
    assert read(uid=0)[0].user_is_root is True


def test_a_rolling_release_has_no_version() -> None:
    found, gaps = read({"/etc/os-release": "NAME='Arch Linux'\n# x\nID=arch\n"})
    assert (found.distribution, found.distribution_version) == ("arch", None)
    assert found.distribution_name == "Arch Linux"
    assert gaps == {}


def test_without_os_release() -> None:
    found, gaps = read({"/etc/os-release": ""})
    assert found.distribution is None
    assert set(gaps) == {
        "system.distribution",
        "system.distribution_name",
        "system.distribution_version",
    }
    assert read({"/etc/os-release": "", "/usr/lib/os-release": UBUNTU})[0].distribution == "ubuntu"


def test_alpine() -> None:
    found, gaps = read({"/lib/ld-musl-x86_64.so.1": ""}, libc="")
    assert (found.musl, found.glibc) == (True, None)
    assert gaps == {}


def test_musl_beside_glibc_is_not_the_system_library() -> None:
    assert read({"/lib/ld-musl-x86_64.so.1": ""})[0].musl is False


def test_a_static_python_has_no_glibc_version() -> None:
    found, gaps = read(libc="")
    assert (found.musl, found.glibc) == (False, None)
    assert "glibc" in gaps["system.glibc"]


@pytest.mark.parametrize(
    ("release", "files", "generation"),
    [
        ("5.15.167.4-microsoft-standard-WSL2", (), 2),
        ("6.6.87.2-my-own-build", ("/proc/sys/fs/binfmt_misc/WSLInterop",), 2),
        ("6.6.87.2-my-own-build", ("/proc/sys/fs/binfmt_misc/WSLInterop-late",), 2),
        ("4.4.0-19041-Microsoft", (), 1),
        ("4.4.0-19041-Microsoft", ("/proc/sys/fs/binfmt_misc/WSLInterop",), 1),
        ("6.8.0-1021-azure", (), 0),
    ],
)
def test_wsl(release: str, files: tuple[str, ...], generation: int) -> None:
    assert read(dict.fromkeys(files, ""), release=release)[0].wsl == generation


DOCKER_ROOT = (
    "500 400 0:50 / / rw,relatime - overlay overlay"
    " rw,lowerdir=/var/lib/docker/overlay2/l/A:/var/lib/docker/overlay2/l/B\n"
)
CONTAINERD_ROOT = (
    "500 400 0:50 / / rw - overlay overlay"
    " rw,lowerdir=/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs\n"
)
LIVE_CD_ROOT = "27 1 0:24 / / rw,relatime - overlay /cow rw,lowerdir=/filesystem.squashfs\n"


@pytest.mark.parametrize(
    ("files", "how", "kind"),
    [
        ({}, {}, ""),
        ({"/.dockerenv": ""}, {}, "docker"),
        ({"/run/.containerenv": 'engine="podman-4.9.3"\n'}, {}, "podman"),
        ({"/.dockerenv": ""}, {"env": {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}}, "kubernetes"),
        ({"/var/run/secrets/kubernetes.io/serviceaccount/token": ""}, {}, "kubernetes"),
        ({"/.singularity.d/runscript": ""}, {}, "apptainer"),
        ({"/run/systemd/container": "lxc\n"}, {}, "lxc"),
        ({"/run/systemd/container": "systemd-nspawn\n"}, {}, "other"),
        ({"/run/systemd/container": "wsl\n"}, {}, ""),
        ({}, {"env": {"container": "podman"}}, "podman"),
        ({"/proc/1/cgroup": "4:memory:/docker/8f8d\n0::/docker/8f8d\n"}, {}, "docker"),
        ({"/proc/1/cgroup": "0::/kubepods.slice/kubepods-pod1.slice\n"}, {}, "kubernetes"),
        ({"/proc/1/cgroup": "0::/lxc.payload.box\n"}, {}, "lxc"),
        ({"/proc/1/cgroup": "0::/init.scope\n"}, {}, ""),
        ({MOUNTINFO: DOCKER_ROOT, "/proc/1/cgroup": "0::/\n"}, {}, "docker"),
        ({MOUNTINFO: CONTAINERD_ROOT, "/proc/1/cgroup": "0::/\n"}, {}, "other"),
        ({MOUNTINFO: LIVE_CD_ROOT, "/proc/1/cgroup": "0::/init.scope\n"}, {}, ""),
    ],
)
def test_containers(files: dict[str, str], how: dict[str, Any], kind: str) -> None:
    assert read(files, **how)[0].container == kind


def test_memory_limit_of_a_container() -> None:
    files = {
        "/proc/self/cgroup": "0::/\n",
        "/sys/fs/cgroup/memory.max": f"{8 * GIB}\n",
        "/sys/fs/cgroup/memory.current": f"{6 * GIB}\n",
        "/sys/fs/cgroup/memory.stat": f"anon 1\ninactive_file {2 * GIB}\n",
        "/sys/fs/cgroup/cpu.max": "250000 100000\n",
    }
    found, _ = read(files)
    assert (found.ram_total_mib, found.ram_available_mib, found.cpus) == (8192, 4096, 3)


def test_a_limit_above_the_memory_changes_nothing() -> None:
    files = {
        "/proc/self/cgroup": "4:memory:/docker/8f8d\n3:cpu,cpuacct:/docker/8f8d\n",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    }
    found, _ = read(files)
    assert (found.ram_total_mib, found.ram_available_mib, found.cpus) == (64000, 32000, 16)


def test_without_meminfo_the_host_is_asked() -> None:
    memory = {"memory": {"answer": [16 * GIB, 4 * GIB]}}
    found, _ = read({"/proc/meminfo": ""}, answers=memory)
    assert (found.ram_total_mib, found.ram_available_mib) == (16384, 4096)
    found, gaps = read({"/proc/meminfo": ""})
    assert found.ram_total_mib is None
    assert "system.ram_total_mib" in gaps


def test_no_shared_memory() -> None:
    found, gaps = read(folders=[])
    assert (found.shm_total_mib, found.shm_free_mib, gaps) == (0, 0, {})


def test_shared_memory_that_cannot_be_read() -> None:
    found, gaps = read(answers={"space /dev/shm": {"error": "EACCES"}})
    assert found.shm_free_mib is None
    assert "/dev/shm cannot be read" in gaps["system.shm_free_mib"]


def test_windows() -> None:
    found, gaps = read(
        os="windows",
        folders=[],
        machine="AMD64",
        release="10",
        version="10.0.22631",
        libc="",
        uid=-1,
        answers={"memory": {"answer": [32 * GIB, 8 * GIB]}},
    )
    assert found == System(
        os="windows",
        kernel="10",
        distribution="windows",
        distribution_version="10.0.22631",
        distribution_name="Windows 11",
        wsl=0,
        container="",
        arch="x86_64",
        glibc=None,
        musl=False,
        cpus=16,
        ram_total_mib=32768,
        ram_available_mib=8192,
        shm_total_mib=None,
        shm_free_mib=None,
        ldconfig="",
        user_is_root=False,
        unreachable_folders=(),
    )
    assert gaps == {}


def test_an_older_windows() -> None:
    how: dict[str, Any] = {"os": "windows", "folders": [], "release": "10", "libc": ""}
    found, _ = read(version="10.0.19045", **how)
    assert found.distribution_name == "Windows 10"


def test_macos() -> None:
    plist = "<key>ProductVersion</key>\n\t<string>15.5</string>\n"
    memory = {"memory": {"answer": [32 * GIB, 8 * GIB]}}
    path = "/System/Library/CoreServices/SystemVersion.plist"
    how: dict[str, Any] = {"os": "macos", "machine": "arm64", "libc": "", "answers": memory}
    found, gaps = read({path: plist}, **how)
    assert (found.distribution, found.distribution_version) == ("macos", "15.5")
    assert (found.distribution_name, found.arch) == ("macOS 15.5", "aarch64")
    assert gaps == {}
    assert "system.distribution_version" in read(**how)[1]


@pytest.mark.skipif(sys.platform != "linux", reason="the facts of a Linux machine")
def test_this_machine() -> None:
    host, gaps = LocalHost(), Gaps()
    site = Site(folders=(), distributions=Distributions(host, ()))
    found: System = system.read(host, site, gaps)["system"]
    unknown = {name for name in System.__struct_fields__ if getattr(found, name) is None}
    assert {f"system.{name}" for name in unknown - {"distribution_version"}} <= set(gaps.reasons)
    assert (found.ram_total_mib or 0) >= (found.ram_available_mib or 0) > 0
    assert (found.cpus or 0) >= 1


def test_a_number_of_too_many_digits_is_unknown() -> None:
    digits = "9" * 5000
    text = f"MemTotal:       {digits} kB\nMemAvailable:   {digits} kB\n"
    found, gaps = read({"/proc/meminfo": text})
    assert found.ram_total_mib is None
    assert "system.ram_total_mib" in gaps
