"""The linter for rules: every rule must be complete, and every line of it must matter.

A rule that loads is well formed (`rule_files.py`). The linter runs its examples, drops each of its
condition lines in turn to see whether an example notices, matches each symptom against its example
lines and its look-alikes, refuses dangerous patterns, and follows references to other rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.errors import RuleError
from attn_doctor.facts import Facts
from attn_doctor.findings import Verdict
from attn_doctor.rulebook import library
from attn_doctor.rulebook.evaluate import evaluate_rule, verdicts
from attn_doctor.rulebook.frames import frames_of
from attn_doctor.rulebook.packages import is_named, packages_installed
from attn_doctor.rulebook.patterns import pattern_faults
from attn_doctor.rulebook.rule import Group, Rule, Symptom
from attn_doctor.rulebook.rule_files import example_facts, family_faults, read_rule, rule_paths
from attn_doctor.rulebook.rule_shape import Claim, Example, WrittenRule
from attn_doctor.rulebook.scaffold import unfilled
from attn_doctor.rulebook.symptom_text import is_in
from attn_doctor.rulebook.symptom_words import word_faults
from attn_doctor.rulebook.texts import in_general

#: What the source of a claim looks like: a place that cannot change after the reading.
_SOURCES = {
    "source": (
        r"https://[^/]+/.+/(?:blob|tree|raw)/(?!(?:main|master|develop|HEAD)/)[^/]+/\S+",
        "a link to a file at a tag or commit",
    ),
    "wheel": (r"[\w.-]+==[\w.+!]+ \S.*", "`name==version path:line`"),
    "document": (r"https://\S+", "a link"),
    "run": (r".*\S.*", "the command and its result"),
}
_WORST = (Verdict.PROBLEM, Verdict.UNKNOWN, Verdict.OK, Verdict.NOT_APPLICABLE)


class Complaint(Struct, frozen=True):
    """One thing that is wrong with one rule, or with a table."""

    rule: str
    text: str
    file: str
    unreadable: bool = False
    """The file cannot be read as a rule or table at all."""


class _Known(Struct, frozen=True):
    """The names to which a rule may refer."""

    requires: dict[str, tuple[str, ...]]
    """The rules that each rule requires, by its id."""
    causes: frozenset[str]
    taken: frozenset[str] = frozenset()
    """Ids of our rules, if the folder adds to them."""


def lint(folder: Path) -> tuple[tuple[WrittenRule, ...], list[Complaint]]:
    """The rules of a folder and all complaints about it, in the order of their files.

    A folder without `tables/causes.toml` adds to our rules: it may refer to them and to our
    causes, and must not reuse their ids.
    """
    rules: list[WrittenRule] = []
    complaints = list(_misplaced(folder))
    sets = library.required_sets()
    for path in rule_paths(folder):
        try:
            rules.append(read_rule(path, folder, sets))
        except RuleError as error:
            id = path.relative_to(folder).with_suffix("").as_posix()
            complaints.append(_unreadable(id, path, error))
    try:
        known = _known_names(folder, rules)
    except RuleError as error:
        complaints.append(_unreadable("tables", folder / "tables", error))
        return tuple(rules), complaints
    by_id = {rule.id: rule for rule in rules}
    for rule in rules:
        file = str(folder / f"{rule.id}.toml")
        texts = (*lint_rule(rule), *_references(rule, known), *_unlike(rule, by_id))
        complaints += [Complaint(rule.id, text, file) for text in texts]
    return tuple(rules), sorted(complaints, key=lambda complaint: complaint.file)


def _unreadable(id: str, path: Path, error: RuleError) -> Complaint:
    file, colon, text = str(error).partition(".toml: ")
    if colon:
        return Complaint(id, text, f"{file}.toml", unreadable=True)
    return Complaint(id, str(error), str(path), unreadable=True)


def _misplaced(folder: Path) -> Iterator[Complaint]:
    """Files that are never read, because a rule belongs in a folder of its area."""
    for path in (*folder.glob("*.toml"), *folder.glob("*/*/*.toml")):
        if path.parent.parent == folder / "tables":
            continue  # the catalogue of backends, known GPUs and formats have their own readers
        id = path.relative_to(folder).with_suffix("").as_posix()
        if not id.startswith("."):
            yield Complaint(id, "is never read: a rule belongs in <area>/<name>.toml", str(path))


def _known_names(folder: Path, rules: Iterable[WrittenRule]) -> _Known:
    own = {rule.id: rule.requires for rule in rules}
    tables = library.read_tables(folder)
    if "causes" in tables:
        return _Known(own, frozenset(tables["causes"].get("cause", ())))
    ours = {rule.id: rule.requires for rule in library.load()}
    causes = library.tables()["causes"]["cause"]
    return _Known({**ours, **own}, frozenset(causes), frozenset(ours))


def lint_rule(rule: WrittenRule) -> Iterator[str]:
    """Complaints that need no other rule."""
    empty = unfilled(rule)
    if empty:
        yield f"is not filled in yet: {', '.join(empty)}"
    if rule.has_conditions:
        expected = {example.expect for example in rule.examples}
        missing = [verdict for verdict in ("problem", "ok", "unknown") if verdict not in expected]
        if missing:
            yield f"needs an example with expect = {' and one with '.join(map(repr, missing))}"
        yield from filter(None, (example_fault(rule, example) for example in rule.examples))
        yield from _guards(rule)
    elif rule.backends:
        yield "has `backends` without [when]: leave them out, since a log names its own backend"
    yield from _fix_faults(rule)
    yield from family_faults(rule, library.families())
    yield from _fixes_for_no_log(rule)
    yield from _unnamed_packages(rule)
    yield from _cut_texts(rule)
    yield from pattern_faults(rule)
    if "symptom" not in empty:
        yield from word_faults(rule)
    yield from _line_faults(rule)
    yield from filter(None, map(claim_fault, rule.claims))
    # One day of tolerance: it may be tomorrow already where the author lives.
    if rule.checked > date.today() + timedelta(days=1):
        yield f"was checked on {rule.checked}, which is in the future"


def _fix_faults(rule: Rule) -> Iterator[str]:
    if rule.severity != "info" and not rule.fixes:
        yield "has no [[fix]]; write at least what a person should do (`manual`)"
    if rule.fixes and rule.has_conditions and all(fix.printed for fix in rule.fixes):
        yield "has no fix that a check can offer: each has `printed`, which is for logs"
    for fix in rule.fixes:
        if not (fix.run or fix.set or fix.unset or fix.code or fix.is_in_words):
            yield f"fix {fix.title!r} needs `run`, `set`, `unset`, `code` or `manual`"


def _line_faults(rule: WrittenRule) -> Iterator[str]:
    """Symptoms that miss a line of their own, alternatives without one, look-alikes that match."""
    for symptom in rule.symptoms:
        yield from filter(None, (symptom_fault(symptom, line) for line in symptom.lines))
    for symptom, alternatives in zip(rule.symptoms, rule.alternatives, strict=False):
        for pattern in alternatives:
            alone = replace(symptom, pattern=pattern)
            if not any(is_in(alone, line) for line in symptom.lines):
                yield f"no log of its symptom shows the alternative {pattern!r}; add one or drop it"
    for one in rule.look_alikes:
        for pattern in _recognising(rule, one.log):
            yield f"symptom {pattern!r} matches the look-alike {one.log!r}"


def _fixes_for_no_log(rule: Rule) -> Iterator[str]:
    """Patterns of fixes that no line of a symptom matches, and lines that no fix is for."""
    lines = [line for symptom in rule.symptoms for line in symptom.lines]
    for pattern in (pattern for fix in rule.fixes for pattern in fix.printed):
        if not any(re.search(pattern, line) for line in lines):
            yield f"`printed` {pattern!r} of a fix matches no log of a symptom"
    for line in lines:
        if rule.fixes and not any(fix.is_for(line) for fix in rule.fixes):
            yield f"no fix is for the log {line!r}; leave `printed` out of one"


def _unnamed_packages(rule: Rule) -> Iterator[str]:
    """Symptoms that never name a package which a fix installs."""
    commands = (argv for fix in rule.fixes for argv in fix.run)
    for package in sorted({name for argv in commands for name in packages_installed(argv)}):
        for symptom in rule.symptoms:
            named = any(is_named(package, line) for line in symptom.lines)
            if not named and symptom.printed_by != package:
                yield (
                    f"a fix installs {package}, which no log of symptom {symptom.pattern!r} names; "
                    f"add such a log, or `printed_by` if only {package} prints this text"
                )


def _cut_texts(rule: Rule) -> Iterator[str]:
    """Texts that `explain` cannot word for a log without their facts."""
    fixes = (text for fix in rule.fixes for text in (fix.title, fix.needs, fix.manual))
    for text in filter(None, (rule.title, rule.why, *fixes)):
        general = in_general(text)
        if general.count("…") > text.count("…"):
            yield (
                f"without its facts {text!r} reads {general!r}; put them into parentheses, behind "
                f"a colon or into a sentence of their own"
            )


def _guards(rule: WrittenRule) -> Iterator[str]:
    """Lines whose removal changes no example's verdict."""
    given = [example_facts(example.name, example.facts) for example in rule.examples]
    outcomes = _verdicts(rule, given)
    for name, without in _reduced(rule):
        if _verdicts(without, given) == outcomes:
            yield f"no example guards {name}: all give the same verdict without it"


def _verdicts(rule: Rule, given: Iterable[Facts]) -> list[Verdict]:
    return [worst(verdicts(rule, facts)) for facts in given]


def _reduced(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """The rule without each of its condition lines in turn, with the name of that line."""
    for group_name in ("applies", "when"):
        group: Group = getattr(rule, group_name)
        for part in ("all", "any", "none"):
            lines: Sequence[object] = getattr(group, part)
            for index in range(len(lines)):
                rest = (*lines[:index], *lines[index + 1 :])
                smaller = replace(group, **{part: rest})
                yield (
                    f"{group_name}.{part} line {index + 1}",
                    replace(rule, **{group_name: smaller}),
                )
    if rule.platforms:
        yield "platforms", replace(rule, platforms=())


def _references(rule: WrittenRule, known: _Known) -> Iterator[str]:
    if rule.id in known.taken:
        yield "has the id of one of attn-doctor's own rules; choose another name"
    for needed in rule.requires:
        if needed not in known.requires:
            yield f"requires {needed!r}, which is not a rule"
        elif needed == rule.id:
            yield "requires itself"
        elif rule.id in _behind(needed, known.requires):
            # Each would be explained by the other, and neither would be the root cause.
            yield f"requires {needed!r}, which requires it in turn"
    for one in rule.look_alikes:
        if one.named_rule and one.named_rule not in known.requires:
            yield f"look-alike {one.log!r} means {one.means!r}, which is not a rule"
    if known.causes and rule.cause not in known.causes and "cause" not in unfilled(rule):
        yield f"cause {rule.cause!r} is not in tables/causes.toml"


def _unlike(rule: WrittenRule, by_id: Mapping[str, Rule]) -> Iterator[str]:
    """Look-alikes that the rule which they name does not recognise."""
    for one in rule.look_alikes:
        other = by_id.get(one.means)
        if other is not None and not any(_recognising(other, one.log)):
            yield f"look-alike {one.log!r} is not in a symptom of {one.means}"


def _recognising(rule: Rule, log: str) -> Iterator[str]:
    """The patterns of the symptoms that are in a log."""
    return (symptom.pattern for symptom in rule.symptoms if is_in(symptom, log))


def _behind(id: str, requires: Mapping[str, Sequence[str]]) -> set[str]:
    """Every rule that the rule `id` requires, directly or through others."""
    reached: set[str] = set()
    pending = [id]
    while pending:
        for needed in requires.get(pending.pop(), ()):
            if needed not in reached:
                reached.add(needed)
                pending.append(needed)
    return reached


def outcome(rule: Rule, example: Example) -> tuple[Verdict, list[str]]:
    """The worst verdict of a rule on an example's facts, and the commands that it offers."""
    findings = evaluate_rule(rule, example_facts(example.name, example.facts))
    commands = [" ".join(argv) for one in findings for fix in one.fixes for argv in fix.run]
    return worst({finding.verdict for finding in findings}), commands


def example_fault(rule: Rule, example: Example) -> str:
    """How the rule disagrees with an example; empty if it agrees."""
    verdict, commands = outcome(rule, example)
    if verdict.value != example.expect:
        return f"example {example.name!r}: expected {example.expect}, got {verdict.value}"
    if example.run is not None and list(example.run) != commands:
        return f"example {example.name!r}: expected {list(example.run)}, got {commands}"
    return ""


def symptom_fault(symptom: Symptom, line: str) -> str:
    """A sentence if a symptom does not match its example line; else empty."""
    if not is_in(symptom, line):
        return f"symptom {symptom.pattern!r} does not match its own line {line!r}"
    if symptom.frame and frames_of(line.splitlines()) and not is_in(symptom, _called(line)):
        return (
            f"the frames of {line!r} only pass a call on, so `frame` {symptom.frame!r} does not"
            " match below the frame of a program"
        )
    return ""


def _called(log: str) -> str:
    """The log as printed where a program's own code made the call."""
    return f'  File "/app/run.py", line 3, in main\n    run()\n{log}'


def claim_fault(claim: Claim) -> str:
    """A sentence if a claim does not name a source that can be read again; else empty."""
    if claim.how == "open":
        return "" if claim.needs else f"claim {claim.says!r} is open; write what it `needs`"
    pattern, form = _SOURCES[claim.how]
    wrong = [source for source in claim.source if not re.fullmatch(pattern, source)]
    if claim.source and not wrong:
        return ""
    found = f", not {wrong[0]!r}" if wrong else ""
    return f"claim {claim.says!r} needs as `source` {form}{found}"


def worst(verdicts: set[Verdict]) -> Verdict:
    """The verdict that an example expects of several subjects; not applicable without subjects."""
    return next((verdict for verdict in _WORST if verdict in verdicts), Verdict.NOT_APPLICABLE)
