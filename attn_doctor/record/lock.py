"""One builder at a time in a cache folder, also when several machines share it over NFS.

The lock is a file `lock.<n>` beside the manifest; the highest n counts. When its owner has released
it or has exited, a builder makes `lock.<n+1>` by a hard link. Only one builder can do that, and NFS
does it in one step. So the lock of an exited owner is never removed just after another builder took
it. The file that counts is never deleted, only marked as free.

An owner on this boot of this machine is looked up by its process id. Of any other owner only the
heartbeat is known: it sets the file's time every few seconds, and counts as exited when that time
did not change in all looks of `DEAD` seconds. Looks are counted, not seconds: clocks of two
machines may differ, and while an NFS server is away neither the owner nor we can do anything. Host
names are not compared, as containers on different machines may share one.

filelock is not used: it takes `flock`, which stays local to one machine with the NFS mount options
`nolock` and `local_lock` (`man 5 nfs`). flufl.lock is not used: its lifetimes compare clocks.
"""

from __future__ import annotations

import os
import platform
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.errors import OwnershipError
from attn_doctor.files import open_binary, read_text, write_atomic
from attn_doctor.json_files import JsonError, decode
from attn_doctor.worker.ownership import danger

_T = TypeVar("_T")

#: Below the cache folder: manifest, lock and logs.
FOLDER = "attn-doctor"
#: Seconds between two heartbeats, and without one until an owner elsewhere counts as exited.
BEAT, DEAD = 5.0, 30.0
#: Seconds between two looks at a lock that another builder holds.
LOOK = 0.5
#: How often a file is deleted that another process holds open, and the seconds between.
_TRIES, _PAUSE = 40, 0.05


class LockLostError(Exception):
    """Another builder took over: this one was suspended so long that it seemed to have exited."""


class Owner(Struct, frozen=True, kw_only=True):
    """The process that holds, or held, a lock."""

    host: str
    pid: int
    started: float
    """When that process began, by its machine; distinguishes a reused process id."""
    boot: str
    """Id of the boot of that machine, and of the namespace in which `pid` is a number."""
    since: str
    """UTC, ISO 8601."""
    token: str
    free: bool = False
    """It was released."""


class _Seen(Struct, frozen=True):
    """The lock file that counts, as it is now."""

    number: int
    owner: Owner | None
    """None: empty or unreadable, as after a power loss."""
    beat: float


class Lock:
    """The lock on one cache folder; use it in a `with` block.

    `waiting` is called with the owner (None if the file does not name it) each time the lock is
    taken; it may raise to give up. Entering the block raises `OwnershipError` if another user
    decides what is in the folder.
    """

    def __init__(
        self, folder: Path, waiting: Callable[[Owner | None], None] = lambda _: None
    ) -> None:
        self._folder = folder / FOLDER
        self._waiting = waiting
        self._me = _this()
        self._path: Path | None = None
        self._stop = threading.Event()

    def __enter__(self) -> Lock:  # noqa: PYI034 (Self is newer than Python 3.10)
        self._folder.mkdir(parents=True, exist_ok=True)
        # Asked after the folder exists: in /tmp another user may have made it just before.
        if found := danger(os.fspath(self._folder)):
            raise OwnershipError(f"{self._folder} is not used: {found}")
        last: _Seen | None = None
        looks = 0
        while True:
            seen = _seen(self._folder)
            looks = looks + 1 if seen == last else 0
            if seen is None or _available(seen, looks):
                self._path = self._taken((seen.number if seen else 0) + 1)
                if self._path is not None:
                    break
                continue
            last = seen
            self._waiting(seen.owner)
            time.sleep(LOOK)
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._path is not None and self.held():
            path, data = self._path, msgspec.json.encode(replace(self._me, free=True))
            with suppress(OSError):
                _patiently(partial(write_atomic, path, data))

    def held(self) -> bool:
        """Whether it is still ours: another builder may take it while this process is suspended."""
        seen = _seen(self._folder)
        return seen is not None and seen.owner is not None and seen.owner.token == self._me.token

    def check(self) -> None:
        """Raise `LockLostError` if another builder has taken over; to be called before writing."""
        if not self.held():
            raise LockLostError

    def _taken(self, number: int) -> Path | None:
        """The path of `lock.<number>` if we could make it; None if another builder did."""
        path = self._folder / f"lock.{number}"
        draft = self._folder / f".lock-{self._me.token}"
        write_atomic(draft, msgspec.json.encode(self._me))
        try:
            os.link(draft, path)
        except FileExistsError:
            return None
        except OSError:
            # A file system without hard links: exclusive creation is the next best.
            try:
                with path.open("xb") as file:
                    file.write(msgspec.json.encode(self._me))
            except FileExistsError:
                return None
        finally:
            _delete(draft)
        # A listing from an NFS client's cache may be old; after our own change it is current.
        if max(_numbers(self._folder), default=0) > number:
            path.unlink(missing_ok=True)
            return None
        for old in _numbers(self._folder):
            if old < number:
                with suppress(OSError):
                    (self._folder / f"lock.{old}").unlink()
        return path

    def _beat(self) -> None:
        while not self._stop.wait(BEAT):
            with suppress(OSError):
                if self._path is not None:
                    os.utime(self._path)


def _delete(draft: Path) -> None:
    """Delete a draft.

    Windows refuses while another builder reads the lock, which is the same file by another name.
    """
    for _ in range(_TRIES):
        with suppress(PermissionError):
            draft.unlink(missing_ok=True)
            return
        time.sleep(_PAUSE)


def owner(folder: Path) -> Owner | None:
    """The holder of the lock of a cache folder; None if it is free."""
    seen = _seen(folder / FOLDER)
    return None if seen is None or seen.owner is None or seen.owner.free else seen.owner


def is_running(one: Owner) -> bool | None:
    """Whether the owner still runs; None if it is on another machine, container or boot."""
    if one.boot != _boot():
        return None
    return _started(one.pid) == one.started


def _available(seen: _Seen, looks: int) -> bool:
    """Whether its owner released it, has exited, or sent no heartbeat in `looks` looks."""
    if seen.owner is not None:
        if seen.owner.free:
            return True
        running = is_running(seen.owner)
        if running is not None:
            return not running
    return looks * LOOK >= DEAD


def _numbers(folder: Path) -> list[int]:
    ends = (name.partition("lock.")[2] for name in os.listdir(folder) if name.startswith("lock."))
    return [int(end) for end in ends if end.isdigit()]


def _seen(folder: Path) -> _Seen | None:
    """The lock file that counts; None if there is none."""
    while True:
        try:
            numbers = _numbers(folder)
        except FileNotFoundError:
            return None
        if not numbers:
            return None
        path = folder / f"lock.{max(numbers)}"
        try:
            # Opened, not only asked for its status: an NFS client then asks the server anew.
            with _patiently(partial(open_binary, path)) as file:
                data, beat = file.read(1 << 16), os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            continue  # replaced by a higher one in this moment
        try:
            return _Seen(max(numbers), decode(data, Owner), beat)
        except JsonError:
            return _Seen(max(numbers), None, beat)


def _patiently(do: Callable[[], _T]) -> _T:
    """Do it. Windows refuses while another process has the file open, so try there for a second."""
    for _ in range(50 if os.name == "nt" else 0):
        with suppress(PermissionError):
            return do()
        time.sleep(0.02)
    return do()


def _this() -> Owner:
    """This process as an owner."""
    return Owner(
        host=platform.node(),
        pid=os.getpid(),
        started=_started(os.getpid()) or 0.0,
        boot=_boot(),
        since=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        token=uuid.uuid4().hex,
    )


def _boot() -> str:
    """An id of this boot of this machine and this namespace of process ids."""
    try:
        boot = read_text("/proc/sys/kernel/random/boot_id", 100).strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()  # Windows and macOS, where host names distinguish machines


def _started(pid: int) -> float | None:
    """When a process of this machine began; None if it does not run."""
    # On Windows, /proc is a folder of the current drive, which anyone may have made.
    if os.name == "posix":
        try:
            # 1234 (name) S 1 … : the state is the 3rd field, the start the 22nd, in ticks.
            fields = read_text(f"/proc/{pid}/stat", 1 << 16).rpartition(")")[2].split()
            return None if fields[0] == "Z" else float(fields[19])
        except FileNotFoundError:
            if os.path.isdir("/proc/self"):
                return None
    import psutil

    try:
        return float(round(psutil.Process(pid).create_time()))
    except psutil.Error:
        return None
