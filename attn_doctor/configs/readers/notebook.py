"""A Jupyter notebook: its code cells as one script, with the cell of each line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from attn_doctor.configs.readers.settings import ConfigError
from attn_doctor.json_files import JsonError, decode


class Notebook(Struct, frozen=True):
    """The code of a notebook, line by line where it is in the file."""

    code: str
    """Python; every line has the number of its line in the file."""
    shell: str
    """The lines that IPython gives to a shell, likewise."""
    cells: Mapping[int, str]
    """Line of the file → `cell 3, line 2`."""


def read_notebook(text: str, name: str) -> Notebook:
    """The code cells. Raises `ConfigError` if the file is not a notebook."""
    try:
        data = decode(text)
    except JsonError as error:
        raise ConfigError(f"{name}: not a notebook: {error}") from None
    cells = data.get("cells") if isinstance(data, dict) else None
    if not isinstance(cells, list):
        raise ConfigError(f"{name}: not a notebook: it has no cells")
    places = _Places(text)
    code, shell, where = [""] * len(places.lines), [""] * len(places.lines), dict[int, str]()
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        taken = -1
        for at, line in enumerate(_source(cell), 1):
            place = places.of(line)
            if place == taken or place >= len(code):  # a whole cell on one line of the file
                code.append("")
                shell.append("")
                place = len(code) - 1
            taken = place
            where[place + 1] = f"cell {number}, line {at}"
            stripped = line.lstrip()
            if stripped.startswith(("!", "%")):
                shell[place] = _shell(stripped)
                indent = line[: len(line) - len(stripped)]
                code[place] = f"{indent}pass" if indent else ""
            else:
                code[place] = line
    return Notebook("\n".join(code), "\n".join(shell), where)


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


class _Places:
    """Finds lines of code in the file, from the top down."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self._at = 0

    def of(self, line: str) -> int:
        """The index of the file's line that holds `line`; the last one found if there is none."""
        wanted = json.dumps(line, ensure_ascii=False)[1:-1]
        ascii_ = json.dumps(line)[1:-1]
        for at in range(self._at, min(len(self.lines), self._at + 2000)):
            if wanted in self.lines[at] or ascii_ in self.lines[at]:
                self._at = at + 1
                return at
        return max(0, self._at - 1)
