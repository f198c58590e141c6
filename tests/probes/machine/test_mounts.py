"""File systems, read from the kernel's table of mounts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from attn_doctor.host.local import LocalHost
from attn_doctor.probes.machine.mounts import (
    Mount,
    existing,
    mount_of,
    mounts,
    network,
    noexec,
    writable,
)
from tests.probes.tree import MOUNTINFO, machine

CLUSTER = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 27 0:30 / /home rw,relatime - autofs systemd-1 rw,fd=29,direct
31 27 0:31 / /home rw,relatime shared:7 - nfs4 files:/export/home rw,vers=4.2
32 27 0:32 / /tmp rw,nosuid,nodev,noexec - tmpfs tmpfs rw,size=8g
33 27 0:33 / /mnt/my\040disk\134x ro,relatime - ext4 /dev/sdb1 rw
34 27 0:34 / /mnt/fr\303\251 rw - fuse.sshfs ada@files:/x rw
35 27 0:35 / /scratch rw,relatime shared:9 master:2 - lustre 10.0.0.1@o2ib:/x rw,flock
this line means nothing
"""


def cluster() -> tuple[Mount, ...]:
    return mounts(machine({MOUNTINFO: CLUSTER}))


def at(path: str) -> Mount:
    found = mount_of(path, cluster())
    assert found is not None
    return found


def test_lines_of_the_mount_table() -> None:
    assert [mount.path for mount in cluster()] == [
        "/proc",
        "/",
        "/home",
        "/home",
        "/tmp",
        r"/mnt/my disk\x",
        "/mnt/fré",
        "/scratch",
    ]


def test_options_of_the_mount_and_of_its_file_system() -> None:
    assert at("/").options == ("rw", "relatime", "discard")
    assert at("/home/ada").source == "files:/export/home"


def test_the_longest_prefix_counts_in_whole_names() -> None:
    assert at("/tmp").path == "/tmp"
    assert at("/tmp/x/y").path == "/tmp"
    assert at("/tmpfiles").path == "/"


def test_a_later_mount_hides_an_earlier_one() -> None:
    assert at("/home/ada").filesystem == "nfs4"


def test_without_the_table_mounts_are_unknown() -> None:
    assert mount_of("/", ()) is None
    assert mounts(machine(os="macos", answers={f"read {MOUNTINFO}": {"answer": CLUSTER}})) == ()


@pytest.mark.parametrize(
    ("kind", "options", "remote"),
    [
        ("nfs", (), True),
        ("nfs4", (), True),
        ("cifs", (), True),
        ("lustre", (), True),
        ("ceph", (), True),
        ("beegfs", (), True),
        ("gpfs", (), True),
        ("fuse.sshfs", (), True),
        ("fuse.gcsfuse", (), True),
        ("9p", ("rw", "trans=tcp"), True),
        # WSL's Windows drives, and QEMU's shares
        ("9p", ("rw", "aname=drvfs;path=C:\\", "trans=fd"), False),
        ("9p", ("rw", "trans=virtio"), False),
        ("ext4", (), False),
        ("overlay", (), False),
        ("tmpfs", (), False),
        ("fuse.fuse-overlayfs", (), False),
        ("sshfs", (), False),
    ],
)
def test_network_file_systems(kind: str, options: tuple[str, ...], remote: bool) -> None:
    assert network(Mount("/x", kind, options)) is remote


def test_noexec() -> None:
    assert noexec(at("/tmp/x"))
    assert not noexec(at("/home"))


def test_nearest_ancestor() -> None:
    host = machine({"/home/ada/notes.txt": ""})
    assert existing(host, "/home/ada") == "/home/ada"
    assert existing(host, "/home/ada/a/b/c") == "/home/ada"
    assert existing(host, "/nowhere/at/all") == "/"
    assert existing(host, "") == ""
    assert existing(machine(), "relative/path") == ""


def test_a_folder_that_can_be_created_is_writable() -> None:
    host = machine(locked=["/"])
    assert writable(host, "/home/ada/.cache/torch") is True
    assert writable(host, "/srv/cache") is False


def test_below_a_file_nothing_can_be_created() -> None:
    host = machine({"/home/ada/.cache": "a file"})
    assert writable(host, "/home/ada/.cache") is False


def test_root_cannot_write_to_a_read_only_mount() -> None:
    host = machine({MOUNTINFO: CLUSTER}, folders=[r"/mnt/my disk\x"], uid=0)
    assert writable(host, r"/mnt/my disk\x/cache") is False
    assert writable(host, "/home/ada", known=()) is True


def test_on_windows_only_the_home_directory_is_known() -> None:
    host = machine(os="windows", folders=[r"C:\Program Files\Python312", r"c:\users\ADA"])
    assert writable(host, r"C:\Users\ada\AppData\Local\Temp\x") is True
    assert writable(host, r"c:\users\ADA") is True
    assert writable(host, r"C:\Program Files\Python312\Lib") is None
    assert writable(host, r"C:\Users\adamant") is None
    assert writable(host, r"D:\x") is False


@pytest.mark.skipif(sys.platform != "linux", reason="Linux lists its mounts")
def test_this_machine(tmp_path: Path) -> None:
    host = LocalHost()
    known = mounts(host)
    proc = mount_of("/proc/self", known)
    assert proc is not None
    assert proc.filesystem == "proc"
    assert mount_of(str(tmp_path), known) is not None
    assert writable(host, str(tmp_path / "new" / "folder"), known) is True
