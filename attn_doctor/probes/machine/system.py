"""Reads the operating system, WSL and containers, and the resources this process may use.

Container engines leave marks by which a container is recognised; one without marks looks like a
machine.
"""

from __future__ import annotations

import re
from typing import Any

from attn_doctor.facts import System
from attn_doctor.host import Host
from attn_doctor.numbers import natural
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.machine.cgroups import cpu_limit, memory_limit
from attn_doctor.probes.machine.mounts import mount_of, mounts

MIB = 1 << 20
SHM = "/dev/shm"  # noqa: S108
ARCHITECTURES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
#: Words in the path of a control group or of an image layer, and the engine that writes them.
ENGINES = {
    "kubepods": "kubernetes",
    "kubelet": "kubernetes",
    "docker": "docker",
    "libpod": "podman",
    "/lxc": "lxc",
    "containers/storage": "podman",
    "containerd": "other",
}


def read(host: Host, site: Site, gaps: Gaps) -> dict[str, Any]:
    """The fields of `facts.System`."""
    platform = host.platform
    linux = platform.os == "linux"
    distribution, version, name = _distribution(host, gaps)
    total, available = _memory(host, gaps)
    shm_total, shm_free = _shm(host, gaps) if linux else (None, None)
    glibc = platform.libc.removeprefix("glibc ") if platform.libc.startswith("glibc ") else None
    musl = linux and not glibc and any(n.startswith("ld-musl-") for n in host.try_list("/lib"))
    if linux and not glibc and not musl:
        gaps.add("system.glibc", "the Python that runs attn-doctor is not linked with glibc")
    limit = cpu_limit(host) if linux else None
    machine = platform.machine.lower()
    ldconfig = (path for path in ("/sbin/ldconfig", "/usr/sbin/ldconfig") if host.is_file(path))
    system = System(
        os=platform.os,
        kernel=platform.release,
        distribution=distribution,
        distribution_version=version,
        distribution_name=name,
        wsl=wsl(host) if linux else 0,
        container=container(host) if linux else "",
        arch=ARCHITECTURES.get(machine, machine),
        glibc=glibc,
        musl=musl,
        cpus=min(platform.cpus, limit or platform.cpus),
        ram_total_mib=total,
        ram_available_mib=available,
        shm_total_mib=shm_total,
        shm_free_mib=shm_free,
        ldconfig=next(ldconfig, "") if linux else "",
        user_is_root=platform.uid == 0,
        unreachable_folders=host.unreachable(),
    )
    return {"system": system}


def _distribution(host: Host, gaps: Gaps) -> tuple[str | None, str | None, str | None]:
    """Return id, release and name of the distribution, or of Windows or macOS."""
    if host.windows:
        # 10.0.22631; Windows 11 begins with build 22000 and may still call itself 10.
        version = host.platform.version
        build = natural(version.rpartition(".")[2]) or 0
        eleven = host.platform.release == "10" and build >= 22000
        return "windows", version, f"Windows {'11' if eleven else host.platform.release}"
    if host.platform.os == "macos":
        text = host.try_read("/System/Library/CoreServices/SystemVersion.plist")
        # <key>ProductVersion</key>
        # <string>14.5</string>
        found = re.search(r"<key>ProductVersion</key>\s*<string>([\d.]+)</string>", text)
        if found is None:
            gaps.add("system.distribution_version", "SystemVersion.plist cannot be read")
            return "macos", None, "macOS"
        return "macos", found[1], f"macOS {found[1]}"
    text = host.try_read("/etc/os-release") or host.try_read("/usr/lib/os-release")
    if not text:
        for field in ("distribution", "distribution_version", "distribution_name"):
            gaps.add(f"system.{field}", "/etc/os-release cannot be read")
        return None, None, None
    fields = _os_release(text)
    name = fields.get("PRETTY_NAME") or fields.get("NAME") or "Linux"
    # Rolling releases such as Arch Linux have no VERSION_ID.
    return fields.get("ID", "linux"), fields.get("VERSION_ID") or None, name


# ID=ubuntu
# VERSION_ID="22.04"
# PRETTY_NAME="Ubuntu 22.04.4 LTS"
def _os_release(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}


def wsl(host: Host) -> int:
    """Return the version of WSL, or 0. The kernel of WSL 1 is called `4.4.0-19041-Microsoft`."""
    release = host.platform.release
    if release.endswith("-Microsoft"):
        return 1
    marked = "microsoft" in release.lower() or "wsl2" in release.lower()
    interop = "/proc/sys/fs/binfmt_misc/WSLInterop"
    # A kernel that users build for WSL 2 may have no such name.
    return 2 if marked or host.is_file(interop) or host.is_file(f"{interop}-late") else 0


def container(host: Host) -> str:
    """Return the kind of container; empty outside one."""
    marks = (
        ("kubernetes", "KUBERNETES_SERVICE_HOST" in host.environ),
        ("kubernetes", host.is_dir("/var/run/secrets/kubernetes.io")),
        ("apptainer", host.is_dir("/.singularity.d")),
        ("podman", host.is_file("/run/.containerenv")),
        ("docker", host.is_file("/.dockerenv")),
    )
    for kind, found in marks:
        if found:
            return kind
    # systemd's convention: one word, such as lxc, podman, systemd-nspawn, oci, wsl.
    said = host.try_read("/run/systemd/container").strip() or host.environ.get("container", "")
    if said and said != "wsl":
        return said if said in ("docker", "podman", "lxc") else "other"
    root = mount_of("/", mounts(host))
    layers = " ".join(root.options) if root is not None and root.filesystem == "overlay" else ""
    for place in (host.try_read("/proc/1/cgroup"), layers):
        for word, kind in ENGINES.items():
            if word in place:
                return kind
    return ""


def _memory(host: Host, gaps: Gaps) -> tuple[int | None, int | None]:
    """Return total and available memory in MiB, within the limits set for this process."""
    # MemTotal:       24684092 kB
    # MemAvailable:   20135716 kB
    text = host.try_read("/proc/meminfo") if host.platform.os == "linux" else ""
    wanted = ("MemTotal:", "MemAvailable:")
    lines = [line.split() for line in text.splitlines() if line.startswith(wanted)]
    fields = {
        one[0].rstrip(":"): one[1]
        for one in lines
        if one[2:] == ["kB"] and one[1].isdecimal() and len(one[1]) <= 18
    }
    try:
        if len(fields) == 2:
            total, available = (int(fields[n]) << 10 for n in ("MemTotal", "MemAvailable"))
        else:
            total, available = host.memory()
    except (OSError, ImportError) as error:
        for name in ("ram_total_mib", "ram_available_mib"):
            gaps.add(f"system.{name}", f"the memory size cannot be read: {error}")
        return None, None
    limit = memory_limit(host) if host.platform.os == "linux" else None
    if limit is not None:
        total, available = min(total, limit[0]), min(available, limit[1])
    return total // MIB, available // MIB


def _shm(host: Host, gaps: Gaps) -> tuple[int | None, int | None]:
    """Return size and free space of /dev/shm in MiB; 0 if it does not exist."""
    if not host.is_dir(SHM):
        return 0, 0
    try:
        space = host.space(SHM)
    except OSError as error:
        for name in ("shm_total_mib", "shm_free_mib"):
            gaps.add(f"system.{name}", f"{SHM} cannot be read: {error.strerror}")
        return None, None
    return space.total // MIB, space.free // MIB
