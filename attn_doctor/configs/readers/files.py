"""Reads a file that may be anything: bounded, and with a message if that fails."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from attn_doctor.configs.readers.settings import ConfigError

#: Configurations are small. A larger file is a log, a model or an attack.
LARGEST = 2 << 20


def text_of(path: Path) -> str:
    """The text of a configuration. Raises `ConfigError` that names the fault of the file."""
    name = shown(path)
    try:
        # Without waiting: a pipe without a writer would block for ever.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror or error}") from None
    try:
        known = os.fstat(handle)
        if not stat.S_ISREG(known.st_mode):
            raise ConfigError(f"{name}: is not a regular file; name the configuration itself")
        if known.st_size > LARGEST:
            raise ConfigError(
                f"{name}: {known.st_size >> 20} MiB is more than a configuration can have"
                f" ({LARGEST >> 20} MiB); name the configuration itself"
            )
        data = _read(handle)
    finally:
        os.close(handle)
    if b"\0" in data:
        line = data[: data.index(b"\0")].count(b"\n") + 1
        raise ConfigError(f"{name}, line {line}: has NUL bytes, so it is not a text file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(f"{name}, line {line}: is not UTF-8; save it as UTF-8") from None


def _read(handle: int) -> bytes:
    """Up to the limit: a file may grow while it is read."""
    parts = []
    left = LARGEST
    while left > 0 and (part := os.read(handle, min(left, 1 << 16))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def shown(path: Path) -> str:
    """A path for readers: relative if it is below the working directory."""
    try:
        return path.absolute().relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        return str(path)
