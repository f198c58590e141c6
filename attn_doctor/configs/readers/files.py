"""Reads a file that may be anything: bounded, and with a message if that fails."""

from __future__ import annotations

from pathlib import Path

from attn_doctor.configs.readers.settings import ConfigError
from attn_doctor.files import TEXT, read_bytes


def text_of(path: Path) -> str:
    """The text of a configuration. Raises `ConfigError` that names the fault of the file."""
    name = shown(path)
    try:
        data = read_bytes(path, TEXT)
    except OSError as error:
        raise ConfigError(
            f"{name}: cannot be read: {error.strerror or error}; name the configuration itself"
        ) from None
    if b"\0" in data:
        line = data[: data.index(b"\0")].count(b"\n") + 1
        raise ConfigError(f"{name}, line {line}: has NUL bytes, so it is not a text file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(f"{name}, line {line}: is not UTF-8; save it as UTF-8") from None


def shown(path: Path) -> str:
    """A path for readers: relative if it is below the working directory."""
    try:
        return path.absolute().relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        return str(path)
