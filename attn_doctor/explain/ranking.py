"""Which of the symptoms found is the root: each rule weighed, one match a cause, the best first.

A match is weighed by how much its symptom says (plain text, several symptoms of one rule), by where
it stands (the root of the last failure, an echo, a warning), and by facts (those the log states, and
those of the machine). The sum is the confidence; see `Match.confidence` for what it means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.explain.course import Course, Kind, Place
from attn_doctor.explain.explanation import Explanation, Log, Match, Told
from attn_doctor.explain.judging import (
    Opinion,
    by_log,
    by_machine,
    differing,
    fixes,
    lookup_told,
    worded,
)
from attn_doctor.explain.matching import Hit
from attn_doctor.explain.page import Line
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding
from attn_doctor.rulebook.conditions import show
from attn_doctor.rulebook.evaluate import lookup_in
from attn_doctor.rulebook.patterns import plain_length
from attn_doctor.rulebook.rule import Rule

__all__ = ["Ending", "Sighting", "ending", "ranked", "sighting"]

_BASE = 0.45
#: A symptom with so much plain text says all that a symptom can say.
_TELLING, _FULL = 0.25, 45
#: Each further symptom of the same rule, and each further rule with the same cause.
_FURTHER, _MOST = 0.06, 0.12
_STATED, _DENIED = 0.12, -0.25
_HERE, _NOT_HERE = 0.08, -0.08
#: Messages with many reasons: whatever else was found is likelier to be the root.
_GENERALLY = -0.2
_GENERAL = re.compile(
    r"No available kernel|No operator found for|PassManager::run failed|backend='inductor' raised"
    r"|Cannot find a working triton installation|No module named|no kernel image is available"
    r"|is not available|Building wheel for"
)
#: Failures that no attention kernel is to blame for; what was said before them is not the reason.
_UNRELATED = re.compile(
    r"out of memory|OutOfMemory|DataLoader worker|NCCL (?:error|timeout)|Watchdog caught collective"
    r"|KeyboardInterrupt|SyntaxError|IndentationError|No space left on device|size mismatch for"
    r"|Error\(s\) in loading state_dict|HeaderTooLarge|ConnectionError|Connection (?:refused|reset)"
    r"|HTTPError|RepositoryNotFoundError|GatedRepoError|ReadTimeout|FileNotFoundError|KeyError|JSONDecodeError"
)
#: Notes that say of themselves that the run goes on.
_HARMLESS = re.compile(
    r"some optimizations will not be enabled|Torch was not compiled with (?:flash|memory efficient)"
)
#: Causes whose end is running out of memory.
_HUNGRY = frozenset({"flex-not-compiled"})
#: Below this there is nothing to claim.
_LEAST = 0.25
#: What is said so many lines before a failure may be its reason: kernels say why they refuse.
_NEAR, _FAR = 12, 1_000_000
#: Lines of a traceback between a `raise` and its message.
_MESSAGE = 60
#: Characters of a line that are shown.
_EXCERPT = 160


class Sighting(Struct, frozen=True, kw_only=True):
    """A symptom of a rule on one line of a log."""

    rule: str
    symptom: int
    file: str
    line: int
    rank: str
    excerpt: str
    place: Place
    final: bool
    """It belongs to the last failure of its process."""
    before: int
    """So many lines before the last failure that it does not belong to; 0 if none follows."""
    general: bool
    """Its line tells that something failed, and not why."""
    groups: dict[str, str] = {}


class Ending(Struct, frozen=True):
    """How a log ends: the message of its last failure, if it ends in one."""

    file: str
    text: str = ""
    first: int = 0
    last: int = 0


def ending(file: str, course: Course) -> Ending:
    """The exception in which a page ends."""
    found = course.ending()
    if not found:
        return Ending(file)
    numbers = [line.number for line in found]
    return Ending(file, "\n".join(line.text for line in found), min(numbers), max(numbers))


def sighting(hit: Hit, course: Course, *, file: str, last: bool) -> Sighting:
    """Where a hit stands. `last`: its page is the end of the log."""
    index = _deciding(hit, course.lines, course.places)
    line = course.lines[index]
    return Sighting(
        rule=hit.rule,
        symptom=hit.symptom,
        file=file,
        line=line.number,
        rank=line.rank,
        excerpt=_excerpt(line.text, hit.text),
        place=course.places[index],
        final=last and course.final(index),
        before=course.before(index) if last else _FAR,
        general=_GENERAL.search(line.text) is not None,
        groups=hit.groups,
    )


def _deciding(hit: Hit, lines: Sequence[Line], places: Sequence[Place]) -> int:
    """Index of the line that counts: the nearest to the reason, of those the hit covers.

    A traceback shows the `raise` with the words of the message; the message itself is meant.
    """
    index = max(hit.lines, key=lambda one: (places[one].kind, one))
    if places[index].kind is not Kind.NOISE:
        return index
    words = re.split(r"[\"'(]", hit.text.rsplit("\n", 1)[-1])[-1].strip()
    for later in range(index + 1, min(index + _MESSAGE, len(lines))):
        if places[later].kind >= Kind.MESSAGE and words and words in lines[later].text:
            return later if places[later].failure == places[index].failure else index
    return index


def _excerpt(text: str, matched: str) -> str:
    """The line, trimmed around what matched."""
    text = text.strip()
    if len(text) <= _EXCERPT:
        return text
    part = next((one for one in matched.split("\n") if one.strip() and one.strip() in text), "")
    start = max(0, text.find(part.strip()) - 40) if part else 0
    end = min(len(text), start + _EXCERPT)
    start = max(0, end - _EXCERPT)
    return ("…" if start else "") + text[start:end].strip() + ("…" if end < len(text) else "")


class _Candidate:
    """A rule with all its sightings, being weighed."""

    def __init__(self, rule: Rule, sightings: list[Sighting]) -> None:
        self.rule = rule
        self.sightings = sightings
        self.lengths = {
            one.symptom: plain_length(rule.symptoms[one.symptom].pattern) for one in sightings
        }
        self.best = max(sightings, key=self._order)
        self.log = Opinion(None)
        self.here: Opinion | None = None
        self.finding: Finding | None = None
        self.weight = 0.0

    def _order(self, one: Sighting) -> tuple[float, int]:
        return (_standing(one) + self._says(one), -one.line)

    def _says(self, one: Sighting) -> float:
        return _TELLING * min(1.0, self.lengths[one.symptom] / _FULL)

    def weigh(self) -> float:
        """The confidence, but for what other rules add or take."""
        weight = _BASE + self._says(self.best) + _standing(self.best)
        weight += min(_MOST, _FURTHER * (len(self.lengths) - 1))
        weight += {True: _STATED, False: _DENIED, None: 0.0}[self.log.truth]
        if self.here is not None:
            weight += {True: _HERE, False: _NOT_HERE, None: 0.0}[self.here.truth]
        return weight


def _standing(one: Sighting) -> float:
    """What the place of a sighting adds: a root of the last failure most, a frame least."""
    place = one.place
    if one.general:
        return _standing(replace(one, general=False)) + _GENERALLY
    if place.kind is Kind.NOISE:
        return -0.12
    if place.kind in (Kind.EXCEPTION, Kind.MESSAGE):
        root = 0.2 if place.link == 0 else 0.02 if place.direct else 0.08
        return root if one.final else root - 0.1
    if place.kind is Kind.ERROR:
        return 0.02 if one.before > _NEAR else 0.1 if one.before else 0.14
    if place.kind is Kind.WARNING:
        return -0.1 if one.before > _NEAR else 0.0 if one.before else 0.05
    return -0.05 if one.before > _NEAR else 0.03 if one.before else 0.08


def ranked(
    seen: Sequence[Sighting],
    rules: Mapping[str, Rule],
    stated: tuple[Facts, set[str]],
    tables: Callable[[], Mapping[str, Any]],
    machine: Facts | None,
    logs: Sequence[Log],
    endings: Sequence[Ending] = (),
) -> Explanation:
    """The explanation: one match for each cause, the likeliest first."""
    from attn_doctor.probes.derived import derive

    facts, names = stated
    seen = [one for one in seen if not _by_the_way(one, seen, rules[one.rule], endings)]
    if seen:
        facts = derive(facts, tables())
    candidates = {
        id: _Candidate(rules[id], [one for one in seen if one.rule == id])
        for id in dict.fromkeys(one.rule for one in seen)
    }
    for one in candidates.values():
        one.log = by_log(one.rule, facts)
        if machine is not None:
            one.here, one.finding = by_machine(one.rule, machine)
        one.weight = one.weigh()
    _below_what_they_require(candidates)
    groups: dict[str, list[_Candidate]] = {}
    for one in sorted(
        candidates.values(), key=lambda one: (-one.weight, one.best.line, one.rule.id)
    ):
        if one.weight >= _LEAST:
            groups.setdefault(one.rule.cause, []).append(one)
    matches = [_match(group, facts, machine) for group in groups.values()]
    matches.sort(key=lambda one: -one.confidence)
    return Explanation(
        matches=tuple(matches),
        logs=tuple(logs),
        told=_told(facts, names, machine),
        facts=machine if machine is not None else facts,
        probed=machine is not None,
        rules=sum(bool(rule.symptoms) for rule in rules.values()),
    )


def _by_the_way(
    one: Sighting, seen: Sequence[Sighting], rule: Rule, endings: Sequence[Ending]
) -> bool:
    """It was only said before a failure that has nothing to do with it."""
    if one.place.kind > Kind.SAID:
        return False
    for end in endings:
        if end.file != one.file or one.line >= end.first:
            continue
        if not _UNRELATED.search(end.text) and not _HARMLESS.search(one.excerpt):
            continue
        explained = any(
            other.file == end.file and end.first <= other.line <= end.last for other in seen
        )
        hungry = rule.cause in _HUNGRY and "memory" in end.text.lower()
        if not explained and not hungry:
            return True
    return False


def _below_what_they_require(candidates: Mapping[str, _Candidate]) -> None:
    """A rule explained by another that was seen as well cannot stand above it."""
    for _ in range(3):
        for one in candidates.values():
            for needed in one.rule.requires:
                root = candidates.get(needed)
                if root is not None and root.log.truth is not False:
                    one.weight = min(one.weight, root.weight - 0.05)


def _match(group: Sequence[_Candidate], facts: Facts, machine: Facts | None) -> Match:
    best = group[0]
    weight = best.weight + min(_MOST, _FURTHER * (len(group) - 1))
    lookup = lookup_told(facts, best.rule)
    title, why = worded(best.rule.title, lookup), worded(best.rule.why, lookup)
    remedies = fixes(best.rule, facts, lookup)
    if machine is not None:
        remedies = fixes(best.rule, machine, lookup_in_machine(machine, best.rule))
        if best.finding is not None:
            title, why, remedies = (
                best.finding.title,
                best.finding.why,
                best.finding.fixes or remedies,
            )
    return Match(
        rule=best.rule.id,
        cause=best.rule.cause,
        confidence=round(max(0.05, min(0.99, weight)), 2),
        file=best.best.file,
        line=best.best.line,
        excerpt=best.best.excerpt,
        rank=best.best.rank,
        times=len({(one.file, one.line) for each in group for one in each.sightings}),
        severity=best.rule.severity,
        title=title,
        why=why,
        verdict=_verdict(best),
        fixes=remedies,
        evidence=best.rule.evidence,
        also=tuple(one.rule.id for one in group[1:]),
    )


def lookup_in_machine(machine: Facts, rule: Rule) -> Any:
    """Looks facts up on the machine, in the first element of the rule's list."""
    from attn_doctor.facts import ELEMENTS

    element = ELEMENTS.get(rule.for_each, "")
    members = getattr(machine, rule.for_each) if element else None
    return lookup_in(machine, element, members[0] if members else None)


def _verdict(one: _Candidate) -> str:
    if one.here is not None:
        if one.here.truth:
            return "confirmed by this machine"
        if one.here.truth is False:
            return f"not confirmed: {one.here.reason}"
        return f"could not be checked: {one.here.reason}"
    if one.log.truth:
        return "confirmed by the log"
    if one.log.truth is False:
        return f"not confirmed: the log says that {one.log.reason}"
    return "not checked"


def _told(facts: Facts, names: set[str], machine: Facts | None) -> tuple[Told, ...]:
    gpu = facts.gpus[0] if facts.gpus else None
    lookup = lookup_in(facts, "gpu", gpu)
    values = {
        name: facts.env.get(name[4:]) if name.startswith("env.") else lookup(name)
        for name in sorted(names)
    }
    here = {} if machine is None else {name: other for name, _, other in differing(values, machine)}
    return tuple(
        Told(name, show(value), here.get(name, ""))
        for name, value in values.items()
        if value is not None and not name.endswith(".installed")
    )
