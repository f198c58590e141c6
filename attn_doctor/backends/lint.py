"""The linter for the catalogue of backends, as the one for rules: every line must matter.

The catalogue loads only if it is well formed (`reading.py`). Here the examples of each demand are
run, each of its condition lines is dropped in turn to see whether an example notices, and what it
refers to is looked up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from attn_doctor.backends.catalogue_entries import Catalogue, Example, Requirement
from attn_doctor.backends.catalogue_files import FOLDER, known_facts, read
from attn_doctor.backends.problems import Problem
from attn_doctor.backends.readiness import Outcome
from attn_doctor.backends.requirements import lookup_for, outcome_of
from attn_doctor.backends.workload import (
    DTYPES,
    MASKS,
    PHASES,
    Use,
    Wish,
)
from attn_doctor.errors import RuleError
from attn_doctor.findings import Finding, Severity, Verdict
from attn_doctor.rulebook.placeholders import PLACEHOLDER
from attn_doctor.rulebook.rule_files import example_facts


def lint(rules: Path, ids: Sequence[str]) -> tuple[Catalogue | None, list[tuple[str, str]]]:
    """The catalogue of a `rules/` folder, and what is wrong with it: an entry and a sentence each.

    `ids` are the rules it may refer to. None: the folder has no catalogue, or it does not load.
    """
    if not (rules / FOLDER).is_dir():
        return None, []
    try:
        found = read(rules)
    except RuleError as error:
        return None, [("catalogue", str(error))]
    known = {*ids}
    complaints = [
        (demand.id, text)
        for demand in found.requirements
        for text in (*_demand(demand), *_references(demand, known))
    ]
    complaints += [("catalogue", text) for text in _unused(found, known)]
    return found, complaints


def outcome(demand: Requirement, example: Example) -> Outcome:
    """What becomes of a demand in an example. Raises `RuleError` for a fact that does not exist."""
    facts = example_facts(example.name, example.facts)
    wish = _converted(example, "wish", example.wish, Wish)
    use = _converted(example, "use", example.use, Use)
    return outcome_of(demand, lookup_for(facts, wish, use), _problems(demand, example))


def _converted(example: Example, name: str, given: Mapping[str, Any], shape: type[Any]) -> Any:
    unknown = [key for key in given if key not in shape.__struct_fields__]
    if unknown:
        raise RuleError(f"example {example.name!r}: no {name}.{unknown[0]}")
    for key, values in (("mask", MASKS), ("phase", PHASES), ("dtype", DTYPES)):
        if name == "wish" and key in given and given[key] not in values:
            raise RuleError(f"example {example.name!r}: {name}.{key} is one of {', '.join(values)}")
    try:
        return msgspec.convert(dict(given), shape)
    except msgspec.ValidationError as error:
        raise RuleError(f"example {example.name!r}: {name}: {error}") from None


def _problems(demand: Requirement, example: Example) -> dict[str, Problem]:
    """The verdict that the example gives the rule of the demand."""
    if not example.verdict:
        return {}
    verdict = Verdict(example.verdict)
    finding = Finding(
        rule=demand.problem, verdict=verdict, severity=Severity.ERROR, cause="", title=""
    )
    return {demand.problem: Problem(verdict, finding)}


def _demand(demand: Requirement) -> Iterator[str]:
    """What is wrong with one demand by itself."""
    try:
        found = [outcome(demand, example) for example in demand.examples]
    except RuleError as error:
        yield str(error)
        return
    for example, was in zip(demand.examples, found, strict=True):
        if was.value != example.expect:
            yield f"example {example.name!r}: expected {example.expect}, got {was.value}"
    yield from _lacking(demand)
    for name, without in _reduced(demand):
        if [outcome(without, example) for example in demand.examples] == found:
            yield f"{name} is guarded by no example: all give the same outcome without it"
    for text in (demand.text, demand.remedy, demand.code):
        for name in PLACEHOLDER.findall(text):
            if name not in known_facts():
                yield f"{{{name}}} in {text!r} is no fact"


def _lacking(demand: Requirement) -> Iterator[str]:
    """Outcomes that no example shows."""
    needed = {"unmet"}
    if demand.when:
        needed.add("not demanded")
    if not demand.never and not (demand.problem and demand.when):
        needed.add("met")
    for one in sorted(needed - {example.expect for example in demand.examples}):
        yield f"needs an example with expect = {one!r}"


def _reduced(demand: Requirement) -> Iterator[tuple[str, Requirement]]:
    """The demand without each of its lines in turn, and which line it was."""
    for index in range(len(demand.when)):
        rest = (*demand.when[:index], *demand.when[index + 1 :])
        yield f"when line {index + 1}", replace(demand, when=rest)
    for part in ("all", "any"):
        lines = getattr(demand.needs, part)
        for index in range(len(lines)):
            rest = (*lines[:index], *lines[index + 1 :])
            name = "needs" if part == "all" else part
            needs = replace(demand.needs, **{part: rest})
            yield f"{name} line {index + 1}", replace(demand, needs=needs)


def _references(demand: Requirement, known: set[str]) -> Iterator[str]:
    for rule in {demand.rule, demand.problem} - {""}:
        if rule not in known:
            yield f"names {rule!r}, which is no rule"


def _unused(found: Catalogue, known: set[str]) -> Iterator[str]:
    """Demands that no backend makes, names given twice, and rules that do not exist."""
    used = {id for one in found.backends for id in (*one.requires, *one.compiled)}
    for demand in found.requirements:
        if demand.id not in used:
            yield f"no backend demands {demand.id!r}"
    given = [(one.framework, one.name) for one in found.names]
    for pair in sorted({pair for pair in given if given.count(pair) > 1}):
        yield f"{pair[0]} has {pair[1]!r} twice"
    for rule in found.ignored:
        if rule not in known:
            yield f"ignores {rule!r}, which is no rule"
