"""Checks the catalogue of backends: every condition line must matter, as in rules.

The catalogue loads only if it is well formed (`catalogue_files.py`). This module runs the examples
of each requirement, drops each condition line in turn to see whether an example notices, and looks
up every reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from attn_doctor.backends.attention_call import DTYPES, MASKS, PHASES, AttentionCall, Context
from attn_doctor.backends.catalogue_entries import Catalogue, Example, Requirement
from attn_doctor.backends.catalogue_files import FOLDER, known_facts, read
from attn_doctor.backends.readiness import Outcome
from attn_doctor.backends.requirement_outcomes import CallLookup, outcome_of
from attn_doctor.errors import RuleError
from attn_doctor.findings import Finding, Severity, Verdict
from attn_doctor.rulebook.rule_files import example_facts
from attn_doctor.rulebook.texts import PLACEHOLDER


def lint(rules: Path, ids: Sequence[str]) -> tuple[Catalogue | None, list[tuple[str, str]]]:
    """Return the catalogue of a `rules/` folder and its faults: an entry and a sentence each.

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
        (requirement.id, text)
        for requirement in found.requirements
        for text in (*_complaints(requirement), *_references(requirement, known))
    ]
    complaints += [("catalogue", text) for text in _unused(found, known)]
    return found, complaints


def outcome(requirement: Requirement, example: Example) -> Outcome:
    """The outcome of a requirement in an example. Raises `RuleError` for an unknown fact."""
    facts = example_facts(example.name, example.facts)
    call = _converted(example, "call", example.call, AttentionCall)
    context = _converted(example, "context", example.context, Context)
    found = {requirement.problem: _finding(requirement, example)} if example.verdict else {}
    return outcome_of(requirement, CallLookup(facts, call, context), found)


def _converted(example: Example, name: str, given: Mapping[str, Any], shape: type[Any]) -> Any:
    unknown = [key for key in given if key not in shape.__struct_fields__]
    if unknown:
        raise RuleError(f"example {example.name!r}: no {name}.{unknown[0]}")
    for key, values in (("mask", MASKS), ("phase", PHASES), ("dtype", DTYPES)):
        if name == "call" and key in given and given[key] not in values:
            raise RuleError(f"example {example.name!r}: {name}.{key} is one of {', '.join(values)}")
    try:
        return msgspec.convert(dict(given), shape)
    except msgspec.ValidationError as error:
        raise RuleError(f"example {example.name!r}: {name}: {error}") from None


def _finding(requirement: Requirement, example: Example) -> Finding:
    """The finding of the requirement's rule, with the verdict that the example gives it."""
    return Finding(
        rule=requirement.problem,
        verdict=Verdict(example.verdict),
        severity=Severity.ERROR,
        cause="",
        title="",
    )


def _complaints(requirement: Requirement) -> Iterator[str]:
    """Faults of one requirement by itself."""
    try:
        found = [outcome(requirement, example) for example in requirement.examples]
    except RuleError as error:
        yield str(error)
        return
    for example, was in zip(requirement.examples, found, strict=True):
        if was.value != example.expect:
            yield f"example {example.name!r}: expected {example.expect}, got {was.value}"
    yield from _lacking(requirement)
    for name, without in _reduced(requirement):
        if [outcome(without, example) for example in requirement.examples] == found:
            yield f"{name} is guarded by no example: all give the same outcome without it"
    for text in (requirement.text, requirement.remedy, *sum(requirement.run, ())):
        for name in re.findall(PLACEHOLDER, text):
            if name not in known_facts():
                yield f"{{{name}}} in {text!r} is not a fact"


def _lacking(requirement: Requirement) -> Iterator[str]:
    """Outcomes without an example."""
    needed = {"unsatisfied"}
    if requirement.when:
        needed.add("not applicable")
    if not requirement.never and not (requirement.problem and requirement.when):
        needed.add("satisfied")
    for one in sorted(needed - {example.expect for example in requirement.examples}):
        yield f"needs an example with expect = {one!r}"


def _reduced(requirement: Requirement) -> Iterator[tuple[str, Requirement]]:
    """The requirement without each of its lines in turn, with the name of that line."""
    for index in range(len(requirement.when)):
        rest = (*requirement.when[:index], *requirement.when[index + 1 :])
        yield f"when line {index + 1}", replace(requirement, when=rest)
    for part in ("all", "any"):
        lines = getattr(requirement.needs, part)
        for index in range(len(lines)):
            rest = (*lines[:index], *lines[index + 1 :])
            name = "needs" if part == "all" else part
            needs = replace(requirement.needs, **{part: rest})
            yield f"{name} line {index + 1}", replace(requirement, needs=needs)


def _references(requirement: Requirement, known: set[str]) -> Iterator[str]:
    for rule in {requirement.rule, requirement.problem} - {""}:
        if rule not in known:
            yield f"names {rule!r}, which is not a rule"


def _unused(found: Catalogue, known: set[str]) -> Iterator[str]:
    """Requirements without a backend, duplicate names, and rules that do not exist."""
    used = {id for one in found.backends for id in (*one.requires, *one.compiled)}
    used |= {id for one in found.names for id in one.requires}
    for requirement in found.requirements:
        if requirement.id not in used:
            yield f"no backend requires {requirement.id!r}"
    given = [(one.framework, one.name) for one in found.names]
    for pair in sorted({pair for pair in given if given.count(pair) > 1}):
        yield f"{pair[0]} has {pair[1]!r} twice"
    for rule in found.ignored:
        if rule not in known:
            yield f"ignores {rule!r}, which is not a rule"
