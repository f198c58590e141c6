"""SimpleTuner's `config.toml`."""

from __future__ import annotations

import re

from attn_doctor.configs.readers.json_file import plain_settings
from attn_doctor.configs.readers.settings import ConfigError, Setting
from attn_doctor.toml_files import parse_toml

_KEY = re.compile(r"""^[ \t]*(?:"([^"\n]{1,200})"|'([^'\n]{1,200})'|([\w-]{1,200}))[ \t]*=""")
_TABLE = re.compile(r"^[ \t]*\[")


def settings_of(text: str, name: str) -> dict[str, Setting]:
    """The settings before the first table. Raises `ConfigError` naming the place."""
    data = parse_toml(text, name, ConfigError)
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
