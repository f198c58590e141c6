"""A Jupyter notebook: its code cells as one script, with the cell of each line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from attn_doctor.configs.readers.settings import ConfigError
from attn_doctor.json_files import JsonError, decode

#: First words of cells that are a file, that a shell runs, and that are Python.
_WRITES = ("%%writefile", "%%file")
_SHELLS = ("%%bash", "%%sh", "%%script", "%%shell")
_PYTHON = ("%%time", "%%timeit", "%%capture", "%%prun", "%%python", "%%python3")

#: Lines of the file that may lie between two lines of code, such as the output of a cell.
_FAR = 2000


class Notebook(Struct, frozen=True):
    """The code of a notebook, line by line where it is in the file."""

    code: str
    """Python; every line has the number of its line in the file."""
    shell: str
    """The lines that IPython gives to a shell, likewise."""
    cells: Mapping[int, str]
    """Line of the file → `cell 3, line 2`."""
    files: Mapping[str, str]
    """The texts that `%%writefile NAME` writes, likewise."""


def read_notebook(text: str, name: str) -> Notebook:
    """The code cells. Raises `ConfigError` if the file is not a notebook."""
    try:
        data = decode(text)
    except JsonError as error:
        raise ConfigError(f"{name}: not a notebook: {error}") from None
    cells = data.get("cells") if isinstance(data, dict) else None
    if not isinstance(cells, list):
        raise ConfigError(f"{name}: not a notebook: it has no cells")
    sources = {
        number: _source(cell)
        for number, cell in enumerate(cells, 1)
        if isinstance(cell, dict) and cell.get("cell_type") == "code"
    }
    places = _places(text, sources, cells)
    size = max((at for one in places.values() for at in one), default=0) + 1
    sheets = _Sheets([""] * size, [""] * size, {}, {})
    for number, lines in sources.items():
        _read_cell(number, lines, places[number], sheets)
    files = {name: "\n".join(lines) for name, lines in sheets.files.items() if lines}
    return Notebook("\n".join(sheets.code), "\n".join(sheets.shell), sheets.where, files)


class _Sheets(Struct):
    """What the lines of a notebook belong to; each has the place that it has in the file."""

    code: list[str]
    shell: list[str]
    where: dict[int, str]
    files: dict[str, list[str]]


def _read_cell(number: int, lines: list[str], places: list[int], sheets: _Sheets) -> None:
    magic, _, rest = (lines[0] if lines else "").strip().partition(" ")
    own: list[str] | None = None
    if magic in _WRITES:
        own = sheets.files.setdefault(rest.split()[-1] if rest else "", [])
    elif magic in _SHELLS:
        own = sheets.shell
    elif magic.startswith("%%") and magic not in _PYTHON:
        own = []
    for at, (line, place) in enumerate(zip(lines, places, strict=True), 1):
        sheets.where[place + 1] = f"cell {number}, line {at}"
        if own is None:
            _read_line(line, place, sheets)
        elif at > 1:
            own += [""] * (place + 1 - len(own))
            own[place] = line


def _read_line(line: str, place: int, sheets: _Sheets) -> None:
    """A line of Python, or one that IPython gives to a shell."""
    stripped = line.lstrip()
    if stripped.startswith(("!", "%")):
        sheets.shell[place] = _shell(stripped)
        indent = line[: len(line) - len(stripped)]
        sheets.code[place] = f"{indent}pass" if indent else ""
    else:
        sheets.code[place] = line


def _source(cell: dict[str, Any]) -> list[str]:
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(one for one in source if isinstance(one, str))
    return source.splitlines() if isinstance(source, str) else []


# %env NAME=value, %env NAME value, !python train.py
def _shell(line: str) -> str:
    if line.startswith("%env "):
        name, _, value = line[5:].strip().partition(" ")
        return line[5:].strip() if "=" in name or not value else f"{name}={value.strip('= ')}"
    return line.lstrip("!%")


def _places(text: str, sources: Mapping[int, list[str]], cells: list[Any]) -> dict[int, list[int]]:
    """The line of the file that holds each line of code.

    Where a cell or the file is one line, the lines of code are counted instead.
    """
    found: dict[int, list[int]] = {}
    lines, at = text.splitlines(), 0
    for number, source in sources.items():
        found[number] = []
        whole = isinstance(cells[number - 1].get("source"), str) and len(source) > 1
        for line in source:
            place = -1 if whole else _place(line, lines, at)
            if place < 0:
                return _counted(sources)
            found[number].append(place)
            at = place + 1
    return found


def _place(line: str, lines: list[str], start: int) -> int:
    """The index of the first line of the file from `start` that holds `line`; -1 if none does."""
    wanted = (json.dumps(line, ensure_ascii=False)[1:-1], json.dumps(line)[1:-1])
    for at in range(start, min(len(lines), start + _FAR)):
        if any(one in lines[at] for one in wanted):
            return at
    return -1


def _counted(sources: Mapping[int, list[str]]) -> dict[int, list[int]]:
    start, found = 0, {}
    for number, source in sources.items():
        found[number] = [*range(start, start + len(source))]
        start += len(source)
    return found
