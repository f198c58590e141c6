"""Locks in caches: which are held, by which process, and which were left by crashed processes.

torch's extension builds create a file `lock` and remove it at the end. Later builds wait for it,
for ever if its owner was killed. All other lock files stay for good and count only while the kernel
holds them locked. Our own builds write into the file who they are.

Only Linux shows which files other processes have open, and only those of this user (root sees all)
in this container. So a lock counts as free only where every process could be examined.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from attn_doctor.files import open_file, read_text
from attn_doctor.kernels.caches.contents import Contents
from attn_doctor.kernels.caches.file_tree import Tree


class Holder(Struct, frozen=True):
    """A process that has a file open."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})"


class Holders(Struct, frozen=True):
    """Which of the files are open, and in which process."""

    by_path: dict[str, Holder] = {}
    whole: bool = False
    """Every process of this system was examined, so the other files are not open."""


def holders(paths: Iterable[str]) -> Holders:
    """Find the processes that have one of `paths` open."""
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
    """Say whether another process has locked the file in the kernel; None if that is unknown."""
    try:
        handle = open_file(path, follow=False)
    except OSError:
        return None
    try:
        return not take(handle, shared=True)
    except OSError:
        return None
    finally:
        os.close(handle)


def take(handle: int, *, shared: bool = False) -> bool:
    """Lock an open file in the kernel until it is closed; False if another process holds it.

    Raises `OSError` if that is unknown, as on some network disks. Always true on Windows, which
    does not delete a file that a process has open.
    """
    try:
        import fcntl
    except ImportError:
        return True
    how = fcntl.LOCK_NB | (fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    try:
        fcntl.flock(handle, how)
        fcntl.lockf(handle, how)  # POSIX locks, which do not see those of flock
    except (BlockingIOError, PermissionError):
        return False
    return True


def _open_files(pid: int) -> set[tuple[int, int]] | None:
    """Device and inode of each open file of a process; None if access is denied."""
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
    """This process is not in the system's own process namespace, so others may be invisible."""
    try:
        return os.readlink("/proc/self/ns/pid") != "pid:[4026531836]"
    except OSError:
        return True


def _command(pid: int) -> str:
    try:
        words = read_text(f"/proc/{pid}/cmdline", 400, cut=True).split("\0")
    except OSError:
        return "?"
    return " ".join(word for word in words if word)[:80] or "?"


#: Seconds after which an extension's lock that no process has open counts as abandoned, if nothing
#: was written beside it either. No single file takes an hour to compile.
STALE = 3600.0


class Lock(Struct, frozen=True, kw_only=True):
    """A lock that matters now: held by a process, or abandoned while later builds wait for it."""

    path: str
    """Relative to the cache's root."""
    holder: str
    """The process that holds it; empty if none does."""
    stale: bool = False
    """Its owner has exited, and it has to be removed."""
    doubt: str = ""
    """Why it is unknown whether it is stale."""


def locks(contents: Contents, tree: Tree, network: bool | None = None) -> tuple[Lock, ...]:
    """Return held and stale locks. `network`: the cache is on a disk of another machine."""
    if contents.kind == "extensions":
        return tuple(_batons(contents, tree, network))
    found = [*_builder(contents)]
    states = {path: locked(tree.full(path)) for path in contents.locks}
    unknown = "whether a process holds it is unknown"
    found += [Lock(path=path, holder="", doubt=unknown) for path in states if states[path] is None]
    held = [path for path in states if states[path]]
    owners = holders(map(tree.full, held)).by_path if held else {}
    for path in held:
        owner = owners.get(tree.full(path))
        found.append(Lock(path=path, holder=str(owner) if owner else "a process"))
    return tuple(found)


def _batons(contents: Contents, tree: Tree, network: bool | None) -> list[Lock]:
    """Return the `lock` files of extension builds."""
    paths = {path: tree.full(path) for path in contents.locks}
    seen = holders(paths.values())
    found = []
    for path, full in paths.items():
        owner = seen.by_path.get(full)
        # A long build writes one object file after the other beside its lock.
        folder = path.rpartition("/")[0]
        newest = max(node.mtime for node in tree.files if node.folder == folder)
        age = time.time() - newest
        if owner is not None:
            found.append(Lock(path=path, holder=str(owner)))
        elif network:
            doubt = "it is on a network disk, so a build on another machine may hold it"
            found.append(Lock(path=path, holder="", doubt=doubt))
        elif age > STALE or seen.whole:
            found.append(Lock(path=path, holder="", stale=True))
        else:
            doubt = "not all processes could be examined, and its folder changed in the last hour"
            found.append(Lock(path=path, holder="", doubt=doubt))
    return found


def _builder(contents: Contents) -> list[Lock]:
    """Return the lock of `build-kernels`, unless its owner has exited."""
    if contents.kind != "inductor" or not contents.record:
        return []
    from attn_doctor.record.lock import FOLDER, is_running, owner

    holder = owner(Path(contents.root))
    if holder is None or is_running(holder) is False:
        return []
    where = "" if is_running(holder) else f" on {holder.host}"
    text = f"attn-doctor build-kernels, process {holder.pid}{where}, since {holder.since}"
    return [Lock(path=FOLDER, holder=text)]
