"""Locks: one for each run of `fix`, and one for each environment that a run changes.

filelock is not used: an installer inherits the open file, so a lock lasts as long as an installer
that outlives a killed run, and filelock releases it explicitly.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from attn_doctor.errors import AttnDoctorError


def lock(path: Path) -> int:
    """Take the lock at `path` and return the file descriptor that holds it.

    Raises `OSError` if another process holds it, or the file cannot be made.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _take(handle)
    except OSError:
        os.close(handle)
        raise
    return handle


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock at `path` now. Makes and writes nothing."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        _take(handle, shared=True)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


@contextlib.contextmanager
def environment_lock(folder: str, state: Path) -> Iterator[int]:
    """Hold the lock of the environment whose packages are in `folder`; yield its descriptor.

    The folder itself is locked, so that no file is made in it. Where that is impossible (Windows,
    some network file systems), a file in `state` is locked. Raises `AttnDoctorError` if another run
    holds the lock.
    """
    try:
        os.stat(folder)
        handle = _folder_lock(folder)
        if handle is None:
            state.mkdir(parents=True, exist_ok=True, mode=0o700)
            name = hashlib.sha256(os.path.realpath(folder).encode()).hexdigest()[:16]
            handle = lock(state / f"{name}.lock")
    except OSError as error:
        if _is_taken(error):
            raise AttnDoctorError(
                f"another run of fix is changing {folder}; wait until it has ended, then run this"
                " command again (`attn-doctor fix history` lists the runs)"
            ) from None
        raise AttnDoctorError(f"{folder} cannot be locked: {error.strerror}") from None
    try:
        yield handle
    finally:
        os.close(handle)


def _folder_lock(folder: str) -> int | None:
    """The descriptor of the locked folder; None if this system cannot lock folders."""
    if sys.platform == "win32":
        return None
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _take(handle)
    except OSError as error:
        os.close(handle)
        if _is_taken(error):
            raise
        return None
    return handle


def _is_taken(error: OSError) -> bool:
    """Another process holds the lock."""
    return error.errno == errno.EAGAIN


def _take(handle: int, *, shared: bool = False) -> None:
    """Lock an open file. Raises `OSError`, with `EAGAIN` if another process holds the lock."""
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            # It fails for an open file only if the lock is held, and says EACCES, as for a file
            # that may not be opened.
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
    else:
        import fcntl

        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
