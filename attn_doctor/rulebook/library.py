"""Where the rules and tables come from: the index in the wheel, or the files in a checkout.

A wheel carries `attn_doctor/_rules/index.json`, one file with every rule parsed and every table,
so that starting up does not read hundreds of TOML files. An editable install or a checkout reads
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

from attn_doctor.errors import RuleError
from attn_doctor.files import DATA, read_bytes
from attn_doctor.rulebook.rule import Rule
from attn_doctor.toml_files import read_toml

#: The folder of attn-doctor's own code.
PACKAGE = Path(__file__).resolve().parent.parent


class _Index(Struct):
    """The prebuilt index. Tables are decoded only when they are needed."""

    rules: tuple[Rule, ...]
    tables: msgspec.Raw


def folder() -> Path:
    """The folder of the rule files that belong to this installation."""
    packed = PACKAGE / "_rules"
    return packed if packed.is_dir() else PACKAGE.parent / "rules"


def load(folders: Sequence[Path] = ()) -> tuple[Rule, ...]:
    """All rules, in the order of their ids; those of the index have no examples and no claims.

    `folders` hold a team's own rules, which are added. Raises `RuleError` for one that is refused.
    """
    index = _index()
    rules = index.rules if index is not None else _from_files()
    if not folders:
        return rules
    from attn_doctor.rulebook.rule_files import with_own

    return with_own(rules, folder(), required_sets(), folders)


@cache
def tables() -> Mapping[str, Any]:
    """The compatibility tables by name, as TOML data."""
    index = _index()
    if index is None:
        return read_tables(folder())
    decoded: Mapping[str, Any] = msgspec.json.decode(index.tables)
    return decoded


@cache
def harms() -> Mapping[str, int]:
    """How bad each listed cause is for a program: 0 wrong results, 2 slow, 3 only for builds.

    A cause that is not listed makes a program fail: 1.
    """
    listed = tables()["causes"]["harm"]
    ranks = {"wrong results": 0, "slow": 2, "build only": 3}
    return {cause: rank for name, rank in ranks.items() for cause in listed[name]}


def required_sets() -> Mapping[str, Sequence[str]]:
    """The sets of rules that `requires` may name."""
    sets: Mapping[str, Sequence[str]] = tables()["requires"]["set"]
    return sets


def read_tables(rules: Path) -> dict[str, Any]:
    """The tables of a `rules/` folder by file name. Raises `RuleError`."""
    folder = rules / "tables"
    tables = {path.stem: read_toml(path, RuleError) for path in sorted(folder.glob("*.toml"))}
    formats = sorted((folder / "formats").glob("*.toml"))
    return tables | {"formats": {path.stem: read_toml(path, RuleError) for path in formats}}


@cache
def _index() -> _Index | None:
    path = os.path.join(PACKAGE, "_rules", "index.json")
    try:
        return msgspec.json.decode(read_bytes(path, DATA), type=_Index)
    except FileNotFoundError:
        return None


def build_index(rules: Path) -> bytes:
    """The index of a `rules/` folder, for the wheel. Raises `RuleError` on a faulty rule."""
    from attn_doctor.rulebook.rule_files import read_folder

    used = [msgspec.structs.replace(rule, examples=(), claims=()) for rule in read_folder(rules)]
    return msgspec.json.encode({"rules": used, "tables": read_tables(rules)})


@cache
def _from_files() -> tuple[Rule, ...]:
    """The rules of a checkout, read once."""
    # Only without an index: reading TOML files and checking each fact takes time.
    from attn_doctor.rulebook.rule_files import read_folder

    return read_folder(folder())
