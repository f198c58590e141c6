"""SimpleTuner's `config.toml`."""

from __future__ import annotations

import re

from attn_doctor.configs.readers.json_file import plain_settings
from attn_doctor.configs.readers.settings import ConfigError, Setting

_KEY = re.compile(r"""^[ \t]*(?:"([^"\n]{1,200})"|'([^'\n]{1,200})'|([\w-]{1,200}))[ \t]*=""")
_TABLE = re.compile(r"^[ \t]*\[")


def settings_of(text: str, name: str) -> dict[str, Setting]:
    """The settings before the first table. Raises `ConfigError` naming the place."""
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        import tomli as tomllib
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        told = re.sub(r"^(.*) \(at (.*)\)$", r"\2: \1", str(error))
        raise ConfigError(f"{name}: no TOML: {told}") from None
    except RecursionError:
        raise ConfigError(f"{name}: tables and lists are nested too deeply to be read") from None
    except ValueError as error:
        raise ConfigError(f"{name}: no TOML that can be read: {error}") from None
    return plain_settings(data, _lines(text))


def _lines(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if _TABLE.match(line):
            break
        match = _KEY.match(line)
        if match:
            found[next(filter(None, match.groups()))] = number
    return found
