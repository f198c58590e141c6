"""A lock that the operating system gives up when its holder dies, however it dies."""

from __future__ import annotations

import os
import sys
from pathlib import Path


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


def held(path: Path) -> bool:
    """Some process holds the lock at `path` now."""
    if not path.exists():
        return False
    try:
        os.close(lock(path))
    except OSError:
        return True
    return False


def _take(handle: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
