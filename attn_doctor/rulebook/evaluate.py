"""Rules judge facts: verdicts, the reasons for them, and which problem explains which.

Pure: the same facts and rules always give the same findings.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attn_doctor.facts import ELEMENTS, Facts
from attn_doctor.findings import Because, Finding, Fix, Safety, Severity, Verdict
from attn_doctor.rulebook.conditions import Condition, Lookup, conjunction, show
from attn_doctor.rulebook.placeholders import fill, unknown_in
from attn_doctor.rulebook.rule import Group, Rule


def lookup_in(facts: Facts, element: str = "", value: Any = None) -> Lookup:
    """A function from fact names to values; `element` names one member of a list, `value`."""

    def lookup(name: str) -> Any:
        head, _, rest = name.partition(".")
        if head == "env":
            return facts.env.get(rest, "")
        target: Any = facts
        path = name
        if head == element:
            target, path = value, rest
        for part in path.split("."):
            if target is None:
                return None
            target = len(target) if part == "count" else getattr(target, part)
        return target

    return lookup


def judge(facts: Facts, rules: Iterable[Rule]) -> tuple[Finding, ...]:
    """Every rule's findings: problems by severity, each with its consequences, then the rest."""
    found = [
        (rule, finding) for rule in rules if rule.judges for finding in judge_rule(rule, facts)
    ]
    return _ordered(_with_causes(found))


def judge_rule(rule: Rule, facts: Facts) -> list[Finding]:
    """One rule's findings: one for the machine, or one for each element of its list."""
    return [_finding(rule, facts, lookup, place) for lookup, place in _subjects(rule, facts)]


def verdicts(rule: Rule, facts: Facts) -> set[Verdict]:
    """The verdicts alone, without the words: what the linter asks thousands of times."""
    return {_verdict(rule, facts, lookup) for lookup, _ in _subjects(rule, facts)}


def _subjects(rule: Rule, facts: Facts) -> list[tuple[Lookup, str]]:
    """What a rule judges: the machine, or each element of a list with its place in the facts."""
    if not rule.for_each:
        return [(lookup_in(facts), "")]
    element = ELEMENTS[rule.for_each]
    members: tuple[Any, ...] | None = getattr(facts, rule.for_each)
    if members is None:
        return [(lookup_in(facts, element), rule.for_each)]
    return [
        (lookup_in(facts, element, member), f"{rule.for_each}[{index}]")
        for index, member in enumerate(members)
    ]


def _finding(rule: Rule, facts: Facts, lookup: Lookup, place: str) -> Finding:
    """The finding on one subject; `place` is where its element stands in the facts."""
    verdict = _verdict(rule, facts, lookup)
    if verdict in (Verdict.OK, Verdict.NOT_APPLICABLE):
        return Finding(
            rule=rule.id,
            verdict=verdict,
            severity=Severity(rule.severity),
            cause=rule.cause,
            title=rule.title,
        )
    problem = verdict is Verdict.PROBLEM
    return Finding(
        rule=rule.id,
        verdict=verdict,
        severity=Severity(rule.severity),
        cause=rule.cause,
        title=fill(rule.title, lookup),
        subject=fill(rule.subject, lookup) if problem else "",
        why=fill(rule.why, lookup),
        because=_reasons(rule.when, facts, lookup, place, faults=True),
        context=_reasons(rule.applies, facts, lookup, place, faults=False),
        # Where no fix fits for certain, those that may fit are better than none.
        fixes=(
            tuple(_fixes(rule, facts, lookup, place))
            or tuple(_fixes(rule, facts, lookup, place, doubtful=True))
            if problem
            else ()
        ),
        backends=rule.backends,
        evidence=rule.evidence,
    )


def _verdict(rule: Rule, facts: Facts, lookup: Lookup) -> Verdict:
    applies = conjunction((_on_platform(rule, facts), rule.applies.truth(lookup)))
    if applies is False:
        return Verdict.NOT_APPLICABLE
    wrong = rule.when.truth(lookup)
    if wrong is False:
        return Verdict.OK
    return Verdict.PROBLEM if applies and wrong else Verdict.UNKNOWN


def _on_platform(rule: Rule, facts: Facts) -> bool | None:
    system = facts.system
    if not rule.platforms or system.os in rule.platforms:
        return True
    if system.os is None:
        return None
    if "wsl" not in rule.platforms or system.os != "linux":
        return False
    return None if system.wsl is None else system.wsl > 0


def _reasons(
    group: Group, facts: Facts, lookup: Lookup, place: str, *, faults: bool
) -> tuple[Because, ...]:
    """Each line of a group with the value seen. `faults`: being so is what is wrong."""
    held = [*((line, True) for line in (*group.all, *group.any))]
    held += ((line, False) for line in group.none)
    return tuple(_because(line, facts, lookup, place, faults, true) for line, true in held)


def _because(
    line: Condition, facts: Facts, lookup: Lookup, place: str, faults: bool, true: bool
) -> Because:
    seen = lookup(line.fact)
    return Because(
        fact=line.fact,
        seen=show(seen),
        wanted=line.wanted(lookup, held=true) if faults else "",
        truth=line.truth(lookup),
        gap=_gap(line, facts, lookup, place),
    )


def _gap(line: Condition, facts: Facts, lookup: Lookup, place: str) -> str:
    """Why the line cannot be told, if it cannot."""
    for name in filter(None, (line.fact, line.other)):
        if lookup(name) is None:
            return _reason(name, facts, place)
    return ""


def _reason(name: str, facts: Facts, place: str) -> str:
    """Why a fact is unknown; one of an element (`gpu.sm`) by its place, such as `gpus[1]`."""
    head, _, rest = name.partition(".")
    if place and head in ELEMENTS.values():
        name = f"{place}.{rest}"
    return facts.gap(name)


def _fixes(
    rule: Rule, facts: Facts, lookup: Lookup, place: str, *, doubtful: bool = False
) -> Iterable[Fix]:
    """The fixes that this machine calls for. `doubtful`: also those for which it cannot be told."""
    for index, lines in enumerate(rule.fix_when):
        truth = conjunction(line.truth(lookup) for line in lines)
        if truth or (doubtful and truth is None):
            yield filled(rule, index, facts, lookup, place)


def filled(rule: Rule, index: int, facts: Facts, lookup: Lookup, place: str = "") -> Fix:
    """A remedy of `rule` with this machine's values; no commands where a value is unknown.

    `place` is the element of the facts that was evaluated, such as `gpus[1]`.
    """
    fix = rule.fixes[index]
    parts = [*(part for argv in fix.run for part in argv), *fix.set.values()]
    missing = next(filter(None, (unknown_in(part, lookup) for part in parts)), "")
    manual = fill(fix.manual, lookup)
    if missing:
        reason = _reason(missing, facts, place)
        state = "unknown" if lookup(missing) is None else "empty"
        cannot = f"attn-doctor cannot write the command: {missing} is {state}"
        manual = f"{manual} ({cannot}{': ' + reason if reason else ''})".strip()
    return Fix(
        title=fill(fix.title, lookup),
        safety=Safety.MANUAL if missing else fix.safety,
        rule=rule.id,
        remedy=index + 1,
        run=() if missing else tuple(tuple(fill(p, lookup) for p in argv) for argv in fix.run),
        exports={}
        if missing
        else {**{n: fill(v, lookup) for n, v in fix.set.items()}, **dict.fromkeys(fix.unset, "")},
        manual=manual,
        needs=fill(fix.needs, lookup),
        clears=fix.clears,
        done=rule.fix_done[index],
    )


def _with_causes(found: list[tuple[Rule, Finding]]) -> list[Finding]:
    """Each finding with the problem that explains it, where one of its rule's `requires` is one."""
    from msgspec.structs import replace

    wrong = {finding.rule for _, finding in found if finding.verdict is Verdict.PROBLEM}
    requires = {rule.id: rule.requires for rule, _ in found}

    def root(id: str, seen: frozenset[str]) -> str:
        for needed in requires.get(id, ()):
            if needed in wrong and needed not in seen:
                return root(needed, seen | {needed})
        return id

    explained = []
    for rule, finding in found:
        cause = root(rule.id, frozenset({rule.id}))
        open_question = finding.verdict in (Verdict.PROBLEM, Verdict.UNKNOWN)
        if open_question and cause != rule.id:
            finding = replace(finding, caused_by=cause)
        explained.append(finding)
    return explained


_ORDER = {Verdict.PROBLEM: 0, Verdict.UNKNOWN: 1, Verdict.OK: 2, Verdict.NOT_APPLICABLE: 3}


def _ordered(findings: list[Finding]) -> tuple[Finding, ...]:
    """Problems, unknowns, the rest; a root cause before its consequences; the worst first."""
    worst: dict[str, int] = {}
    for one in findings:
        if one.verdict is Verdict.PROBLEM and not one.caused_by:
            worst[one.rule] = one.severity.rank

    def place(one: Finding) -> tuple[int, int, str, bool, int, str]:
        root = one.caused_by or one.rule
        rank = worst.get(root, one.severity.rank)
        return (_ORDER[one.verdict], -rank, root, bool(one.caused_by), -one.severity.rank, one.rule)

    return tuple(sorted(findings, key=place))
