"""SimpleTuner's `config.json` and `config.toml`: outermost settings, with their lines."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from attn_doctor.configs.readers.settings import ConfigError, Setting, Value
from attn_doctor.toml_files import parse_toml

_JSON_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[{}\[\]:\n]')
_TOML_KEY = re.compile(r"""^[ \t]*(?:"([^"\n]{1,200})"|'([^'\n]{1,200})'|([\w-]{1,200}))[ \t]*=""")
_TOML_TABLE = re.compile(r"^[ \t]*\[")


def json_settings(text: str, name: str) -> dict[str, Setting]:
    """The settings in a JSON text. Raises `ConfigError` naming the place."""
    try:
        data = json.loads(text)
        json.dumps(data, ensure_ascii=False).encode()  # half a surrogate pair cannot be shown
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{name}, line {error.lineno}, column {error.colno}: no JSON: {error.msg};"
            " SimpleTuner cannot read it either"
        ) from None
    except RecursionError:
        raise ConfigError(f"{name}: objects and lists are nested too deeply to be read") from None
    except ValueError as error:  # a number of thousands of digits, or half a surrogate pair
        raise ConfigError(f"{name}: no JSON that can be read: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{name}: holds no object of settings, but a {_kind(data)}")
    return plain_settings(data, _json_lines(text))


def plain_settings(data: Mapping[str, Any], lines: Mapping[str, int]) -> dict[str, Setting]:
    """Settings by key, leading dashes taken off. Empty and null ones count as not set."""
    found = {}
    for written, value in data.items():
        key = written.strip().lstrip("-")
        found[key] = Setting(key, _value(value), lines.get(written, 1), written)
    return found


def _value(value: Any) -> Value:
    if isinstance(value, list):
        return tuple(str(one) for one in value if not isinstance(one, (dict, list)))
    return value if isinstance(value, (str, int, float, bool)) else None


def _json_lines(text: str) -> dict[str, int]:
    """The line of each key of the outermost object; of one written twice the last, which counts."""
    found: dict[str, int] = {}
    line, depth, last, at = 1, 0, "", 1
    for match in _JSON_TOKEN.finditer(text):
        mark = match[0]
        if mark == "\n":
            line += 1
        elif mark in "{[":
            depth += 1
        elif mark in "}]":
            depth -= 1
        elif mark == ":":
            if depth == 1 and last:
                found[last] = at
        else:
            last, at = _unquoted(mark), line
    return found


def _unquoted(token: str) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        return token[1:-1]


def _kind(data: object) -> str:
    return {"list": "list", "str": "text", "NoneType": "null"}.get(type(data).__name__, "number")


def toml_settings(text: str, name: str) -> dict[str, Setting]:
    """The settings before the first table. Raises `ConfigError` naming the place."""
    data = parse_toml(text, name, ConfigError)
    return plain_settings(data, _toml_lines(text))


def _toml_lines(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if _TOML_TABLE.match(line):
            break
        match = _TOML_KEY.match(line)
        if match:
            found[next(filter(None, match.groups()))] = number
    return found
