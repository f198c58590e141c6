"""Where the rules and tables come from: the index in the wheel, or the files in a checkout.

A wheel carries `attn_doctor/_rules/index.json`, one file with every rule parsed and every table,
so that starting up does not read a hundred TOML files. An editable install or a checkout reads
`rules/` itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from attn_doctor.errors import RuleError
from attn_doctor.rulebook.rule import Rule

__all__ = [
    "build_index",
    "folder",
    "load",
    "read_folder",
    "read_tables",
    "read_toml",
    "rule_files",
    "tables",
]

_PACKAGE = Path(__file__).resolve().parent.parent


class _Index(Struct):
    """The prebuilt index. Tables are decoded only when they are asked for."""

    rules: tuple[Rule, ...]
    tables: msgspec.Raw


def folder() -> Path:
    """The folder of the rule files that belong to this installation."""
    packed = _PACKAGE / "_rules"
    return packed if packed.is_dir() else _PACKAGE.parent / "rules"


def load(folders: Sequence[Path] = ()) -> tuple[Rule, ...]:
    """All rules, in the order of their ids; from the index their examples are left out.

    `folders` hold a team's own rules, which are added. Raises `RuleError` if one is not fit to be.
    """
    index = _index()
    rules = index.rules if index is not None else read_folder(folder())
    if not folders:
        return rules
    from attn_doctor.rulebook.team import with_own

    return with_own(rules, folders)


@cache
def tables() -> Mapping[str, Any]:
    """The compatibility tables by name, as TOML data."""
    index = _index()
    if index is None:
        return read_tables(folder())
    decoded: Mapping[str, Any] = msgspec.json.decode(index.tables)
    return decoded


@cache
def _index() -> _Index | None:
    path = os.path.join(_PACKAGE, "_rules", "index.json")
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=_Index)
    except FileNotFoundError:
        return None


def build_index(rules: Path) -> bytes:
    """The index of a `rules/` folder, for the wheel. Raises `RuleError` on a faulty rule."""
    judged = tuple(msgspec.structs.replace(rule, examples=()) for rule in read_folder(rules))
    return msgspec.json.encode({"rules": judged, "tables": read_tables(rules)})


def read_folder(rules: Path) -> tuple[Rule, ...]:
    """Every rule below a folder, examples included, ordered by id."""
    from attn_doctor.rulebook.reading import read_rule

    return tuple(read_rule(path, rules) for path in rule_files(rules))


def rule_files(rules: Path) -> list[Path]:
    """The files below a folder that are rules, in the order of their ids."""
    return sorted(
        path for path in rules.glob("*/*.toml") if path.parent.name not in ("tables", "i18n")
    )


def read_tables(rules: Path) -> dict[str, Any]:
    """The tables of a `rules/` folder by file name."""
    return {path.stem: read_toml(path) for path in sorted((rules / "tables").glob("*.toml"))}


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file. Raises `RuleError` naming the file and the place."""
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        import tomli as tomllib
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return data
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        place = re.sub(r"^(.*) \(at (.*)\)$", r"\2: \1", str(error))
        raise RuleError(f"{path}: {place}") from None
