"""From the files in `rules/tables/backends/` to the catalogue; every reference is followed here.

Every error names the file and the entry in it. Needed only without a prebuilt index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from attn_doctor.backends.catalogue_entries import Backend, Catalogue, Requirement
from attn_doctor.backends.catalogue_schema import BackendFile, File, RequirementFile
from attn_doctor.backends.workload import SENTENCES
from attn_doctor.errors import RuleError
from attn_doctor.rulebook.catalogue import Fact, catalogue
from attn_doctor.rulebook.conditions import Condition, parse
from attn_doctor.rulebook.paths import read_toml
from attn_doctor.rulebook.rule import Group

#: Where the catalogue lies below a `rules/` folder.
FOLDER = "tables/backends"


def read(rules: Path) -> Catalogue:
    """The catalogue of a `rules/` folder, examples included. Raises `RuleError`."""
    parts = [(path, _file(path)) for path in sorted((rules / FOLDER).glob("*.toml"))]
    if not parts:
        raise RuleError(f"{rules / FOLDER} holds no catalogue of backends")
    requirements: dict[str, Requirement] = {}
    sets: dict[str, tuple[str, ...]] = {}
    for path, file in parts:
        for one in file.requirement:
            if one.id in requirements:
                raise RuleError(f"{path}: requirement {one.id!r} is there twice")
            requirements[one.id] = _requirement(path, one)
        for group in file.set:
            sets[group.name] = group.requires
    backends: dict[str, Backend] = {}
    for path, file in parts:
        for row in file.backend:
            if row.name in backends:
                raise RuleError(f"{path}: backend {row.name!r} is there twice")
            backends[row.name] = _backend(path, row, sets, requirements)
    files = [file for _, file in parts]
    preference = next((file.preference for file in files if file.preference), None)
    if preference is None:
        raise RuleError(f"{rules / FOLDER} says no order of preference")
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
    """The catalogue for the wheel, without its examples. Raises `RuleError`."""
    found = read(rules)
    judged = tuple(msgspec.structs.replace(one, examples=()) for one in found.requirements)
    return msgspec.json.encode(msgspec.structs.replace(found, requirements=judged))


@cache
def known_facts() -> Mapping[str, Fact]:
    """Every fact that a condition of the catalogue may name."""
    own = {
        name: Fact(name, kind, doc, items="text" if kind == "list" else "")
        for name, (kind, doc) in SENTENCES.items()
    }
    return {**catalogue(), **own}


def _file(path: Path) -> File:
    try:
        return msgspec.convert(read_toml(path), File)
    except msgspec.ValidationError as error:
        raise RuleError(f"{path}: {error}") from None


def _requirement(path: Path, file: RequirementFile) -> Requirement:
    try:
        if sum(map(bool, (file.problem, file.needs or file.any, file.never))) != 1:
            raise RuleError("needs one of conditions (`needs`, `any`), `problem` and `never`")
        return Requirement(
            id=file.id,
            text=" ".join(file.text.split()),
            source=file.source,
            when=_lines(file.when),
            needs=Group(all=_lines(file.needs), any=_lines(file.any)),
            problem=file.problem,
            never=file.never,
            otherwise=file.otherwise,
            silent=file.silent,
            by=file.by,
            rule=file.rule or file.problem,
            remedy=" ".join(file.remedy.split()),
            code=file.code,
            examples=file.example,
        )
    except RuleError as error:
        raise RuleError(f"{path}: requirement {file.id!r}: {error}") from None


def _lines(lines: Iterable[str]) -> tuple[Condition, ...]:
    return tuple(parse(line, known_facts()) for line in lines)


def _backend(
    path: Path,
    row: BackendFile,
    sets: Mapping[str, tuple[str, ...]],
    requirements: Mapping[str, Requirement],
) -> Backend:
    fields: dict[str, Any] = {name: getattr(row, name) for name in row.__struct_fields__}
    for field in ("requires", "compiled"):
        fields[field] = tuple(dict.fromkeys(_spread(path, row.name, fields[field], sets)))
        for id in fields[field]:
            if id not in requirements:
                raise RuleError(f"{path}: backend {row.name!r}: no requirement {id!r}")
    return Backend(**fields)


def _spread(
    path: Path, name: str, ids: Iterable[str], sets: Mapping[str, tuple[str, ...]]
) -> Iterator[str]:
    """`ids` with each `@set` replaced by what is in it."""
    for id in ids:
        if not id.startswith("@"):
            yield id
        elif id[1:] in sets:
            yield from _spread(path, name, sets[id[1:]], sets)
        else:
            raise RuleError(f"{path}: backend {name!r}: no set {id[1:]!r}")


def _check(found: Catalogue, place: Path) -> None:
    """Names and orders must lead to backends, and each backend have a name."""
    backends = {one.name for one in found.backends}
    frameworks = {one.name for one in found.frameworks}
    for name in found.names:
        if name.backend not in backends:
            raise RuleError(f"{place}: {name.framework} {name.name!r}: no backend {name.backend!r}")
        if name.framework not in frameworks:
            raise RuleError(f"{place}: name {name.name!r}: no framework {name.framework!r}")
    ordered = [*found.preference.backends]
    ordered += [timing.backend for order in found.orders for timing in order.timing]
    for one in ordered:
        if one not in backends:
            raise RuleError(f"{place}: an order names {one!r}, which is no backend")
    nameless = backends - {one.backend for one in found.names}
    if nameless:
        raise RuleError(f"{place}: no framework has a name for {', '.join(sorted(nameless))}")
