"""Read TOML, with errors that name the file, the place and the fault."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from attn_doctor.errors import AttnDoctorError


def read_toml(path: Path, error: type[Exception] = AttnDoctorError) -> dict[str, Any]:
    """The content of a TOML file. Raises `error`, which names the file and the place in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as fault:
        raise error(f"{path}: cannot be read: {fault.strerror or fault}") from None
    except UnicodeDecodeError as fault:
        raise error(f"{path}: cannot be read: {fault}") from None
    return parse_toml(text, str(path), error)


def parse_toml(text: str, name: str, error: type[Exception] = AttnDoctorError) -> dict[str, Any]:
    """The content of a TOML text. Raises `error`, which begins with `name` and the place."""
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        import tomli as tomllib
    try:
        data: dict[str, Any] = tomllib.loads(text)
        return data
    except tomllib.TOMLDecodeError as fault:
        place = re.sub(r"^(.*) \(at (.*)\)$", r"\2: \1", str(fault))
        raise error(f"{name}: {place}; this is not valid TOML") from None
    except RecursionError:
        raise error(f"{name}: tables and lists are nested too deeply to be read") from None
    except ValueError as fault:  # such as an integer of too many digits
        raise error(f"{name}: cannot be read as TOML: {fault}") from None
