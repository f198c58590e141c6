"""The machine itself: its system, the places that are written to, and what is on its PCI bus."""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.facts.kinds import Version


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
