"""Folders on file systems that do not answer, such as NFS whose server is gone.

A question about such a folder blocks its thread for ever, and no signal ends that. The folders that
a command may ask about are asked at its start, in threads that may be left behind. What has not
answered is never touched again: `refuse` raises `NoAnswerError` for every path that leads there.
After `guard` Python's own functions do so too, also where a package calls them.

What dies later, while a command runs, is not noticed here.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import pathlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any

#: Seconds that a folder may take. A living server takes milliseconds.
LIMIT = 1.0
#: Seconds that a file system may take which nothing that we know of leads to.
BRIEF = 0.25
#: File systems whose files are on other machines. `9p` is one only over a network transport:
#: WSL, QEMU and gVisor use it to reach the host they run on.
NETWORK = (
    *("acfs", "afs", "beegfs", "beegfs_nodev", "ceph", "cifs", "coda", "davfs", "dvs", "gfs2"),
    *("glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs"),
    *("pvfs2", "quobyte", "smb2", "smb3", "smbfs", "wekafs"),
)

#: Functions of `os` that ask about a path, or open it.
_QUESTIONS = (
    *("stat", "lstat", "statvfs", "access", "readlink", "listdir", "scandir", "open", "mkdir"),
    *("chdir", "unlink", "remove", "rmdir", "rename", "replace", "utime"),
    *("chmod", "getxattr", "listxattr"),
)
#: What `guard` does not replace here.
_readlink = os.readlink

#: The folders that do not answer.
_dead: set[str] = set()
#: Those of them that a variable or an argument names, or that were asked about since.
_met: set[str] = set()
#: Variables that `leave_out` changed, as they were.
left_out: dict[str, str] = {}


def look(environ: Mapping[str, str], words: Sequence[str]) -> tuple[str, ...]:
    """Ask the folders that `environ` and the `words` of a command line name, and remote mounts.

    Returns those named that do not answer. Takes a millisecond if all answer, else about `LIMIT`.
    """
    if os.name == "nt":
        return ()  # paths there are not walked yet
    _dead.clear()
    _met.clear()
    named = dict.fromkeys(_named(environ, words))
    first = _Asking(named)
    if not first.wait(BRIEF):
        # Each in its own thread, with the folders above it: one of those may be the dead one.
        each = {path: _Asking([path]) for one in first.left for path in _way(one)}
        end = time.monotonic() + LIMIT - BRIEF
        for path, asking in each.items():
            if not asking.wait(max(0.0, end - time.monotonic())):
                _dead.add(path)
    found = tuple(sorted(one for one in _dead if not _dead.intersection(_way(one)[:-1])))
    _met.update(found)
    remote = {path: _Asking([path]) for path in _remote()}
    end = time.monotonic() + BRIEF
    for path, asking in remote.items():
        if not asking.wait(max(0.0, end - time.monotonic())):
            _dead.add(path)
    return found


def leave_out(environ: MutableMapping[str, str]) -> None:
    """Take what does not answer out of the variables that Python itself follows."""
    for name in ("PATH", "TMPDIR", "TEMP", "TMP"):
        value = environ.get(name, "")
        answering = [one for one in value.split(os.pathsep) if not (one and dead(one))]
        if value and os.pathsep.join(answering) != value:
            left_out[name] = value
            environ[name] = os.pathsep.join(answering)


def dead(path: str | os.PathLike[str]) -> str:
    """Return the folder that does not answer and that `path` leads into; empty if none does.

    Links are followed up to there.
    """
    if not _dead:
        return ""
    with suppress(OSError, ValueError):  # such as a working directory that was deleted
        found = _walk(os.path.join(os.getcwd(), os.fspath(path)))
        if found:
            _met.add(found)
        return found
    return ""


def all_answer() -> bool:
    """Whether no folder was found that does not answer."""
    return not _dead


def met() -> list[str]:
    """Return the folders that do not answer and that something led to."""
    return sorted(_met)


def refuse(path: str | os.PathLike[str]) -> None:
    """Raise `NoAnswerError` if `path` leads into a folder that does not answer."""
    found = dead(path) if _dead else ""
    if found:
        raise NoAnswerError(errno.ETIMEDOUT, f"{found} does not answer", os.fspath(path))


def guard() -> None:
    """Let Python's own functions raise `NoAnswerError` for paths that lead to what is dead.

    Without it each of many hundred questions would have to be preceded by `refuse`, also those of
    packages that we use. Nothing is replaced as long as everything answers.
    """
    if not _dead:
        return
    for name in _QUESTIONS:
        if (asks := getattr(os, name, None)) is not None:
            guarded = _guarded(asks)
            setattr(os, name, guarded)
            for group in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
                if asks in group:
                    group.add(guarded)
    io.open = builtins.open = _guarded(io.open)
    # Python 3.10 keeps the functions that `pathlib` calls.
    accessor = getattr(pathlib, "_normal_accessor", None)
    for name in ("stat", "open", "listdir", "scandir", "readlink", "mkdir", "unlink"):
        if hasattr(accessor, name):
            setattr(accessor, name, io.open if name == "open" else getattr(os, name))


def _guarded(asks: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which refuses paths that lead to what is dead."""

    @wraps(asks)
    def refusing(path: Any = ".", *others: Any, **named: Any) -> Any:
        for one in (path, *others[:1]):
            if isinstance(one, (str, bytes, os.PathLike)):
                refuse(os.fsdecode(one))
        return asks(path, *others, **named)

    return refusing


class NoAnswerError(TimeoutError):
    """A path leads into a folder that does not answer. `strerror` names that folder."""


class _Asking(threading.Thread):
    """Asks about some paths one after another. `left` are those without an answer."""

    def __init__(self, paths: Iterable[str]) -> None:
        super().__init__(daemon=True)
        self.left = list(paths)
        self.start()

    def run(self) -> None:
        while self.left:
            with suppress(OSError, ValueError):
                os.stat(self.left[0])
                if hasattr(os, "statvfs"):
                    os.statvfs(self.left[0])  # what `stat` says may come from a cache
            del self.left[0]

    def wait(self, seconds: float) -> bool:
        """Whether all have answered within `seconds`."""
        self.join(seconds)
        return not self.is_alive()


def _named(environ: Mapping[str, str], words: Sequence[str]) -> Iterable[str]:
    """The working directory, and every path in a variable or a word."""
    with suppress(OSError):
        yield os.getcwd()
    for name, value in environ.items():
        if name != "OLDPWD" and os.sep in value:
            yield from (one for one in value.split(os.pathsep) if os.path.isabs(one))
    for word in words:
        path = word.partition("=")[2] if word.startswith("-") else word
        if os.sep in path:
            yield path


def _remote() -> Iterable[str]:
    """Where file systems of other machines, or of a process, are mounted."""
    # 36 35 98:0 /mnt1 /mnt/my\040disk rw,noatime master:1 - nfs4 server:/share rw
    with suppress(OSError, ValueError):
        with open("/proc/self/mountinfo", "rb") as file:
            lines = file.read(1 << 22).splitlines()
        for line in lines:
            left, _, right = line.partition(b" - ")
            kind = right.split(b" ", 1)[0].decode()
            if kind.startswith("fuse") or kind in NETWORK:
                where = left.split(b" ")[4].replace(b"\\040", b" ")
                yield os.fsdecode(where)


def _way(path: str) -> list[str]:
    """The folders that lead to `path`, from the top, and `path` itself."""
    path = os.path.abspath(path)
    found = [path]
    while (above := os.path.dirname(found[0])) != found[0]:
        found.insert(0, above)
    return found


def _walk(path: str) -> str:
    """Follow `path` one name after another, and return the first dead folder."""
    here, links = os.sep, 0
    parts = deque(path.split(os.sep))
    while parts:
        part = parts.popleft()
        if part in ("", os.curdir):
            continue
        if part == os.pardir:
            here = os.path.dirname(here)
            continue
        here = os.path.join(here, part)
        if here in _dead:
            return here
        try:
            target = _readlink(here)
        except OSError:
            continue  # no link
        links += 1
        if links > 40:
            return ""
        parts.extendleft(reversed(target.split(os.sep)))
        here = os.sep if os.path.isabs(target) else os.path.dirname(here)
    return ""
