"""Finds the file system of a path, whether it is on another machine, and who may write to it.

The kernel's own table is read, never the file system, which hangs if its server does not answer.
Only Linux has that table: on other systems facts about mounts stay unknown. A mount that a later
mount hides higher up in the tree counts as visible.
"""

from __future__ import annotations

import ntpath
import re

from msgspec import Struct

from attn_doctor.host import Host
from attn_doctor.worker.reach import NETWORK

TABLE = "/proc/self/mountinfo"

#: File systems of other machines behind FUSE, which the kernel lists as `fuse.<name>`.
NETWORK_FUSE = (
    *("alluxio", "beegfs", "blobfuse", "blobfuse2", "ceph", "ceph-fuse", "curlftpfs", "cvmfs2"),
    *("davfs", "drive", "gcsfuse", "geesefs", "glusterfs", "goofys", "juicefs", "mfs"),
    *("mount-s3", "mountpoint-s3", "objectivefs", "quobyte", "rclone", "s3fs", "seaweedfs"),
    *("smbnetfs", "sshfs"),
)


#: File systems that show the kernel; no user can create files there.
KERNEL = ("proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs")


class Mount(Struct, frozen=True):
    """One mounted file system."""

    path: str
    """Where it is mounted."""
    filesystem: str
    """Its type, such as `ext4`, `nfs4`, `fuse.sshfs`."""
    options: tuple[str, ...] = ()
    """Options of this mount, then those of the whole file system."""
    source: str = ""
    """The device or share behind it."""


def mounts(host: Host) -> tuple[Mount, ...]:
    """Return every mount that this process sees, oldest first; none outside Linux."""
    # A large cluster node lists thousands; 4 MiB holds about 20 000.
    text = host.try_read(TABLE, 1 << 22) if host.platform.os == "linux" else ""
    return tuple(filter(None, map(_mount, text.splitlines())))


def mount_of(path: str, mounts: tuple[Mount, ...]) -> Mount | None:
    """Return the mount of `path`. Pass `host.real(path)`: links are not followed here."""
    best: Mount | None = None
    for mount in mounts:
        inside = path == mount.path or path.startswith(mount.path.rstrip("/") + "/")
        # Of two mounts at the same path the later one hides the earlier one.
        if inside and (best is None or len(mount.path) >= len(best.path)):
            best = mount
    return best


def network(mount: Mount) -> bool:
    """Whether its files are on another machine."""
    kind = mount.filesystem
    if kind == "9p":
        return "trans=tcp" in mount.options or "trans=rdma" in mount.options
    return kind in NETWORK or (kind.startswith("fuse.") and kind[5:] in NETWORK_FUSE)


def noexec(mount: Mount) -> bool:
    """Whether programs and libraries on it cannot be loaded."""
    return "noexec" in mount.options


def existing(host: Host, path: str) -> str:
    """Return `path` or its nearest existing parent; empty if not even a root exists."""
    while path and host.try_stat(path) is None:
        above = host.parent(path)
        path = "" if above == path else above
    return path


def writable(host: Host, path: str, known: tuple[Mount, ...] | None = None) -> bool | None:
    """Whether this user may create files in the directory `path`, or can create it.

    `known` are the mounts, if they were read before. None on Windows outside the home directory,
    where only an attempt to write shows it.
    """
    found = existing(host, path)
    if not found or not host.is_dir(found):
        return False
    if not (host.access(found, "w") and host.access(found, "x")):
        return False
    if host.windows:
        return True if in_home(host, found) else None
    mount = mount_of(host.real(found), mounts(host) if known is None else known)
    # Some kernels let root's access check pass on a read-only mount, and in /proc.
    return mount is None or not ("ro" in mount.options or mount.filesystem in KERNEL)


def in_home(host: Host, path: str) -> bool:
    """Whether a path of Windows lies in the user's home directory."""
    home = ntpath.normcase(host.platform.home).rstrip("\\")
    return bool(home) and (ntpath.normcase(path) + "\\").startswith(home + "\\")


# 36 35 98:0 /mnt1 /mnt/my\040disk rw,noatime master:1 - ext3 /dev/root rw,errors=continue
def _mount(line: str) -> Mount | None:
    left, dash, right = line.partition(" - ")
    before, after = left.split(" "), right.split(" ")
    if not dash or len(before) < 6 or len(after) < 2:
        return None
    options = [*before[5].split(","), *(after[2].split(",") if len(after) > 2 else ())]
    return Mount(
        path=_unescape(before[4]),
        filesystem=after[0],
        options=tuple(dict.fromkeys(options)),
        source=_unescape(after[1]),
    )


def _unescape(text: str) -> str:
    r"""Return `text` with the kernel's escapes such as `\040` replaced, bytes as UTF-8."""
    if "\\" not in text:
        return text
    raw = re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8) & 255]), text.encode())
    return raw.decode("utf-8", "replace")
