"""Read rule files, and check their shape, facts, operators and references.

Every error names the file, the place in it, and what to write instead.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec.structs import replace

from attn_doctor.errors import RuleError
from attn_doctor.facts import ELEMENTS, Facts
from attn_doctor.findings import Advisory, Safety, Verdict
from attn_doctor.rulebook.conditions import Condition, parse
from attn_doctor.rulebook.fact_catalogue import Fact, catalogue
from attn_doctor.rulebook.patterns import pattern_faults
from attn_doctor.rulebook.rule import FixFile, Group, Platform, Rule, SeverityName, Symptom
from attn_doctor.rulebook.rule_shape import (
    Alternatives,
    Claim,
    Example,
    GroupFile,
    RuleFile,
    SymptomFile,
    TextFile,
    WrittenRule,
)
from attn_doctor.rulebook.texts import PLACEHOLDER
from attn_doctor.suggest import hint
from attn_doctor.toml_files import read_toml

#: Sets of ids for `requires`, by name.
Sets = Mapping[str, Sequence[str]]

#: `advisories/ATTN-2026-0001` is the id of an advisory, which other programs and people quote.
_ID = re.compile(r"advisories/ATTN-\d{4}-\d{4}|[a-z0-9]+(-[a-z0-9]+)*/[a-z0-9]+(-[a-z0-9]+)*")
#: Keys whose value is one of a few words.
_CHOICES: dict[str, tuple[str, ...]] = {
    "severity": get_args(SeverityName),
    "safety": tuple(safety.value for safety in Safety),
    "platforms": get_args(Platform),
    "expect": tuple(one.value for one in Verdict),
}


def is_id(text: str) -> bool:
    """`text` has the form of a rule id, `area/name`."""
    return _ID.fullmatch(text) is not None


def rule_paths(rules: Path) -> list[Path]:
    """The files below a folder that are rules, in the order of their ids."""
    return sorted(
        path for path in rules.glob("*/*.toml") if path.parent.name not in ("tables", "i18n")
    )


def read_folder(rules: Path, sets: Sets | None = None) -> tuple[WrittenRule, ...]:
    """Every rule below a folder, examples included, ordered by id. Raises `RuleError`.

    `sets`: our sets for `requires`, for a folder without a table of its own.
    """
    return tuple(read_rule(path, rules, sets) for path in rule_paths(rules))


def with_own(
    ours: Iterable[Rule],
    folder: Path,
    sets: Sets,
    families: Collection[str],
    folders: Iterable[Path],
) -> tuple[Rule, ...]:
    """Our rules, whose files are in `folder`, and a team's own rules in `folders`, ordered by id.

    `families`: those of attention that a fix may name (`FixFile.instead_of`).

    A team's rules were not reviewed with attn-doctor. So each of their fixes asks first, a pattern
    that a log could stall is refused, and an id names one rule only: they never replace ours.
    An unfinished rule (an example, an unguarded line) is a matter for `rules lint`.
    Raises `RuleError` for a rule that cannot be used.
    """
    rules = {rule.id: rule for rule in ours}
    files = {id: folder / f"{id}.toml" for id in rules}
    for own in {path.resolve(): path for path in folders}.values():
        if not own.is_dir():
            raise RuleError(f"{own} is not a folder; name one that holds <area>/<rule>.toml files")
        added = read_folder(own, sets)
        if not added:
            raise RuleError(f"{own} has no rules; their files are <area>/<rule>.toml")
        for rule in added:
            file = own / f"{rule.id}.toml"
            if rule.id in rules:
                raise RuleError(
                    f"{file}: {files[rule.id]} has the id {rule.id} already; rename one of them"
                )
            for fault in (*pattern_faults(rule), *family_faults(rule, families)):
                raise RuleError(f"{file}: {fault}")
            fixes = [
                replace(fix, safety=Safety.ASK) if fix.safety is Safety.AUTO else fix
                for fix in rule.fixes
            ]
            files[rule.id], rules[rule.id] = file, replace(rule, fixes=tuple(fixes))
    return tuple(sorted(rules.values(), key=lambda rule: rule.id))


def family_faults(rule: Rule, families: Collection[str]) -> Iterator[str]:
    """Fixes that name a family of attention which no program replaces."""
    for fix in rule.fixes:
        if fix.instead_of and fix.instead_of not in families:
            near = hint(fix.instead_of, families, count=1)
            yield f"fix {fix.title!r}: `instead_of` names no family {fix.instead_of!r}{near}"


def read_rule(path: Path, root: Path, sets: Sets | None = None) -> WrittenRule:
    """The rule in `path`; its id is the path below `root`. Raises `RuleError`."""
    id = path.relative_to(root).with_suffix("").as_posix()
    if not is_id(id):
        raise RuleError(f"{path}: a rule is named area/name in lower case with hyphens")
    try:
        file = msgspec.convert(read_toml(path, RuleError), RuleFile)
        own = _own_sets(root)
        return _rule(id, file, _requires(file.requires, sets if own is None else own))
    except (msgspec.ValidationError, RuleError) as error:
        if str(error).startswith(str(path)):
            raise
        raise RuleError(f"{path}: {_readable(str(error))}") from None


def _rule(id: str, file: RuleFile, requires: tuple[str, ...]) -> WrittenRule:
    element = ""
    if file.for_each:
        if file.for_each not in ELEMENTS:
            raise RuleError(f"for_each: no list {file.for_each!r}; one of {', '.join(ELEMENTS)}")
        element = ELEMENTS[file.for_each]
    if file.when is None and not file.symptom:
        raise RuleError("needs [when] with conditions, [[symptom]] with patterns for logs, or both")
    symptoms = tuple(map(_symptom, file.symptom))
    for pattern in (pattern for fix in file.fix for pattern in fix.printed):
        _check_pattern(pattern)
    fixes = range(len(file.fix))
    rule = WrittenRule(
        id=id,
        severity=file.severity,
        cause=file.cause,
        title=file.text.title,
        why=" ".join(file.text.why.split()),
        checked=file.checked,
        evidence=file.evidence,
        backends=file.backends,
        platforms=file.platforms,
        row=file.row,
        requires=requires,
        for_each=file.for_each,
        subject=file.subject,
        applies=_group("applies", file.applies, element),
        when=_group("when", file.when or GroupFile(), element),
        symptoms=symptoms,
        fixes=file.fix,
        fix_when=tuple(_lines(f"fix {i + 1}.when", file.fix[i].when, element) for i in fixes),
        fix_done=tuple(_lines(f"fix {i + 1}.done", file.fix[i].done, "") for i in fixes),
        look_alikes=file.look_alike,
        claims=file.claim,
        examples=file.example,
        alternatives=tuple(_alternatives(one.pattern) for one in file.symptom),
        advisory=file.advisory,
    )
    _check_placeholders(rule, element)
    for example in file.example:
        example_facts(example.name, example.facts)
    return rule


def example_facts(name: str, given: dict[str, Any]) -> Facts:
    """Facts of an example; those that it does not give are unknown. Raises `RuleError`."""
    for fact in _leaves(given):
        if fact not in _facts():
            raise RuleError(f"example {name!r}: no fact {fact!r}{hint(fact, _facts(), count=1)}")
    try:
        return msgspec.convert(given, Facts)
    except msgspec.ValidationError as error:
        raise RuleError(f"example {name!r}: {_readable(str(error))}") from None


def _leaves(given: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """The fact names that nested tables give; members of a list by their element's name."""
    for key, value in given.items():
        name = prefix + key
        if isinstance(value, dict):
            yield from () if name == "gaps" else _leaves(value, name + ".")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for member in value:
                yield from _leaves(member, ELEMENTS.get(name, name) + ".")
        else:
            yield name


def _requires(names: Iterable[str], sets: Sets | None) -> tuple[str, ...]:
    """Ids of the rules that are named, with each `@set` replaced by its members."""
    ids: list[str] = []
    for name in names:
        if not name.startswith("@"):
            ids.append(name)
        elif name[1:] in (sets or {}):
            ids += (sets or {})[name[1:]]
        else:
            raise RuleError(f"requires: no set {name!r}{hint(name[1:], sets or (), count=1)}")
    return tuple(dict.fromkeys(ids))


@cache
def _own_sets(root: Path) -> Sets | None:
    """The sets of a folder's `tables/requires.toml`; None without that file."""
    path = root / "tables" / "requires.toml"
    return read_toml(path, RuleError)["set"] if path.is_file() else None


def _group(where: str, file: GroupFile, element: str) -> Group:
    return Group(
        all=_lines(f"{where}.all", file.all, element),
        any=_lines(f"{where}.any", file.any, element),
        none=_lines(f"{where}.none", file.none, element),
    )


def _lines(where: str, lines: Iterable[str], element: str) -> tuple[Condition, ...]:
    parsed = []
    for number, line in enumerate(lines, 1):
        try:
            parsed.append(parse(line, _facts(), element))
        except RuleError as error:
            raise RuleError(f"{where} line {number}: {error}") from None
    return tuple(parsed)


@cache
def _facts() -> dict[str, Fact]:
    return catalogue()


#: Flags of a whole pattern.
_FLAGS = re.compile(r"\(\?([a-z]+)\)")
#: Most characters of a pattern: a longer one cannot be read.
_LONGEST = 200
#: One of the two halves that UTF-16 makes of a character; no text in UTF-8 holds one.
_HALF = re.compile(r"\\(?:u|U0000)[dD][89a-fA-F]")


def _symptom(file: SymptomFile) -> Symptom:
    """The symptom of a file. Raises `RuleError`."""
    for pattern in (*file.absent, *file.without, file.frame):
        _check_pattern(pattern)
    fields = msgspec.structs.asdict(file)
    fields |= {"pattern": _any_of(file.pattern), "near": tuple(map(_any_of, file.near))}
    if not file.lines:
        raise RuleError(f"symptom {fields['pattern']!r} needs `logs`, `reports`, or both")
    return Symptom(**fields)


def _any_of(alternatives: Alternatives) -> str:
    """One pattern for all alternatives. Raises `RuleError`."""
    patterns = _alternatives(alternatives)
    for pattern in patterns:
        _check_pattern(pattern)
    joined = "|".join(map(_with_own_flags, patterns)) if len(patterns) > 1 else patterns[0]
    _compile(joined)
    return joined


def _alternatives(written: Alternatives) -> tuple[str, ...]:
    return (written,) if isinstance(written, str) else written


def _with_own_flags(pattern: str) -> str:
    """The same pattern, with its flags for itself alone."""
    head = _FLAGS.match(pattern)
    return f"(?{head[1]}:{pattern[head.end() :]})" if head else pattern


def _check_pattern(pattern: str) -> None:
    if len(pattern) > _LONGEST:
        raise RuleError(
            f"pattern {pattern[:60]!r}… has {len(pattern)} characters, more than {_LONGEST};"
            " `pattern` can be a list of alternatives, and `near`, `absent`, `without` and"
            " `frame` take what is not the message"
        )
    if _HALF.search(pattern):
        raise RuleError(f"symptom pattern {pattern!r} names half of a character of UTF-16")
    _compile(pattern)


def _compile(pattern: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # such as a set in a set, which will change its meaning
            re.compile(pattern)
    except (re.error, OverflowError, ValueError, FutureWarning, DeprecationWarning) as error:
        raise RuleError(f"symptom pattern {pattern!r}: {error}") from None
    except RecursionError:
        raise RuleError(f"symptom pattern {pattern[:60]!r}… is nested too deeply") from None


def _check_placeholders(rule: Rule, element: str) -> None:
    texts = [rule.title, rule.why, rule.subject]
    for fix in rule.fixes:
        texts += [fix.title, fix.manual, fix.needs, *fix.set.values()]
        texts += [part for argv in fix.run for part in argv]
    for text in texts:
        for name in re.findall(PLACEHOLDER, text):
            fact = _facts().get(name)
            if fact is None or (fact.element_of and name.split(".")[0] != element):
                raise RuleError(f"{{{name}}} in {text!r} is not a fact that this rule can use")


def _readable(message: str) -> str:
    """A message of msgspec (`… - at `$.fix[0].safety``) with the place first and a suggestion."""
    match = re.fullmatch(r"(?P<fault>.*?)(?: - at `\$\.?(?P<place>.*)`)?", message)
    fault, place = (match["fault"], match["place"] or "") if match else (message, "")
    return f"{place}: {fault}{_hint(fault, place)}".removeprefix(": ")


def _hint(fault: str, place: str) -> str:
    """A suggestion: msgspec names only the wrong key or value."""
    unknown = re.search(r"unknown field `(.*)`", fault)
    if unknown:
        shapes = (RuleFile, TextFile, GroupFile, Symptom, FixFile, Claim, Example, Advisory)
        keys = {key for shape in shapes for key in shape.__struct_fields__}
        return hint(unknown[1], sorted(keys), count=1)
    choices = _CHOICES.get(place.rpartition(".")[2].partition("[")[0])
    return f"; one of {', '.join(choices)}" if choices and "enum" in fault else ""
