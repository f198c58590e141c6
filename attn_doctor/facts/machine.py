"""The machine: its operating system, directories that are written to, and its PCI devices."""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.facts.kinds import PciVendor, Purpose, Version


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
    """Full name of the distribution, such as `Ubuntu 22.04.4 LTS`."""
    wsl: int | None = None
    """Version of WSL, 1 or 2; 0 outside WSL."""
    container: str | None = None
    """Kind of container: `docker`, `podman`, `kubernetes`, `apptainer`, `lxc` or `other`; empty
    outside one."""
    arch: str | None = None
    """Processor architecture: `x86_64`, `aarch64`, …"""
    glibc: Version | None = None
    """Version of the GNU C library."""
    musl: bool | None = None
    """The C library is musl (Alpine), for which torch publishes no wheels."""
    cpus: int | None = None
    """Processors that this process may use."""
    ram_total_mib: int | None = None
    """Physical memory in MiB, or the container's limit if that is smaller."""
    ram_available_mib: int | None = None
    """Memory available without swapping, in MiB."""
    shm_total_mib: int | None = None
    """Size of /dev/shm in MiB."""
    shm_free_mib: int | None = None
    """Free space in /dev/shm in MiB."""
    ldconfig: str | None = None
    """Path of `ldconfig`, which Triton runs to find libcuda; empty if there is none."""
    user_is_root: bool | None = None
    """attn-doctor runs as root."""
    unreachable_folders: tuple[str, ...] | None = None
    """Folders that do not answer, such as those of a file server that is gone. A variable, an
    argument or the environment of the examined Python leads to them."""


class Directory(Struct, frozen=True, kw_only=True):
    """A directory that compilers and caches write to."""

    purpose: Purpose | None = None
    """`home`, `tmp` or `cache`."""
    path: str | None = None
    """Absolute path."""
    exists: bool | None = None
    """The directory exists."""
    writable: bool | None = None
    """This user may create files in it, or can create it."""
    noexec: bool | None = None
    """It is mounted `noexec`: compiled code in it cannot be loaded."""
    filesystem: str | None = None
    """Type of file system, such as `ext4`, `tmpfs`, `nfs4`, `overlay`."""
    network: bool | None = None
    """The file system is on another machine."""
    free_mib: int | None = None
    """Free space in MiB."""


class PciDevice(Struct, frozen=True, kw_only=True):
    """A display or compute device on the PCI bus, read without its driver."""

    address: str | None = None
    """PCI address, such as `0000:01:00.0`."""
    vendor: PciVendor | None = None
    """`nvidia`, `amd`, `intel` or `other`."""
    device_id: str | None = None
    """Four hexadecimal digits."""
    name: str | None = None
    """Product name from a table of PCI ids; empty if the id is not in a table."""
    sm: int | None = None
    """Compute capability ×10 of an NVIDIA product; None if the table does not list it."""
    kernel_driver: str | None = None
    """Its kernel driver, such as `nvidia`, `nouveau`, `vfio-pci`; empty if it has none."""
