"""The one evaluator of conditions: verdicts of rules, the reasons for them, and fixes filled in.

Rules, backend requirements and explanations of logs use it. Each gives a `FactLookup`, which says
what a name means and why its value is unknown. Pure: the same facts and rules always give the same
findings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from attn_doctor.facts import ELEMENTS, PACKAGES, Facts
from attn_doctor.findings import Because, Finding, Fix, Safety, Severity, Verdict
from attn_doctor.requirement import combined
from attn_doctor.rulebook.causes import OPEN, ordered, with_causes
from attn_doctor.rulebook.conditions import Condition, conjunction, show
from attn_doctor.rulebook.rule import FixFile, Group, Rule
from attn_doctor.rulebook.texts import PLACEHOLDER, fill, fill_known, unknown_in
from attn_doctor.shell.commands import in_text, split_assignments


class FactLookup:
    """Gives the value of a fact by the name that rules write, and why it is unknown.

    `element` is the name of a member of a list of facts (`gpu`), `member` that member, and `place`
    where it is in the facts (`gpus[1]`). `partial` facts, such as those extracted from a log, say
    nothing about what they do not name: an unset variable is unknown, and so is `is known`.
    """

    def __init__(
        self,
        facts: Facts,
        element: str = "",
        member: Any = None,
        place: str = "",
        *,
        partial: bool = False,
    ) -> None:
        self.facts = facts
        self.partial = partial
        self._element = element
        self._member = member
        self._place = place
        self._values: dict[str, Any] = {}

    def __call__(self, name: str) -> Any:
        """The value of a fact; None if it is unknown."""
        if name not in self._values:
            self._values[name] = self._value(name)
        return self._values[name]

    def _value(self, name: str) -> Any:
        head, _, rest = name.partition(".")
        if head == "env":
            return self.facts.env.get(rest, None if self.partial else "")
        target: Any = self.facts
        path = name
        if head == self._element:
            target, path = self._member, rest
        for part in path.split("."):
            if target is None:
                return None
            target = len(target) if part == "count" else getattr(target, part)
        return target

    def gap(self, name: str) -> str:
        """The reason why a fact is unknown; that of an element's fact is kept by its place."""
        head, _, rest = name.partition(".")
        if self._place and head in ELEMENTS.values():
            name = f"{self._place}.{rest}"
        return self.facts.gap(name)

    def truth(self, part: Condition | Group) -> bool | None:
        """True, false, or None where a fact that decides is unknown."""
        return part.truth(self, partial=self.partial)

    def because(self, line: Condition, *, fault: bool | None = None) -> Because:
        """A line with the value seen. `fault`: the truth of the line that is a fault, if any is."""
        names = filter(None, (line.fact, line.other))
        missing = next((name for name in names if self(name) is None), None)
        return Because(
            fact=line.fact,
            seen=show(self(line.fact)),
            wanted="" if fault is None else line.wanted(self, fault=fault),
            truth=self.truth(line),
            gap="" if missing is None else self.gap(missing),
        )


def lookups(rule: Rule, facts: Facts, *, partial: bool = False) -> list[FactLookup]:
    """The subjects of a rule: the machine, or each element of its list of facts."""
    if not rule.for_each:
        return [FactLookup(facts, partial=partial)]
    element = ELEMENTS[rule.for_each]
    members: tuple[Any, ...] | None = getattr(facts, rule.for_each)
    if members is None:
        return [FactLookup(facts, element, place=rule.for_each, partial=partial)]
    return [
        FactLookup(facts, element, member, f"{rule.for_each}[{index}]", partial=partial)
        for index, member in enumerate(members)
    ]


def evaluate_rules(
    facts: Facts,
    rules: Iterable[Rule],
    harms: Mapping[str, int] | None = None,
    whole: Callable[[Rule], Rule] = lambda rule: rule,
) -> tuple[Finding, ...]:
    """Every rule's findings: problems by harm, each with its consequences, then the rest.

    `harms`: the rank of causes that do not make a program fail, as `library.harms` gives it.
    `whole` adds to a rule what only findings say, as `library.whole` does.
    """
    machine = FactLookup(facts)  # it keeps the values that many rules ask for
    findings = []
    for rule in rules:
        if not rule.has_conditions:
            continue
        for lookup in lookups(rule, facts) if rule.for_each else (machine,):
            finding = _finding(rule, lookup, whole)
            # Only these can have a cause, or be one.
            about = _packages(rule, lookup) if finding.verdict in OPEN else frozenset()
            findings.append((rule, finding, about))
    return ordered(with_causes(findings), harms or {})


def evaluate_rule(rule: Rule, facts: Facts) -> list[Finding]:
    """One rule's findings: one for the machine, or one for each element of its list."""
    return [_finding(rule, lookup) for lookup in lookups(rule, facts)]


def verdicts(rule: Rule, facts: Facts) -> set[Verdict]:
    """The verdicts alone, without the words: what the linter needs thousands of times."""
    return {verdict_on(rule, lookup) for lookup in lookups(rule, facts)}


def verdict_on(rule: Rule, lookup: FactLookup) -> Verdict:
    """The verdict of a rule on one subject."""
    applies = _applies(rule, lookup)
    if applies is False:
        return Verdict.NOT_APPLICABLE
    wrong = lookup.truth(rule.when)
    if wrong is False:
        return Verdict.OK
    return Verdict.PROBLEM if applies and wrong else Verdict.UNKNOWN


def denial(rule: Rule, lookup: FactLookup) -> Condition:
    """What the facts say of the first line that excludes a problem, as `fact == value`."""
    group = rule.applies if _applies(rule, lookup) is False else rule.when
    lines = [(line, False) for line in (*group.all, *group.any)]
    lines += [(line, True) for line in group.none]
    for line, excludes in lines:
        if lookup.truth(line) is excludes:
            return Condition(line.fact, "==", line.kind, lookup(line.fact))
    return Condition("system.os", "==", "text", lookup.facts.system.os)


def _applies(rule: Rule, lookup: FactLookup) -> bool | None:
    here = on_platform(rule, lookup.facts)
    return False if here is False else conjunction((here, lookup.truth(rule.applies)))


def on_platform(rule: Rule, facts: Facts) -> bool | None:
    """Return whether the rule is about this system; None if the system is not known."""
    system = facts.system
    if not rule.platforms or system.os in rule.platforms:
        return True
    if system.os is None:
        return None
    if "wsl" not in rule.platforms or system.os != "linux":
        return False
    return None if system.wsl is None else system.wsl > 0


def _finding(
    rule: Rule, lookup: FactLookup, whole: Callable[[Rule], Rule] = lambda rule: rule
) -> Finding:
    verdict = verdict_on(rule, lookup)
    if verdict in (Verdict.OK, Verdict.NOT_APPLICABLE):
        return Finding(
            rule=rule.id,
            verdict=verdict,
            severity=Severity(rule.severity),
            cause=rule.cause,
            title=rule.title,
        )
    rule = whole(rule)
    problem = verdict is Verdict.PROBLEM
    # Where no fix is certain to fit, those that may fit are better than none.
    certain, possible = fitting_fixes(rule, lookup) if problem else ((), ())
    fixes = [fill_fix(rule, index, lookup) for index in certain or possible]
    if not certain:
        fixes = [_by_hand_if_it_removes(fix) for fix in fixes]
    when = rule.when
    return Finding(
        rule=rule.id,
        verdict=verdict,
        severity=Severity(rule.severity),
        cause=rule.cause,
        title=fill(rule.title, lookup),
        subject=fill(rule.subject, lookup) if problem else "",
        why=in_text(fill(rule.why, lookup), lookup.facts) if problem else fill(rule.why, lookup),
        because=(
            *(lookup.because(line, fault=True) for line in (*when.all, *when.any)),
            *(lookup.because(line, fault=False) for line in when.none),
        ),
        context=tuple(map(lookup.because, rule.applies.lines)),
        fixes=tuple(fixes),
        backends=rule.backends,
        evidence=rule.evidence,
        advisory=rule.advisory,
    )


def fitting_fixes(rule: Rule, lookup: FactLookup, log: str = "") -> tuple[list[int], list[int]]:
    """The numbers of the fixes that the facts call for, and of those that they do not exclude.

    `log`: the text of the failure, for fixes that only some failures of the rule need.
    """
    certain: list[int] = []
    possible: list[int] = []
    for index, lines in enumerate(rule.fix_when):
        if not rule.fixes[index].is_for(log):
            continue
        truth = conjunction(map(lookup.truth, lines))
        if any(line.op == "is known" and lookup(line.fact) is None for line in lines):
            continue  # It says what is so, which the facts do not tell.
        if truth is not False and not _is_for_another_system(rule.fixes[index], lines, lookup):
            (certain if truth else possible).append(index)
    return certain, possible


def _by_hand_if_it_removes(fix: Fix) -> Fix:
    """A fix that only may fit: whether a package is to be removed then, a person decides."""
    removes = any("uninstall" in argv for argv in fix.run)
    return replace(fix, safety=Safety.MANUAL) if removes else fix


_ON_WINDOWS = "system.os", "==", "windows"
#: Programs that exist on one system only.
_SYSTEM_OF = {
    **dict.fromkeys(("apt", "apt-get", "dnf", "yum", "zypper", "pacman", "apk"), "linux"),
    **dict.fromkeys(("ldconfig", "modprobe", "systemctl"), "linux"),
    "brew": "macos",
    **dict.fromkeys(("winget", "choco", "wsl"), "windows"),
}


def _is_for_another_system(fix: FixFile, lines: Sequence[Condition], lookup: FactLookup) -> bool:
    """The fix, or a command of it, is for another system than the one that the facts show."""
    system = lookup("system.os")
    if system is None and str(lookup("python.path")).startswith("/"):
        return any((line.fact, line.op, line.value) == _ON_WINDOWS for line in lines)
    needed = {_SYSTEM_OF.get(word) for argv in fix.run for word in argv[:2]} - {None}
    return bool(system and needed and system not in needed)


def fill_fix(rule: Rule, index: int, lookup: FactLookup, log: str = "") -> Fix:
    """Fix number `index` with known values; without commands where a value is unknown.

    `log`: the text of the failure, which can show the program whose option is to change.
    """
    fix = rule.fixes[index]
    if fix.instead_of:
        # Few findings have such a fix, and the table takes time to read.
        from attn_doctor.rulebook.programs import with_options

        fix = with_options(fix, log)
    run = filled_commands(fix.run, lookup)
    parts = [*sum(map(_words, fix.run), ()), *fix.set.values()]
    missing = next(filter(None, (unknown_in(part, lookup) for part in parts)), "")
    manual = fill_known(fix.manual, lookup)
    if missing:
        reason = lookup.gap(missing)
        state = "unknown" if lookup(missing) is None else "empty"
        cannot = f"The command needs {missing}, which is {state}{': ' + reason if reason else ''}."
        manual = f"{manual} ({cannot})".strip()
    exports = {name: fill(value, lookup) for name, value in fix.set.items()}
    return Fix(
        title=in_text(fill_known(fix.title, lookup), lookup.facts),
        safety=Safety.MANUAL if missing else fix.safety,
        rule=rule.id,
        remedy=index + 1,
        run=() if missing or run is None else run,
        exports={} if missing else {**exports, **dict.fromkeys(fix.unset, "")},
        manual=in_text(manual, lookup.facts),
        code=fix.code,
        needs=fill_known(fix.needs, lookup),
        clears=fix.clears,
        done=rule.fix_done[index],
    )


def filled_commands(
    run: tuple[tuple[str, ...], ...], lookup: FactLookup
) -> tuple[tuple[str, ...], ...] | None:
    """Commands with the values of facts; None where a value is unknown.

    A variable of one command with an unknown value is left out, as in `MAX_JOBS={build.jobs}`: the
    command works without it.
    """
    filled = []
    for argv in run:
        variables, words = split_assignments(argv)
        if any(unknown_in(word, lookup) for word in words):
            return None
        known = (one for one in variables if not unknown_in(one, lookup))
        packages = (filled_in for word in words for filled_in in _arguments(word, lookup))
        filled.append((*(fill(one, lookup) for one in known), *packages))
    return tuple(filled)


def _arguments(word: str, lookup: FactLookup) -> tuple[str, ...]:
    """A word with its facts filled in; one that is a list of arguments stands for all of them."""
    values = lookup(word[1:-1]) if re.fullmatch(PLACEHOLDER, word) else None
    return values if isinstance(values, tuple) else (_closest_bounds(word, fill(word, lookup)),)


# xformers{xformers.expected},>=0.0.29
def _closest_bounds(word: str, filled: str) -> str:
    """Return a requirement that a fact and the rule bound with one lower and one upper bound."""
    if filled == word or "," not in filled:
        return filled
    found = re.fullmatch(r"([\w.-]+(?:\[[\w,-]+\])?)([<>=!~].*,.*)", filled)
    if found is None:
        return filled
    kept = combined((found[2],)).split(",")
    return found[1] + ",".join(one for one in found[2].split(",") if one in kept)


def _words(argv: tuple[str, ...]) -> tuple[str, ...]:
    """A command without its leading variables."""
    return split_assignments(argv)[1]


def _packages(rule: Rule, lookup: FactLookup) -> frozenset[str]:
    """The packages that a finding is about; empty for one about torch or the machine."""
    if rule.for_each == "extensions":
        return frozenset({str(lookup("extension.package"))})
    if rule.for_each == "duplicates" and lookup("duplicate.place") in ("pythonpath", "path-file"):
        return frozenset({str(lookup("duplicate.package")).replace("-", "_")})
    heads = (line.fact.partition(".")[0] for line in (*rule.applies.lines, *rule.when.lines))
    return frozenset(head for head in heads if head in PACKAGES)
