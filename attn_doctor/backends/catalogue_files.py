"""Reads the catalogue of backends from `rules/tables/backends/`, and follows every reference.

`rules/tables/backends/README.md` describes each key. Every error names the file and the entry in
it. Needed only without a prebuilt index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.backends.attention_call import KINDS
from attn_doctor.backends.catalogue_entries import (
    Backend,
    Catalogue,
    Example,
    Framework,
    Link,
    Name,
    Order,
    Otherwise,
    Party,
    Preference,
    Requirement,
    Text,
)
from attn_doctor.errors import RuleError
from attn_doctor.rulebook.conditions import Condition, parse
from attn_doctor.rulebook.fact_catalogue import Fact, catalogue
from attn_doctor.rulebook.rule import Group
from attn_doctor.toml_files import read_toml

#: The catalogue's folder below a `rules/` folder.
FOLDER = "tables/backends"


class RequirementFile(Struct, frozen=True, forbid_unknown_fields=True):
    """One requirement, as written."""

    id: Text
    text: Text
    source: Link
    label: str = ""
    when: tuple[Text, ...] = ()
    needs: tuple[Text, ...] = ()
    any: tuple[Text, ...] = ()
    problem: str = ""
    never: bool = False
    otherwise: Otherwise = "not ready"
    silent: bool = False
    by: Party = "library"
    rule: str = ""
    remedy: str = ""
    run: tuple[tuple[Text, ...], ...] = ()
    unset: tuple[Text, ...] = ()
    code: str = ""
    example: tuple[Example, ...] = ()


class SetFile(Struct, frozen=True, forbid_unknown_fields=True):
    """Requirements that several backends share."""

    name: Text
    requires: tuple[Text, ...]


class File(Struct, frozen=True, forbid_unknown_fields=True):
    """One file of `rules/tables/backends/`; an unknown key is an error."""

    schema: Literal[1]
    checked: date
    framework: tuple[Framework, ...] = ()
    name: tuple[Name, ...] = ()
    set: tuple[SetFile, ...] = ()
    requirement: tuple[RequirementFile, ...] = ()
    backend: tuple[Backend, ...] = ()
    order: tuple[Order, ...] = ()
    preference: Preference | None = None
    ignore: tuple[Text, ...] = ()
    """Rules whose problems say nothing about readiness."""


def read(rules: Path) -> Catalogue:
    """Read the catalogue of a `rules/` folder, examples included. Raises `RuleError`."""
    parts = [(path, _file(path)) for path in sorted((rules / FOLDER).glob("*.toml"))]
    if not parts:
        raise RuleError(f"{rules / FOLDER} has no catalogue of backends")
    requirements: dict[str, Requirement] = {}
    sets: dict[str, tuple[str, ...]] = {}
    for path, file in parts:
        for entry in file.requirement:
            if entry.id in requirements:
                raise RuleError(f"{path}: requirement {entry.id!r} is defined twice")
            requirements[entry.id] = _requirement(path, entry)
        for group in file.set:
            sets[group.name] = group.requires
    backends: dict[str, Backend] = {}
    for path, file in parts:
        for row in file.backend:
            if row.name in backends:
                raise RuleError(f"{path}: backend {row.name!r} is defined twice")
            backends[row.name] = _backend(path, row, sets, requirements)
    files = [file for _, file in parts]
    preference = next((file.preference for file in files if file.preference), None)
    if preference is None:
        raise RuleError(f"{rules / FOLDER}: the key `preference` is missing")
    found = Catalogue(
        frameworks=tuple(one for file in files for one in file.framework),
        names=tuple(one for file in files for one in file.name),
        backends=tuple(backends.values()),
        requirements=tuple(requirements.values()),
        orders=tuple(one for file in files for one in file.order),
        preference=preference,
        ignored=tuple(one for file in files for one in file.ignore),
    )
    _check(found, rules / FOLDER)
    return found


def build_index(rules: Path) -> bytes:
    """Encode the catalogue for the wheel, without its examples. Raises `RuleError`."""
    found = read(rules)
    bare = tuple(replace(entry, examples=()) for entry in found.requirements)
    return msgspec.json.encode(replace(found, requirements=bare))


@cache
def known_facts() -> Mapping[str, Fact]:
    """Every fact that a condition of the catalogue may name."""
    own = {
        name: Fact(name, kind, "", items="text" if kind == "list" else "")
        for kind, names in KINDS.items()
        for name in names
    }
    return {**catalogue(), **own}


def _file(path: Path) -> File:
    try:
        return msgspec.convert(read_toml(path, RuleError), File)
    except msgspec.ValidationError as error:
        raise RuleError(f"{path}: {error}") from None


def _requirement(path: Path, file: RequirementFile) -> Requirement:
    try:
        if sum(map(bool, (file.problem, file.needs or file.any, file.never))) != 1:
            raise RuleError(
                "exactly one of conditions (`needs`, `any`), `problem` and `never` is needed"
            )
        return Requirement(
            id=file.id,
            text=" ".join(file.text.split()),
            source=file.source,
            label=file.label,
            when=_lines(file.when),
            needs=Group(all=_lines(file.needs), any=_lines(file.any)),
            problem=file.problem,
            never=file.never,
            otherwise=file.otherwise,
            silent=file.silent,
            by=file.by,
            rule=file.rule or file.problem,
            remedy=" ".join(file.remedy.split()),
            run=file.run,
            unset=file.unset,
            code=file.code,
            examples=file.example,
        )
    except RuleError as error:
        raise RuleError(f"{path}: requirement {file.id!r}: {error}") from None


def _lines(lines: Iterable[str]) -> tuple[Condition, ...]:
    return tuple(parse(line, known_facts()) for line in lines)


def _backend(
    path: Path,
    row: Backend,
    sets: Mapping[str, tuple[str, ...]],
    requirements: Mapping[str, Requirement],
) -> Backend:
    """The backend with its sets of requirements spread out."""
    fields = {}
    for field in ("requires", "compiled"):
        fields[field] = tuple(dict.fromkeys(_spread(path, row.name, getattr(row, field), sets)))
        for id in fields[field]:
            if id not in requirements:
                raise RuleError(f"{path}: backend {row.name!r}: no requirement {id!r}")
    return replace(row, **fields)


def _spread(
    path: Path, name: str, ids: Iterable[str], sets: Mapping[str, tuple[str, ...]]
) -> Iterator[str]:
    """`ids` with each `@set` replaced by its members."""
    for id in ids:
        if not id.startswith("@"):
            yield id
        elif id[1:] in sets:
            yield from _spread(path, name, sets[id[1:]], sets)
        else:
            raise RuleError(f"{path}: backend {name!r}: no set {id[1:]!r}")


def _check(found: Catalogue, folder: Path) -> None:
    """Check that names and orders lead to backends, and that each backend has a name."""
    backends = {one.name for one in found.backends}
    frameworks = {one.name for one in found.frameworks}
    requirements = {one.id for one in found.requirements}
    for name in found.names:
        if name.backend not in backends:
            raise RuleError(
                f"{folder}: {name.framework} {name.name!r}: no backend {name.backend!r}"
            )
        if name.framework not in frameworks:
            raise RuleError(f"{folder}: name {name.name!r}: no framework {name.framework!r}")
        if name.instead and name.instead not in backends:
            raise RuleError(f"{folder}: name {name.name!r}: no backend {name.instead!r}")
        for id in name.requires:
            if id not in requirements:
                raise RuleError(f"{folder}: name {name.name!r}: no requirement {id!r}")
    ordered = [*found.preference.backends]
    ordered += [timing.backend for order in found.orders for timing in order.timing]
    for one in ordered:
        if one not in backends:
            raise RuleError(f"{folder}: an order names {one!r}, which is not a backend")
    named = {each for one in found.names for each in (one.backend, one.instead)}
    nameless = backends - named
    if nameless:
        raise RuleError(f"{folder}: no framework has a name for {', '.join(sorted(nameless))}")
