"""Which of the symptoms found is the root: each rule weighed, one match a cause, the best first.

A match is weighed by how much its symptom says (plain text, several symptoms of one rule), by where
it stands (the root of the last failure, an echo, a warning), and by facts (those the log states,
and those of the machine). The sum is the confidence; see `Match.confidence` for what it means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attn_doctor.explain.evaluate import (
    Evaluation,
    evaluate_on_log,
    evaluate_on_machine,
    first_lookup,
    fixes,
)
from attn_doctor.explain.explanation import Explanation, Log, Match, Told
from attn_doctor.explain.symptom_match import (
    BENIGN,
    HARMLESS,
    PASSED,
    UNRELATED,
    Ending,
    Sighting,
)
from attn_doctor.explain.tracebacks import Kind
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding
from attn_doctor.rulebook.conditions import show
from attn_doctor.rulebook.evaluate import FactLookup
from attn_doctor.rulebook.rule import Rule
from attn_doctor.rulebook.texts import fill_known

_BASE = 0.45
#: Each further symptom of the same rule, and each further rule with the same cause.
_FURTHER, _MOST = 0.06, 0.12
#: What the log's own facts add or take, and what those of the machine do.
_STATED, _DENIED = 0.12, -0.25
_HERE, _NOT_HERE = 0.08, -0.08
#: A rule that another explains stands so much below it.
_BELOW = 0.05
#: Causes whose end is running out of memory.
_HUNGRY = frozenset({"flex-not-compiled"})
#: Below this there is nothing to claim.
_LEAST = 0.25


class _Candidate:
    """A rule with all its sightings, being weighed."""

    def __init__(
        self, rule: Rule, sightings: list[Sighting], told: Facts, machine: Facts | None
    ) -> None:
        self.rule = rule
        self.sightings = sightings
        self.best = max(sightings, key=lambda one: (one.worth, -one.line))
        self.log = evaluate_on_log(rule, told)
        self.here: Evaluation | None = None
        self.finding: Finding | None = None
        if machine is not None:
            self.here, self.finding = evaluate_on_machine(rule, machine)
        self.weight = self._weigh()

    def _weigh(self) -> float:
        """The confidence, but for what other rules add or take."""
        symptoms = len({one.symptom for one in self.sightings})
        weight = _BASE + self.best.worth + _more(symptoms)
        weight += {True: _STATED, False: _DENIED, None: 0.0}[self.log.truth]
        if self.here is not None:
            weight += {True: _HERE, False: _NOT_HERE, None: 0.0}[self.here.truth]
        return weight


def _more(count: int) -> float:
    return min(_MOST, _FURTHER * (count - 1))


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
    from attn_doctor.derived import derive

    facts, names = stated
    seen = [one for one in seen if not _by_the_way(one, seen, rules[one.rule], endings)]
    if seen:
        facts = derive(facts, tables())
    candidates = {
        id: _Candidate(rules[id], [one for one in seen if one.rule == id], facts, machine)
        for id in dict.fromkeys(one.rule for one in seen)
    }
    matches = [_match(group, facts, machine) for group in _grouped(candidates)]
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
    """It was only said, and tells of no failure, or came before one it has nothing to do with."""
    if one.place.kind < Kind.EXCEPTION and PASSED.search(one.excerpt):
        return True
    if one.place.kind > Kind.SAID:
        return False
    if BENIGN.search(one.excerpt):
        return True
    for end in endings:
        if end.file != one.file or one.line >= end.first:
            continue
        if not UNRELATED.search(end.text) and not HARMLESS.search(one.excerpt):
            continue
        explained = any(
            other.file == end.file and end.first <= other.line <= end.last for other in seen
        )
        hungry = rule.cause in _HUNGRY and "memory" in end.text.lower()
        if not explained and not hungry:
            return True
    return False


def _grouped(candidates: Mapping[str, _Candidate]) -> list[list[_Candidate]]:
    """The candidates by their causes, the heaviest first in each; those too light left out."""
    causes = [one.rule.cause for one in candidates.values()]
    for one in candidates.values():
        one.weight += _more(causes.count(one.rule.cause))
    for _ in range(3):  # chains of rules that explain each other are short
        for one in candidates.values():
            for needed in one.rule.requires:
                root = candidates.get(needed)
                if root is not None and root.log.truth is not False:
                    one.weight = min(one.weight, root.weight - _BELOW)
    groups: dict[str, list[_Candidate]] = {}
    for one in sorted(candidates.values(), key=_place):
        if one.weight >= _LEAST:
            groups.setdefault(one.rule.cause, []).append(one)
    return list(groups.values())


def _place(one: _Candidate) -> tuple[float, int, int, str]:
    """The heaviest first; of equals the one nearer to the failure, then the earlier."""
    return (-round(one.weight, 2), -one.best.place.kind, one.best.line, one.rule.id)


def _match(group: Sequence[_Candidate], facts: Facts, machine: Facts | None) -> Match:
    best = group[0]
    rule, seen, found = best.rule, best.best, best.finding
    told = first_lookup(rule, facts, partial=True)
    if machine is None:
        remedies = fixes(rule, told)
    elif found is not None and found.fixes:
        remedies = found.fixes
    else:
        remedies = fixes(rule, first_lookup(rule, machine))
    return Match(
        rule=rule.id,
        cause=rule.cause,
        confidence=round(max(0.05, min(0.99, best.weight)), 2),
        file=seen.file,
        line=seen.line,
        excerpt=seen.excerpt,
        rank=seen.rank,
        times=len({(one.file, one.line) for each in group for one in each.sightings}),
        severity=rule.severity,
        title=found.title if found is not None else fill_known(rule.title, told),
        why=found.why if found is not None else fill_known(rule.why, told),
        verdict=_verdict(best),
        fixes=remedies,
        evidence=rule.evidence,
        also=tuple(one.rule.id for one in group[1:]),
    )


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
    lookup = FactLookup(facts, "gpu", gpu, partial=True)
    values = {name: lookup(name) for name in sorted(names)}
    here = {} if machine is None else _differing(values, machine)
    return tuple(
        Told(name, show(value), here.get(name, ""))
        for name, value in values.items()
        if value is not None and not name.endswith(".installed")
    )


def _differing(stated: Mapping[str, Any], machine: Facts) -> dict[str, str]:
    """This machine's values of facts that the log states otherwise."""
    lookup = FactLookup(machine)
    values = {}
    for name in ("system.os", "python.version", "torch.version"):
        there, here = stated.get(name), lookup(name)
        if there is None or here in (None, ""):
            continue
        if here != str(there) and not str(here).startswith((f"{there}.", f"{there}+")):
            values[name] = str(here)
    return values
