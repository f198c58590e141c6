"""Who holds a lock file: which process has it open, and whether it is locked in the kernel.

Only Linux shows which files other processes have open, and only those of this user (root sees
all), in this container. So *nobody* is said only where every process could be looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from msgspec import Struct


class Holder(Struct, frozen=True):
    """A process that has a file open."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})"


class Holders(Struct, frozen=True):
    """Which of the files are open, and by whom."""

    by_path: dict[str, Holder] = {}
    whole: bool = False
    """Every process of this system was looked at, so that the other files are nobody's."""


def holders(paths: Iterable[str]) -> Holders:
    """The processes that have one of `paths` open."""
    wanted = {}
    for path in paths:
        try:
            found = os.lstat(path)
            wanted[found.st_dev, found.st_ino] = path
        except OSError:
            continue
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return Holders()
    found_by: dict[str, Holder] = {}
    whole = True
    for pid in pids if wanted else ():
        if pid == os.getpid():
            continue
        opened = _open_files(pid)
        whole = whole and opened is not None
        for identity in wanted.keys() & (opened or set()):
            found_by[wanted[identity]] = Holder(pid, _command(pid))
    return Holders(found_by, whole and not _contained())


def locked(path: str) -> bool | None:
    """The file is locked in the kernel by another process; None if that cannot be told."""
    try:
        import fcntl
    except ImportError:
        return None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(handle, fcntl.LOCK_UN)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(handle)


def _open_files(pid: int) -> set[tuple[int, int]] | None:
    """Device and inode of each file a process has open; None if it may not be asked."""
    found = set()
    try:
        with os.scandir(f"/proc/{pid}/fd") as links:
            for link in links:
                try:
                    one = os.stat(link.path)
                    found.add((one.st_dev, one.st_ino))
                except OSError:
                    continue  # closed meanwhile, or on a server that does not answer
    except FileNotFoundError:
        return set()
    except OSError:
        return None
    return found


def _contained() -> bool:
    """This process is not in the system's own process namespace, so others may be out of sight."""
    try:
        return os.readlink("/proc/self/ns/pid") != "pid:[4026531836]"
    except OSError:
        return True


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(400).decode("utf-8", "replace").split("\0")
    except OSError:
        return "?"
    return " ".join(word for word in words if word)[:80] or "?"
