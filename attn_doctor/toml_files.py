"""Read TOML, with errors that name the file, the place and the fault."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from attn_doctor.errors import AttnDoctorError
from attn_doctor.files import TEXT, read_bytes

#: Dots in one line. Python's parser needs the square of a dotted key's length: a key of 200 KB
#: takes 40 GB of memory.
_DOTS = 250


def read_toml(path: Path, error: type[Exception] = AttnDoctorError) -> dict[str, Any]:
    """The content of a TOML file. Raises `error`, which names the file and the place in it."""
    try:
        text = read_bytes(path, TEXT).decode("utf-8")
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
    for number, line in enumerate(text.split("\n"), 1) if text.count(".") > _DOTS else ():
        if line.count(".") > _DOTS:
            raise error(f"{name}: line {number}: has more than {_DOTS} dots; split the line")
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
