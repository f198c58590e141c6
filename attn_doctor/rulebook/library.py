"""Where the rules and tables come from: the index in the wheel, or the files in a checkout.

A wheel carries `attn_doctor/_rules/index.jsonl`, one file with every rule parsed and every table,
so that starting up does not read hundreds of TOML files. Each line is decoded on demand: the rules
with conditions, the words of each, what only logs need, and each table. What a check does not need
stands at the end, two thirds of it. An editable install or a checkout reads `rules/` itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.errors import RuleError
from attn_doctor.files import open_binary
from attn_doctor.findings import Advisory
from attn_doctor.rulebook import updates
from attn_doctor.rulebook.conditions import Condition
from attn_doctor.rulebook.rule import FixFile, Rule, Symptom, Way
from attn_doctor.toml_files import read_toml

#: The index of rules and tables in a wheel, and in an update.
INDEX = "index.jsonl"
#: The folder of attn-doctor's own code.
PACKAGE = Path(__file__).resolve().parent.parent


#: Parts at the end of the index: what logs and `--config` need, and what a check rarely does.
_LATER = ("reading", "components", "formats", "pipelines", "presets", "settings")


class Index:
    """The prebuilt index: a line that says where each part is, then a part in each line.

    `with_conditions` are the rules with conditions, as far as verdicts need them; the id of such a
    rule is a `_Words`; `reading` is a `_Reading`; each other name is that of a table.
    Raises `FileNotFoundError` if `path` does not exist.
    """

    def __init__(self, path: str) -> None:
        self._lines = lines = _Lines(path)
        self.bare: tuple[Rule, ...] = msgspec.json.decode(
            lines["with_conditions"], type=tuple[Rule, ...]
        )
        self.tables: Mapping[str, Any] = _Tables(lines, self.bare)

    def whole(self, rule: Rule) -> Rule:
        """A rule of `bare` with its words, but without its symptoms; any other as it is."""
        if rule.evidence:
            return rule
        return _with_words(rule, msgspec.json.decode(self._lines[rule.id], type=_Words))

    def rules(self) -> tuple[Rule, ...]:
        """All rules, in the order of their ids."""
        reading = msgspec.json.decode(self._lines["reading"], type=_Reading)
        known = {rule.id: rule for rule in (*map(self.whole, self.bare), *reading.rules)}
        for id, (symptoms, ways) in reading.symptoms.items():
            known[id] = replace(known[id], symptoms=symptoms, symptom_ways=ways)
        return tuple(known[id] for id in reading.order)


class _Places(Struct):
    """The first line of an index."""

    first: int
    """Bytes that most checks need."""
    parts: dict[str, tuple[int, int]]
    """Name of each part → where it begins and ends after this line."""


class _Lines:
    """The parts of an index, as they are in the file. The rest is read when one of it is needed."""

    def __init__(self, path: str) -> None:
        self._path = path
        with open_binary(path) as file:
            places = msgspec.json.decode(file.readline(), type=_Places)
            self._start = file.tell()
            self._content = memoryview(file.read(places.first))
        self._places = places.parts

    def __getitem__(self, name: str) -> memoryview:
        begin, end = self._places[name]
        if end > len(self._content):
            with open_binary(self._path) as file:
                file.seek(self._start)
                self._content = memoryview(file.read())
        return self._content[begin:end]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)


class _Words(Struct, frozen=True, omit_defaults=True):
    """What a rule says where it finds something. Three in four rules of a check find nothing."""

    why: str = ""
    evidence: tuple[str, ...] = ()
    fixes: tuple[FixFile, ...] = ()
    fix_when: tuple[tuple[Condition, ...], ...] = ()
    fix_done: tuple[tuple[Condition, ...], ...] = ()
    advisory: Advisory | None = None


def _with_words(rule: Rule, words: _Words) -> Rule:
    return replace(rule, **{name: getattr(words, name) for name in words.__struct_fields__})


class _Reading(Struct):
    """What logs need beside the rules with conditions."""

    rules: tuple[Rule, ...]
    """The rules without conditions."""
    symptoms: dict[str, tuple[tuple[Symptom, ...], tuple[tuple[Way, ...], ...]]]
    order: tuple[str, ...]


class _Tables(Mapping[str, Any]):
    """Tables that are decoded when they are asked for."""

    def __init__(self, lines: _Lines, rules: Sequence[Rule]) -> None:
        self._lines, self._rules = lines, rules
        self._decoded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._decoded:
            self._decoded[name] = msgspec.json.decode(self._lines[name])
        return self._decoded[name]

    def __iter__(self) -> Iterator[str]:
        others = {"with_conditions", "reading", *(rule.id for rule in self._rules)}
        return (name for name in self._lines if name not in others)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def folder() -> Path:
    """The folder of the rule files in use.

    An update of the user, else those that belong to this installation. A checkout has no updates:
    a changed rule counts at once there.
    """
    return _folders()[0]


def is_update() -> bool:
    """The rules in use are an update, not those that belong to this installation."""
    return _folders()[1]


@cache
def _folders() -> tuple[Path, bool]:
    packed = PACKAGE / "_rules"
    if not packed.is_dir():
        return PACKAGE.parent / "rules", False
    update = updates.in_use(packed)
    return update or packed, update is not None


def load(folders: Sequence[Path] = ()) -> tuple[Rule, ...]:
    """All rules, in the order of their ids; those of the index lack what only `rules lint` reads.

    `folders` hold a team's own rules, which are added. Raises `RuleError` for one that is refused.
    """
    rules = _all()
    if not folders:
        return rules
    from attn_doctor.rulebook.rule_files import with_own

    return with_own(rules, folder(), required_sets(), families(), folders)


def bare(folders: Sequence[Path] = ()) -> tuple[Rule, ...]:
    """The rules with conditions, perhaps without their symptoms and what `whole` adds."""
    index = _index() if not folders else None
    if index is not None:
        return index.bare
    return tuple(rule for rule in load(folders) if rule.has_conditions)


def whole(rule: Rule) -> Rule:
    """A rule of `bare` with all that a finding says."""
    index = _index()
    return rule if index is None else index.whole(rule)


@cache
def tables() -> Mapping[str, Any]:
    """The compatibility tables by name, as TOML data."""
    index = _index()
    return read_tables(folder()) if index is None else index.tables


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


def families() -> frozenset[str]:
    """The families of attention that a fix may ask to replace, by the table of programs."""
    return frozenset(name for one in tables()["programs"]["program"] for name in one["instead_of"])


def read_tables(rules: Path) -> dict[str, Any]:
    """The tables of a `rules/` folder by file name. Raises `RuleError`."""
    folder = rules / "tables"
    tables = {path.stem: read_toml(path, RuleError) for path in sorted(folder.glob("*.toml"))}
    for name in ("formats", "settings"):
        paths = sorted((folder / name).glob("*.toml"))
        tables[name] = {path.stem: read_toml(path, RuleError) for path in paths}
    return tables


@cache
def _index() -> Index | None:
    path = os.path.join(folder(), INDEX)
    try:
        return Index(path)
    except FileNotFoundError:
        return None


def build_index(rules: Path) -> bytes:
    """The index of a `rules/` folder, for the wheel. Raises `RuleError` on a faulty rule."""
    from attn_doctor.rulebook.rule_files import read_folder

    used = [_as_used(rule) for rule in read_folder(rules)]
    evaluated = [rule for rule in used if rule.has_conditions]
    bare = [_with_words(replace(one, symptoms=(), symptom_ways=()), _Words()) for one in evaluated]
    words = {
        one.id: _Words(**{name: getattr(one, name) for name in _Words.__struct_fields__})
        for one in evaluated
    }
    reading = _Reading(
        rules=tuple(rule for rule in used if not rule.has_conditions),
        symptoms={one.id: (one.symptoms, one.symptom_ways) for one in used if one.has_conditions},
        order=tuple(rule.id for rule in used),
    )
    parts = {"with_conditions": bare, **words, "reading": reading, **read_tables(rules)}
    places: dict[str, tuple[int, int]] = {}
    content, first = b"", 0
    for name in sorted(parts, key=_LATER.__contains__):
        begin = len(content)
        content += msgspec.json.encode(parts[name]) + b"\n"
        places[name] = begin, len(content) - 1
        first = first if name in _LATER else len(content)
    return msgspec.json.encode(_Places(first, places)) + b"\n" + content


def _as_used(rule: Rule) -> Rule:
    """A rule without what only `rules lint` reads, and with the ways of its symptoms."""
    from attn_doctor.rulebook.patterns import ways

    fields = {name: getattr(rule, name) for name in Rule.__struct_fields__}
    fields["symptom_ways"] = tuple(ways(symptom.pattern) for symptom in rule.symptoms)
    return Rule(**fields)


@cache
def _all() -> tuple[Rule, ...]:
    """Our rules, read once."""
    index = _index()
    if index is not None:
        return index.rules()
    # Only without an index: reading TOML files and checking each fact takes time.
    from attn_doctor.rulebook.rule_files import read_folder

    return read_folder(folder())
