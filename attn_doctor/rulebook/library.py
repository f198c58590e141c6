"""Where the rules and tables come from: the index in the wheel, or the files in a checkout.

A wheel carries `attn_doctor/_rules/index.json`, one file with every rule parsed and every table,
so that starting up does not read a hundred TOML files. An editable install or a checkout reads
`rules/` itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from attn_doctor.rulebook.paths import PACKAGE, folder, read_tables
from attn_doctor.rulebook.rule import Rule


class _Index(Struct):
    """The prebuilt index. Tables are decoded only when they are asked for."""

    rules: tuple[Rule, ...]
    tables: msgspec.Raw


def load(folders: Sequence[Path] = ()) -> tuple[Rule, ...]:
    """All rules, in the order of their ids; from the index their examples are left out.

    `folders` hold a team's own rules, which are added. Raises `RuleError` if one is not fit to be.
    """
    index = _index()
    rules = index.rules if index is not None else _own()
    if not folders:
        return rules
    from attn_doctor.rulebook.own_rules import with_own

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
    path = os.path.join(PACKAGE, "_rules", "index.json")
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=_Index)
    except FileNotFoundError:
        return None


def build_index(rules: Path) -> bytes:
    """The index of a `rules/` folder, for the wheel. Raises `RuleError` on a faulty rule."""
    judged = tuple(msgspec.structs.replace(rule, examples=()) for rule in _read(rules))
    return msgspec.json.encode({"rules": judged, "tables": read_tables(rules)})


@cache
def _own() -> tuple[Rule, ...]:
    """Our own rules of a checkout, read once: they serve findings and what speaks of them."""
    return _read(folder())


def _read(rules: Path) -> tuple[Rule, ...]:
    # Only without an index: reading TOML files and checking each fact takes time.
    from attn_doctor.rulebook.rule_files import read_folder

    return read_folder(rules)
