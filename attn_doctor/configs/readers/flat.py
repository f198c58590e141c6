"""Settings of nested data by the last key and by the whole path, each with its line."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attn_doctor.configs.readers.settings import Setting, Value
from attn_doctor.configs.readers.yaml_lines import Entry

_TABLE = re.compile(r"\s*\[([^\[\]\n]{1,200})\]\s*(?:#.*)?$")
_KEY = re.compile(r"\s*([\w-]{1,200})\s*=")
#: Values that are looked at. A larger file is data.
_MOST = 20_000


def of_data(data: Mapping[str, Any], text: str) -> dict[str, Setting]:
    """The settings of JSON or TOML data; of a key that occurs several times the first."""
    lines, tables = _lines(text), _in_tables(text)
    found: dict[str, Setting] = {}
    for path, value in _leaves(data):
        key = path[-1].lstrip("-").replace("-", "_")
        found.setdefault(key, Setting(key, value, lines.get(path[-1], 1), path[-1]))
        if len(path) > 1:
            whole = ".".join(path)
            line = tables.get(whole) or lines.get(path[-1], 1)
            found.setdefault(whole, Setting(whole, value, line, whole))
    return found


def several(data: Mapping[str, Any], keys: Iterable[str]) -> tuple[str, ...]:
    """The outermost tables that each have one of `keys` with a value of its own."""
    for key in keys:
        found = {
            name: table[key]
            for name, table in data.items()
            if isinstance(table, dict) and isinstance(table.get(key), (str, int))
        }
        if len({*map(str, found.values())}) > 1:
            return tuple(found)
    return ()


def _in_tables(text: str) -> dict[str, int]:
    """The line of each key of TOML's tables, by its whole path."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        header = _TABLE.match(line)
        if header is not None:
            table = header[1]
            continue
        key = _KEY.match(line) if table else None
        if key is not None:
            found.setdefault(f"{table}.{key[1]}", number)
    return found


def _leaves(data: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Value]]:
    stack: deque[tuple[tuple[str, ...], Any]] = deque([((), data)])
    count = 0
    while stack and count < _MOST:
        path, value = stack.popleft()
        count += 1
        if isinstance(value, dict):
            stack += [((*path, str(key)), one) for key, one in value.items()]
            if path:
                yield path, None
        elif isinstance(value, list):
            stack += [(path, one) for one in value if isinstance(one, dict)]
            if path:
                yield path, tuple(str(one) for one in value if not isinstance(one, (dict, list)))
        elif path:
            yield path, value if isinstance(value, (str, int, float, bool)) else None


def _lines(text: str) -> dict[str, int]:
    """The first line of each key of JSON and TOML, in quotes or at the beginning of a line."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for match in re.finditer(r'"([^"\n]{1,200})"\s*:|^\s*([\w-]{1,200})\s*=', line[:2000]):
            found.setdefault(match[1] or match[2], number)
    return found


def of_yaml(entries: Iterable[Entry]) -> dict[str, Setting]:
    """The settings of YAML; of a key that occurs several times the first."""
    found: dict[str, Setting] = {}
    for entry in entries:
        named = [(at, one) for at, one in enumerate(entry.path) if one != "-"]
        for at, name in named:
            key = name.replace("-", "_")
            last = at == named[-1][0]
            found.setdefault(key, Setting(key, entry.value if last else None, entry.line, name))
    return found


def paths_of_yaml(entries: Iterable[Entry]) -> dict[str, Setting]:
    """The settings of YAML by their whole paths; items of a list are one value."""
    found: dict[str, Setting] = {}
    for entry in entries:
        key = ".".join(one for one in entry.path if one != "-")
        first = found.get(key)
        if first is not None and first.text:
            found[key] = Setting(key, f"{first.text} {entry.value}".strip(), first.line)
        else:
            found[key] = Setting(key, entry.value, entry.line)
    return found


def mappings_of_yaml(entries: Iterable[Entry]) -> list[dict[str, Setting]]:
    """The settings of each mapping of YAML by themselves, the outermost first."""
    below: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        if entry.path and entry.path[-1] != "-":
            below.setdefault(entry.path[:-1], []).append(entry)
    return [
        of_yaml(Entry(one.path[-1:], one.value, one.line) for one in below[path])
        for path in sorted(below, key=len)
    ]


def mappings_of_data(
    data: Mapping[str, Any], known: Mapping[str, Setting]
) -> Iterator[dict[str, Setting]]:
    """The settings of each mapping of JSON or TOML by themselves, the outermost first.

    `known`: all settings, whose lines count.
    """
    queue: deque[object] = deque([data])
    count = 0
    while queue and count < _MOST:
        one = queue.popleft()
        count += 1
        if isinstance(one, list):
            queue += [each for each in one if isinstance(each, (dict, list))]
        elif isinstance(one, dict):
            queue += [each for each in one.values() if isinstance(each, (dict, list))]
            yield dict(_own(str(key), value, known) for key, value in one.items())


def _own(written: str, value: object, known: Mapping[str, Setting]) -> tuple[str, Setting]:
    key = written.lstrip("-").replace("-", "_")
    plain = value if isinstance(value, (str, int, float, bool)) else None
    return key, Setting(key, plain, known[key].line if key in known else 1, written)
