"""Files and folders of this machine, in the answers that `Host` gives.

All raise `OSError` as the operating system does; only `measure` passes over what it cannot read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from attn_doctor.host import stat_kind


def read(path: str, limit: int) -> str:
    """The first `limit` bytes of a file, as text."""
    with open(path, "rb") as file:
        return file.read(limit).decode("utf-8", "replace")


def head(path: str, limit: int) -> str:
    """The lines of a file up to an empty one, `limit` bytes at most."""
    with open(path, "rb") as file:
        text = b""
        while len(text) < limit and (line := file.readline(limit)).strip():
            text += line
        return text[:limit].decode("utf-8", "replace")


def grep(path: str, needles: Sequence[str], limit: int) -> list[str]:
    """The lines that hold one of `needles`, of the first `limit` bytes of a file."""
    wanted = [needle.encode() for needle in needles]
    with open(path, "rb") as file:
        text = file.read(limit)
    if not any(needle in text for needle in wanted):
        return []
    lines = (line for line in text.splitlines() if any(needle in line for needle in wanted))
    return [line.decode("utf-8", "replace") for line in lines]


def stat(path: str) -> dict[str, Any]:
    """The fields of a `Stat`."""
    found = os.stat(path)
    return {
        "kind": stat_kind(found.st_mode),
        "size": found.st_size,
        "mtime": found.st_mtime,
        "uid": found.st_uid,
        "mode": found.st_mode & 0o7777,
    }


def space(path: str) -> dict[str, int]:
    """The fields of a `Space`: bytes of the file system that `path` lies on."""
    if hasattr(os, "statvfs"):
        # What `shutil.disk_usage` does, without the time that importing shutil takes.
        found = os.statvfs(path)
        return {"total": found.f_blocks * found.f_frsize, "free": found.f_bavail * found.f_frsize}
    import shutil

    usage = shutil.disk_usage(path)
    return {"total": usage.total, "free": usage.free}


def measure(path: str, seconds: float) -> dict[str, Any]:
    """The fields of a `Measure`: what lies below `path`, counted for at most `seconds`."""
    end = time.monotonic() + seconds
    files = size = 0
    newest = 0.0
    locks: list[str] = []
    pending = [path]
    while pending:
        if time.monotonic() > end:
            break
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError:
            continue
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                    continue
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            files += 1
            size += found.st_size
            newest = max(newest, found.st_mtime)
            if entry.name == "lock" or entry.name.endswith(".lock"):
                locks.append(os.path.relpath(entry.path, path))
    return {
        "files": files,
        "bytes": size,
        "newest": newest,
        "complete": not pending,
        "locks": sorted(locks)[:50],
    }
