"""A rule as a page for a terminal: what is wrong, how it appears in a log, how to fix it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attn_doctor.findings import Advisory
from attn_doctor.render.grouping import plural
from attn_doctor.render.terminal import Terminal, clean
from attn_doctor.rulebook.conditions import Condition
from attn_doctor.rulebook.programs import with_options
from attn_doctor.rulebook.rule import FixFile, Group, Rule
from attn_doctor.rulebook.texts import (
    commands,
    facts_named,
    named,
    phrase,
    phrases,
)

COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}
#: What the safety of a fix means.
SAFETY = {"auto": "harmless, can be undone", "ask": "asks first", "manual": "by hand"}
SYSTEMS = {"linux": "Linux", "windows": "Windows", "macos": "macOS", "wsl": "WSL"}
_LABEL = 15


def rule_text(
    rule: Rule,
    terminal: Terminal,
    *,
    meaning: str = "",
    explains: Sequence[str] = (),
    facts: dict[str, str] | None = None,
    file: str = "",
) -> str:
    """The page. `meaning` is the cause's, `explains` the rules that this one explains.

    `facts` has a sentence for each fact; `file` is the path of the rule.
    """
    lines = [
        *_top(rule, terminal),
        *_keys(rule, terminal, meaning, explains),
        *_conditions("Applies where", rule.applies, terminal),
        *_conditions("Is a problem if", rule.when, terminal),
        *_advisory(rule, terminal),
        *_symptoms(rule, terminal),
        *_fixes(rule, terminal),
        *_facts(rule, terminal, facts or {}),
        *_evidence(rule, terminal, file),
    ]
    return terminal.page(lines).rstrip("\n") + "\n"


def cause_text(cause: str, meaning: str, rules: Sequence[Rule], terminal: Terminal) -> str:
    """A cause and its rules."""
    lines = [terminal.style(cause, "bold")]
    lines += ["", *terminal.wrap(clean(meaning), 2)] if meaning else []
    lines += ["", terminal.style(plural(len(rules), "rule"), "bold")]
    for rule in rules:
        lines += _hanging(rule.id, named(rule.title), terminal, "  ")
    lines += ["", "`attn-doctor rules show ID` shows one of them."] if rules else []
    return terminal.page(lines)


def _top(rule: Rule, terminal: Terminal) -> Iterator[str]:
    colour = COLOURS[rule.severity]
    yield f"{terminal.style(rule.id, 'bold')}  {terminal.code(rule.severity, 'bold', colour)}"
    yield ""
    yield from (terminal.style(line, "bold") for line in terminal.wrap(clean(named(rule.title)), 0))
    yield ""
    yield from terminal.wrap(clean(named(rule.why)), 2)
    yield ""


def rule_keys(rule: Rule, explains: Sequence[str]) -> Iterator[tuple[str, Sequence[str], bool]]:
    """Labels with their values, without empty ones; true where the values are identifiers."""
    rows = (
        ("affects", rule.backends, True),
        ("on", [SYSTEMS[platform] for platform in rule.platforms], False),
        ("evaluated for", [f"each of {rule.for_each}"] if rule.for_each else [], False),
        ("follows from", rule.requires, True),
        ("explains", explains, True),
    )
    return (row for row in rows if row[1])


def _keys(rule: Rule, terminal: Terminal, meaning: str, explains: Sequence[str]) -> Iterator[str]:
    yield from _labelled("cause", f"{rule.cause}: {meaning}" if meaning else rule.cause, terminal)
    for label, values, _ in rule_keys(rule, explains):
        yield from _labelled(label, ", ".join(values), terminal)
    yield ""


def _conditions(heading: str, group: Group, terminal: Terminal) -> Iterator[str]:
    every, some = phrases(group)
    if not every and not some:
        return
    yield terminal.style(heading, "bold")
    yield from _listed(every, terminal)
    if some:
        yield "  and at least one of these holds:" if every else "  at least one of these holds:"
        yield from _listed(some, terminal, "    ")
    yield ""


def advisory_keys(advisory: Advisory) -> Iterator[tuple[str, Sequence[str]]]:
    """Labels with their values, without empty ones."""
    calls = list(advisory.calls)
    if advisory.sometimes:
        calls.append("and what no condition can say")
    rows = (
        ("effect", [advisory.effect]),
        ("calls", calls),
        ("in words", [advisory.where] if advisory.where else []),
        ("fixed by", [advisory.fixed or "no release yet"]),
        ("seen by us", advisory.seen or ["not run by us"]),
        ("reported", advisory.reported),
    )
    return (row for row in rows if row[1])


def _advisory(rule: Rule, terminal: Terminal) -> Iterator[str]:
    if rule.advisory is None:
        return
    yield terminal.style("Wrong results without an error", "bold")
    for label, values in advisory_keys(rule.advisory):
        for number, value in enumerate(values):
            yield from _labelled("" if number else label, value, terminal)
    yield ""
    if rule.advisory.reproducer:
        yield terminal.style("Program that shows it", "bold")
        for line in rule.advisory.reproducer.strip().splitlines():
            yield "      " + terminal.code(clean(line), "green")
        yield ""


def _symptoms(rule: Rule, terminal: Terminal) -> Iterator[str]:
    if not rule.symptoms:
        return
    yield terminal.style("Appears in a log as", "bold")
    for symptom in rule.symptoms:
        # Not wrapped: a reader searches the log for the line.
        for line in symptom.lines[0].splitlines():
            yield f"  {terminal.code(clean(line.rstrip()))}"
    yield ""


def _fixes(rule: Rule, terminal: Terminal) -> Iterator[str]:
    if not rule.fixes:
        return
    yield terminal.style("Fix", "bold")
    for number, fix in enumerate(rule.fixes):
        if number:
            yield "  or"
        yield from _fix(rule, number, fix, terminal)
        yield ""


def _fix(rule: Rule, number: int, fix: FixFile, terminal: Terminal) -> Iterator[str]:
    fix = with_options(fix) if fix.instead_of else fix
    notes = [SAFETY[fix.safety], *([f"needs {fix.needs}"] if fix.needs else [])]
    yield from terminal.wrap(clean(named(f"{fix.title} ({'; '.join(notes)})")), 2)
    if rule.fix_when[number]:
        yield from terminal.wrap(f"where: {_joined(rule.fix_when[number], terminal)}", 4)
    for pattern in fix.printed:
        yield from terminal.wrap(f"where the log matches `{clean(pattern)}`", 4)
    if fix.manual:
        yield from terminal.wrap(clean(named(fix.manual)), 4)
    # Code and commands are never wrapped, so that they can be copied.
    for command in (*fix.code.splitlines(), *commands(fix)):
        yield "      " + terminal.code(clean(command), "green")
    if rule.fix_done[number]:
        yield from terminal.wrap(f"done when: {_joined(rule.fix_done[number], terminal)}", 4)
    if fix.clears:
        yield from terminal.wrap(f"makes these caches stale: {', '.join(fix.clears)}", 4)


def _joined(lines: Iterable[Condition], terminal: Terminal) -> str:
    return f" {terminal.say('and')} ".join(terminal.say(phrase(one)) for one in lines)


def _facts(rule: Rule, terminal: Terminal, sentences: dict[str, str]) -> Iterator[str]:
    names = [name for name in facts_named(rule) if sentences.get(name)]
    if not names:
        return
    yield terminal.style("Facts in use", "bold")
    for name in names:
        yield from _hanging(name, sentences[name].replace("`", ""), terminal, "  ")
    yield ""


def _evidence(rule: Rule, terminal: Terminal, file: str) -> Iterator[str]:
    yield terminal.style(f"Evidence, read on {rule.checked.isoformat()}", "bold")
    yield from (f"  {clean(link)}" for link in rule.evidence)
    if file:
        yield from ("", terminal.style(f"File: {clean(file)}", "dim"))


def _listed(lines: Iterable[str], terminal: Terminal, indent: str = "  ") -> Iterator[str]:
    for line in lines:
        yield from terminal.beside(f"{indent}- ", line, len(indent) + 2)


def _labelled(label: str, words: str, terminal: Terminal) -> Iterator[str]:
    head = f"  {terminal.style(terminal.pad(label, _LABEL), 'dim')}"
    yield from terminal.beside(head, words, _LABEL + 2)


def _hanging(name: str, words: str, terminal: Terminal, indent: str) -> Iterator[str]:
    """A name and its text: beside it if both fit in a line, else below."""
    plain = f"{indent}{name}  {clean(words)}"
    if len(plain) <= terminal.width:
        yield f"{indent}{terminal.style(name, 'bold')}  {clean(words)}"
        return
    yield indent + terminal.style(name, "bold")
    yield from terminal.wrap(clean(words), len(indent) + 2)
