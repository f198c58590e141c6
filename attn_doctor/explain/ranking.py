"""Rank the causes of the symptoms in a log: a score for each rule, one match for each cause.

The score adds how much the best symptom says (its plain text, its position in a traceback), further
symptoms and rules of the same cause, and the facts of the log and of the machine. The sum is the
confidence; see `RankedCause.confidence` for its meaning.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from attn_doctor.explain.explanation import Confirmation, RankedCause
from attn_doctor.explain.log_signals import log_signals
from attn_doctor.explain.symptom_match import SymptomMatch
from attn_doctor.explain.tracebacks import LineKind
from attn_doctor.explain.where_it_fits import clause, there_are_no, where_it_fits
from attn_doctor.facts import ELEMENTS, Cache, Extension, Facts
from attn_doctor.findings import Finding, Fix, Safety, Verdict
from attn_doctor.rulebook.conditions import Condition
from attn_doctor.rulebook.evaluate import (
    FactLookup,
    denial,
    evaluate_rule,
    fill_fix,
    fitting_fixes,
    lookups,
    on_platform,
    verdict_on,
)
from attn_doctor.rulebook.packages import is_named, own_copy, package_of, packages_installed
from attn_doctor.rulebook.rule import FixFile, Rule
from attn_doctor.rulebook.texts import fill_known

_log = logging.getLogger(__name__)

#: The confidence in a rule with one symptom that says nothing.
_BASE = 0.45
#: Added for each further symptom of a rule and each further rule of a cause, and the most of it.
_FURTHER, _MOST = 0.06, 0.12
#: Added if the facts of the log, or of the machine, confirm a rule, and if they exclude it.
_LOG_CONFIRMS, _LOG_EXCLUDES = 0.12, -0.25
_MACHINE_CONFIRMS, _MACHINE_EXCLUDES = 0.08, -0.08
#: Added if the log never names the package that a rule is about.
_PACKAGE_NOT_NAMED = -0.08
#: A consequence scores at least this much less than the rule that explains it.
_BELOW = 0.05
#: Why a remedy comes without its command.
_NOT_STATED = "(The log does not say what the command needs.)"
#: Causes with a lower score are not claimed.
_LEAST = 0.25


class _Evaluation(NamedTuple):
    """Whether facts confirm a rule, with the reason if they do not."""

    truth: bool | None
    reason: str = ""


class _ScoredRule:
    """A rule with its symptoms in the log, and the confidence in it."""

    def __init__(
        self,
        rule: Rule,
        matches: list[SymptomMatch],
        stated: Facts,
        machine: Facts | None,
        log: str,
    ) -> None:
        self.rule = rule
        self.matches = matches
        self.best = max(matches, key=lambda match: (match.score, -match.line))
        self.on_log = _evaluate_on_log(rule, stated)
        self.on_machine: _Evaluation | None = None
        self.finding: Finding | None = None
        self.machine = None if machine is None else _with_what_it_names(rule, machine, log)
        if self.machine is not None:
            self.on_machine, self.finding = _evaluate_on_machine(rule, self.machine)
        self.score = _BASE + self.best.score + _further(len({m.symptom for m in matches}))
        self.score += {True: _LOG_CONFIRMS, False: _LOG_EXCLUDES, None: 0.0}[self.on_log.truth]
        if self.on_machine is not None:
            added = {True: _MACHINE_CONFIRMS, False: _MACHINE_EXCLUDES, None: 0.0}
            self.score += added[self.on_machine.truth]
        package = package_of(rule.id)
        if package and package not in self.printed_by and not is_named(package, log):
            self.score += _PACKAGE_NOT_NAMED

    @property
    def printed_by(self) -> set[str]:
        """The packages that alone print the symptoms found."""
        return {self.rule.symptoms[match.symptom].printed_by for match in self.matches}

    @property
    def is_notice(self) -> bool:
        """The line says itself that the run continues, or the rule only informs."""
        signals = log_signals()
        if self.best.position.kind in (LineKind.TEXT, LineKind.WARNING):
            return self.rule.severity == "info" or bool(signals.harmless.search(self.best.said))
        return self.rule.severity == "info" and self.rule.cause in signals.optional_causes

    @property
    def order(self) -> tuple[float, int, int, str]:
        """The highest score first; then the line nearer to the failure, then the earlier one."""
        best = self.best
        return (-round(self.score, 2), -best.position.kind, best.line, self.rule.id)

    @property
    def may_be_claimed(self) -> bool:
        """NaN and black pictures have many causes: an advisory needs facts that fall under it."""
        on_machine = self.on_machine is not None and self.on_machine.truth is True
        return (
            self.rule.advisory is None
            or self.on_log.truth is True
            or (on_machine and self.on_log.truth is None)
        )

    @property
    def confirmation(self) -> tuple[Confirmation, str]:
        """Whether the machine, or else the log, confirms the rule, and why not."""
        denied = self.on_log.truth is False
        if self.on_machine is not None and (self.rule.has_conditions or not denied):
            truth, reason = self.on_machine
            if truth is None and not self.rule.has_conditions:
                return Confirmation.LOG_ONLY, ""
            no = Confirmation.UNKNOWN if truth is None else Confirmation.NO
            return (Confirmation.BY_MACHINE, "") if truth else (no, reason)
        if denied:
            return Confirmation.NO, f"the log says that {self.on_log.reason}"
        return (Confirmation.BY_LOG if self.on_log.truth else Confirmation.NOT_CHECKED), ""


def _further(count: int) -> float:
    return min(_MOST, _FURTHER * (count - 1))


def rank_causes(
    matches: Iterable[SymptomMatch],
    rules: Mapping[str, Rule],
    stated: Facts,
    machine: Facts | None,
    log: str,
) -> tuple[RankedCause, ...]:
    """One cause for each label, the most likely first.

    `stated`: the facts of the log; `log`: the text of its passages with symptoms.
    """
    by_rule: dict[str, list[SymptomMatch]] = {}
    for match in matches:
        by_rule.setdefault(match.rule, []).append(match)
    scored = {
        id: _ScoredRule(rules[id], found, stated, machine, log) for id, found in by_rule.items()
    }
    claimed = {id: entry for id, entry in scored.items() if entry.may_be_claimed}
    return tuple(_ranked(group, rules, stated, log) for group in _by_cause(claimed))


def _by_cause(scored: Mapping[str, _ScoredRule]) -> list[list[_ScoredRule]]:
    """The rules by their causes, the highest score first in each, without the lowest scores."""
    causes = [entry.rule.cause for entry in scored.values()]
    for entry in scored.values():
        entry.score += _further(causes.count(entry.rule.cause))
    _give_way(scored.values())
    for _ in range(3):  # chains of rules that explain each other are short
        for entry in scored.values():
            for needed in entry.rule.requires:
                root = scored.get(needed)
                if root is not None and root.on_log.truth is not False:
                    entry.score = min(entry.score, root.score - _BELOW)
    groups: dict[str, list[_ScoredRule]] = {}
    for entry in sorted(scored.values(), key=lambda entry: entry.order):
        _log.debug("%s: score %.2f, best line %d", entry.rule.id, entry.score, entry.best.line)
        if entry.score >= _LEAST:
            groups.setdefault(entry.rule.cause, []).append(entry)
    return list(groups.values())


def _give_way(scored: Collection[_ScoredRule]) -> None:
    """A notice scores less than a failure of another cause that follows it, unless it says why."""
    undecided = log_signals().undecided
    failures = [
        entry for entry in scored if not entry.is_notice and not undecided.search(entry.best.said)
    ]
    for entry in scored:
        if entry.is_notice:
            later = [
                one.score
                for one in failures
                if one.best.line > entry.best.line
                and one.best.file == entry.best.file
                and one.rule.cause != entry.rule.cause
            ]
            entry.score = min([entry.score, *(score - _BELOW for score in later)])


def _confirmed(best: _ScoredRule, rules: Mapping[str, Rule], log: str) -> _ScoredRule:
    """The rule; in place of one that only reads logs, the one of its cause that a machine confirms.

    A message such as *no kernel image* does not say which build lacks the GPU. The machine does.
    """
    if best.rule.has_conditions or best.machine is None:
        return best
    for name in best.rule.requires:
        needed = rules.get(name)
        if needed is not None and needed.has_conditions and needed.cause == best.rule.cause:
            entry = _ScoredRule(needed, best.matches, Facts(), best.machine, log)
            if entry.on_machine is not None and entry.on_machine.truth is True:
                return entry
    return best


def _ranked(
    group: Sequence[_ScoredRule], rules: Mapping[str, Rule], stated: Facts, log: str
) -> RankedCause:
    best = _confirmed(group[0], rules, log)
    rule, match, finding, machine = best.rule, best.best, best.finding, best.machine
    on_log = _first_lookup(rule, stated, partial=True)
    there = on_log if machine is None else _first_lookup(rule, machine)
    if finding is not None and finding.fixes and not any(fix.reads_log for fix in rule.fixes):
        fixes = finding.fixes
    else:
        fixes = _fixes(rule, there, log)
        fixes = tuple(_for_named_package(fix, log, best.printed_by) for fix in fixes)
        if machine is None:
            fixes = _worked_out_there(fixes, rule, on_log, log)
    confirmation, reason = best.confirmation
    # A sentence with values of the log must not say what these values deny.
    said = _first_lookup(rule, Facts(), partial=True) if best.on_log.truth is False else on_log
    return RankedCause(
        rule=rule.id,
        cause=rule.cause,
        confidence=round(max(0.05, min(0.99, best.score)), 2),
        file=match.file,
        line=match.line,
        excerpt=match.excerpt,
        rank=match.rank,
        times=len({(found.file, found.line) for entry in group for found in entry.matches}),
        severity=rule.severity,
        title=finding.title if finding is not None else fill_known(rule.title, said),
        why=finding.why if finding is not None else fill_known(rule.why, said),
        confirmation=confirmation,
        reason=reason,
        fixes=fixes,
        evidence=rule.evidence,
        also=tuple(entry.rule.id for entry in group[1:]),
    )


# Facts


#: Lists of which a log names the member that failed → its fields, and one that is not known.
_NAMED_BY: dict[str, tuple[tuple[str, ...], Extension | Cache]] = {
    "extensions": (("package", "name", "path"), Extension(package="")),
    "caches": (("path",), Cache()),
}
#: A shorter name, such as `_C`, says nothing.
_TELLING = 4


def _with_what_it_names(rule: Rule, machine: Facts, log: str) -> Facts:
    """The facts with those members of the rule's list that the log names.

    A finding about another extension or cache would answer another question.
    """
    if rule.for_each not in _NAMED_BY or not getattr(machine, rule.for_each):
        return machine
    fields, other = _NAMED_BY[rule.for_each]
    members: tuple[Any, ...] = getattr(machine, rule.for_each)
    found = tuple(one for one in members if any(_names(log, getattr(one, it)) for it in fields))
    gaps = dict(machine.gaps)
    if not found:
        gaps[rule.for_each] = f"the log names none of the {rule.for_each} here"
    return replace(machine, **{rule.for_each: found or (other,)}, gaps=gaps)


def _names(log: str, text: str | None) -> bool:
    return text is not None and len(text) >= _TELLING and text in log


def _first_lookup(rule: Rule, facts: Facts, *, partial: bool = False) -> FactLookup:
    """Looks facts up in the first element of the rule's list: a log names one GPU."""
    subjects = lookups(rule, facts, partial=partial)
    element = ELEMENTS.get(rule.for_each, "")
    return subjects[0] if subjects else FactLookup(facts, element, partial=partial)


def _evaluate_on_log(rule: Rule, facts: Facts) -> _Evaluation:
    lookup = _first_lookup(rule, facts, partial=True)
    verdict = verdict_on(rule, lookup)
    if verdict in (Verdict.OK, Verdict.NOT_APPLICABLE) and not _has_fix_there(rule, facts):
        return _Evaluation(False, clause(denial(rule, lookup)))
    confirmed = verdict is Verdict.PROBLEM and rule.has_conditions
    return _Evaluation(True if confirmed else None)


def _has_fix_there(rule: Rule, stated: Facts) -> bool:
    """A check does not examine that system for it, but the rule has a fix for its logs."""
    os = stated.system.os
    lines = (line for lines in rule.fix_when for line in lines)
    elsewhere = bool(rule.platforms) and os not in rule.platforms
    return elsewhere and any(
        (line.fact, line.op, line.value) == ("system.os", "==", os) for line in lines
    )


def _evaluate_on_machine(rule: Rule, facts: Facts) -> tuple[_Evaluation, Finding | None]:
    """Whether a machine's facts confirm a rule, and the finding if they do."""
    lookup = _first_lookup(rule, facts)
    if not rule.has_conditions:
        if verdict_on(rule, lookup) is Verdict.NOT_APPLICABLE:
            return _Evaluation(False, clause(denial(rule, lookup))), None
        return _Evaluation(None), None
    findings = evaluate_rule(rule, facts)
    for finding in findings:
        if finding.verdict is Verdict.PROBLEM:
            return _Evaluation(True), finding
    for finding in findings:
        if finding.verdict is Verdict.UNKNOWN:
            lines = [line for line in (*finding.context, *finding.because) if line.truth is None]
            gap = next((line.gap for line in lines if line.gap), "")
            names = ", ".join(dict.fromkeys(line.fact for line in lines))
            return _Evaluation(None, gap or f"{names} unknown"), None
    if not findings:
        return _Evaluation(False, there_are_no(rule.for_each)), None
    return _Evaluation(False, clause(denial(rule, lookup))), None


def _fixes(rule: Rule, lookup: FactLookup, log: str) -> tuple[Fix, ...]:
    """The fixes that the facts call for, and those that they do not exclude, in the rule's order.

    A command that may not fit says where it does. A fix without a command says so in its title, and
    one whose command needs an unknown fact says nothing beside others, unless it is the best one.
    """
    certain, possible = fitting_fixes(rule, lookup, log)
    fixes = {index: fill_fix(rule, index, lookup, log) for index in sorted((*certain, *possible))}
    # Of one remedy in several forms, the later ones are for facts that the log does not state.
    said_before = {fixes[index].title for index in certain}
    forms = {(fix.title, fix.run): index for index, fix in reversed(fixes.items())}
    fixes = {
        index: fix
        for index, fix in fixes.items()
        if index in certain or (fix.title not in said_before and forms[fix.title, fix.run] == index)
    }
    said = tuple(
        fix if index in certain else _where(fix, rule.fixes[index], rule.fix_when[index], lookup)
        for index, fix in fixes.items()
        if index in certain or fix.run or fix.exports or fix.code or rule.fixes[index].is_in_words
    )
    best = next(iter(fixes), None)
    if best is not None and (not said or said[0].remedy > best + 1):
        # Without the facts that its command needs, the best remedy still has a title.
        written, titles = rule.fixes[best], {fix.title for fix in said}
        if (written.run or written.set) and fixes[best].title not in titles:
            said = (fixes[best], *said)
    shown = said or tuple(fixes.values())
    return tuple(_without_names(fix, rule.fixes[fix.remedy - 1], lookup) for fix in shown)


def _has_command(fix: Fix) -> bool:
    return bool(fix.run or fix.exports or fix.code)


def _without_names(fix: Fix, written: FixFile, lookup: FactLookup) -> Fix:
    """The fix; if a log does not state what its command needs, the fact is not named."""
    if not lookup.partial or _has_command(fix) or not (written.run or written.set):
        return fix
    return replace(fix, manual=f"{fill_known(written.manual, lookup)} {_NOT_STATED}".strip())


def _where(fix: Fix, written: FixFile, lines: Sequence[Condition], lookup: FactLookup) -> Fix:
    """The fix; for a person to decide by what the facts do not tell, if its command is known."""
    unknown = [
        line for line in lines if lookup.truth(line) is None and not line.op.startswith("is ")
    ]
    if not unknown or (written.run and not fix.run):
        return fix
    return _by_hand(fix, where_it_fits(unknown))


def _worked_out_there(
    fixes: tuple[Fix, ...], rule: Rule, on_log: FactLookup, log: str
) -> tuple[Fix, ...]:
    """The fixes; the first asks `check` for the command, if only facts of that machine give it.

    Then `check` also decides whether it is one of the others whose command needs such facts.
    """
    first = fixes[0] if fixes else None
    if first is None or not rule.has_conditions or _has_command(first):
        return fixes
    if on_platform(rule, on_log.facts) is False:
        return fixes  # `check` does not evaluate the rule there
    said = {fix.remedy for fix in fixes if fix.run or fix.exports}
    certain, possible = fitting_fixes(rule, on_log, log)
    waiting = (rule.fixes[index] for index in (*certain, *possible) if index + 1 not in said)
    # A fix that the words of a log allow is not one that `check` offers.
    if not any((one.run or one.set) and not one.printed for one in waiting):
        return fixes
    python = on_log("python.path")
    there = ("--python", str(python)) if python else ()
    written = rule.fixes[first.remedy - 1]
    manual = fill_known(written.manual, on_log)
    asked = "On the machine of the log, `attn-doctor check` gives the command."
    manual = f"{manual} {asked}".strip()
    # Of a note, `check` shows only the title.
    all_of_it = ("-v",) if rule.severity == "info" else ()
    command = ("attn-doctor", "check", *all_of_it, *there)
    others = fixes[1:]
    if written.run or written.set:
        others = tuple(fix for fix in others if not fix.manual.endswith(_NOT_STATED))
    return (replace(first, run=(command,), manual=manual), *others)


def _for_named_package(fix: Fix, log: str, printed_by: set[str]) -> Fix:
    """The fix; for a person to decide if it installs a package of which the log says nothing.

    So it is where a program has a copy of the package, which an installation does not change.
    """
    installed = dict.fromkeys(name for argv in fix.run for name in packages_installed(argv))
    for package in installed:
        if package not in printed_by and not is_named(package, log):
            condition = f"The log does not name the package. Do this only if it is {package}."
            return _by_hand(fix, condition)
    copies = [found for argv in fix.run if (found := own_copy(argv, log))]
    if copies:
        module, folder = copies[0]
        shown = f"The log shows {module} in {folder}, not in site-packages."
        return _by_hand(fix, f"{shown} Do this only if the program does not need its own copy.")
    return fix


def _by_hand(fix: Fix, condition: str) -> Fix:
    """The fix with a condition that a person decides."""
    return replace(fix, safety=Safety.MANUAL, manual=f"{fix.manual} {condition}".strip())
