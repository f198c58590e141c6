"""An explanation for a terminal: the line, its meaning, whether facts confirm it, the command."""

from __future__ import annotations

from collections.abc import Iterator

from attn_doctor.explain.explanation import (
    Confirmation,
    Explanation,
    Guess,
    LogFact,
    Note,
    RankedCause,
)
from attn_doctor.explain.fact_words import label, value
from attn_doctor.explain.wanted import check_of
from attn_doctor.render.definition_list import fix_lines, labelled
from attn_doctor.render.findings.summary import caveats
from attn_doctor.render.grouping import plural, rules_for
from attn_doctor.render.humanize import size
from attn_doctor.render.terminal import Terminal, clean
from attn_doctor.rulebook.pages import page
from attn_doctor.shell.commands import shell_of
from attn_doctor.shell.quote import join

#: Fixes and further causes that are shown; the JSON has all.
_FIXES, _FURTHER = 4, 6


def text(found: Explanation, terminal: Terminal, *, verbose: bool = False) -> str:
    """The whole explanation. `verbose` adds evidence and the facts of the log."""
    lines: list[str] = []
    if found.guess is not None:
        lines += _guess(found.guess, found, terminal)
    elif not found.matches:
        lines += _nothing(found, terminal)
    for match in found.matches[:1]:
        lines += _first(match, found, terminal, verbose)
    if len(found.matches) > 1:
        lines += ["", terminal.style("Also in the log, less likely the root cause:", "bold")]
        for match in found.matches[1 : _FURTHER + 1]:
            lines += _further(match, found, terminal)
    lines += _facts(found, terminal, verbose)
    for sentence in caveats(found.facts):
        lines += terminal.marked("i", sentence, "bold", "cyan")
    lines += _last(found, terminal)
    return terminal.page(lines)


def confidence_in_words(confidence: float) -> str:
    """A confidence in words; see `Match.confidence`."""
    return (
        "the log names it" if confidence >= 0.8 else "likely" if confidence >= 0.5 else "possible"
    )


def _first(
    match: RankedCause, found: Explanation, terminal: Terminal, verbose: bool
) -> Iterator[str]:
    yield terminal.style(f"{_place(match, found)}:", "dim")
    yield from (terminal.style(line, "bold") for line in terminal.quote(clean(match.excerpt), 2))
    yield ""
    rules = ", ".join((match.rule, *match.also))
    title = terminal.wrap(clean(match.title), 2)
    yield terminal.style("✗", "bold", "red") + " " + terminal.style(title[0][2:], "bold")
    yield from (terminal.style(line, "bold") for line in title[1:])
    yield from terminal.wrap(clean(match.why), 2)
    yield from labelled("check", verdict(match, found), terminal)
    yield from fix_lines(match.fixes[:_FIXES], found.facts_for(match), terminal)
    yield from labelled(
        "cause",
        f"{match.cause}, {confidence_in_words(match.confidence)}  [{rules}]",
        terminal,
        "dim",
    )
    if address := page(match.rule):
        yield from labelled("page", address, terminal)
    if verbose:
        for link in match.evidence:
            yield from labelled("source", link, terminal)


def _guess(guess: Guess, found: Explanation, terminal: Terminal) -> Iterator[str]:
    yield terminal.style(f"{_place(guess, found)}:", "dim")
    yield from (terminal.style(line, "bold") for line in terminal.quote(clean(guess.excerpt), 2))
    yield ""
    title = terminal.wrap(clean(guess.title), 2)
    yield terminal.style("?", "bold", "yellow") + " " + terminal.style(title[0][2:], "bold")
    yield from (terminal.style(line, "bold") for line in title[1:])
    yield from terminal.wrap(clean(guess_in_words(guess)), 2)
    for name, words in (("found", guess.seen), ("wanted", guess.wanted)):
        if words:
            yield from labelled(name, clean(words), terminal)
    yield from fix_lines(guess.fixes[:_FIXES], found.facts, terminal, label="try")
    yield from labelled("cause", f"unknown  [{guess.component}, {guess.kind}]", terminal, "dim")


def guess_in_words(guess: Guess) -> str:
    """How the guess was made, as sentences."""
    words = "This is a guess from the traceback and the message; no rule knows this failure."
    if guess.frame:
        words += f" It comes from {guess.frame}."
    if guess.source:
        words += f" The sources have the message in {guess.source}."
    if guess.condition:
        code, holds = check_of(guess.condition)
        words += f" The code {'wants' if holds else 'refuses'} `{code}`."
    return words


def verdict(match: RankedCause, found: Explanation) -> str:
    """The verdict as a sentence."""
    if match.confirmation is Confirmation.NOT_CHECKED:
        if found.probed and found.differences:
            return "not checked: the log comes from another environment"
        return "not checked: only the log was read"
    return match.verdict


def _further(match: RankedCause, found: Explanation, terminal: Terminal) -> Iterator[str]:
    place, title = terminal.say(f"{_place(match, found)}:"), terminal.say(match.title)
    behind = " " if place.endswith(":") else ""  # a full-width colon has its own space
    words = f"{place}{behind}{title} {terminal.say(f'[{match.rule}; {match.verdict}]')}"
    yield from terminal.beside("  - ", words, 4)


def _place(match: RankedCause | Guess | Note, found: Explanation) -> str:
    """The file, if there are several, and the line."""
    file = (
        f"{clean(match.file)}, "
        if match.file not in ("standard input", "the text") or len(found.logs) > 1
        else ""
    )
    named = "" if "pid=" in match.rank else "rank "
    rank = f", {named}{clean(match.rank)}" if match.rank else ""
    seen = match.times if isinstance(match, RankedCause) else 1
    times = f", seen {seen} times" if seen > 1 else ""
    return f"{file}line {match.line}{rank}{times}"


def _nothing(found: Explanation, terminal: Terminal) -> Iterator[str]:
    several = "these logs" if len(found.logs) > 1 else "this log"
    yield terminal.style(f"No attention-kernel cause in {several}.", "bold")
    words = f"It shows no failure that one of {rules_for(found.rules, 'logs')} describes."
    yield from terminal.wrap(words, 2)
    if found.note is not None:
        yield ""
        yield terminal.style(f"{_place(found.note, found)}:", "dim")
        yield from terminal.quote(clean(found.note.excerpt), 2)
        for sentence in note_in_words(found.note):
            yield from terminal.wrap(clean(sentence), 2)


def note_in_words(note: Note) -> Iterator[str]:
    """What a line says that did not stop the run, as sentences."""
    yield f"{note.title}."
    yield "A run can go on after such a line."
    if note.rule:
        yield f"`attn-doctor explain {note.rule}` says more."


def _facts(found: Explanation, terminal: Terminal, verbose: bool) -> Iterator[str]:
    if verbose and found.log_facts:
        facts = ", ".join(
            stated(fact) + (f" (line {fact.line})" if fact.line else "") for fact in found.log_facts
        )
        yield from ["", *terminal.wrap(clean(f"Facts in the log: {facts}."), 0)]
    for sentence in found.conflicts:
        yield from ["", *terminal.wrap(clean(sentence), 0)]
    if found.differences:
        differ = "; ".join(
            f"{stated(fact)} in the log, {value(fact.fact, fact.this_machine)} here"
            for fact in found.differences
        )
        words = f"The log seems to come from another environment: {differ}."
        yield from ["", *terminal.wrap(clean(words), 0)]


def stated(fact: LogFact) -> str:
    """A fact of the log in a user's words: `torch 2.9.1+cu128`."""
    return f"{label(fact.fact)} {value(fact.fact, fact.value)}"


def _last(found: Explanation, terminal: Terminal) -> Iterator[str]:
    lines = sum(log.lines for log in found.logs)
    yield ""
    of_rules = f"{rules_for(found.rules, 'logs')}, {found.seconds:.2f} s"
    examined = f"{plural(lines, 'line')} read, {of_rules}"
    yield terminal.style(examined, "dim")
    if found.known_lines:
        words = (
            f"{plural(found.known_lines, 'line')} left out: the run that worked printed them too."
        )
        yield from terminal.wrap(words, 0)
    skipped = sum(log.skipped for log in found.logs)
    if skipped:
        words = f"{size(skipped)} were not searched for every symptom: noise, or too many symptoms."
        yield from terminal.wrap(words, 0)
    yield from terminal.wrap(_next(found), 0)


def _next(found: Explanation) -> str:
    if found.guess is not None:
        return "Next: try the advice above, or run `attn-doctor check` to examine the machine."
    if not found.matches:
        return "Next: run `attn-doctor check` to examine the machine itself."
    if found.again:
        return f"Next: run `{join(found.again, shell_of())}`."
    first = found.matches[0]
    if not first.fixes:
        return "Next: run `attn-doctor check` to examine the machine itself."
    if first.confirmation is Confirmation.NOT_CHECKED:
        where = "on the machine of the log"
        if found.probed:
            return f"Next: run `attn-doctor explain` {where}."
        return f"Next: run `attn-doctor explain` without --no-probe {where}."
    if any(fix.run or fix.exports for fix in first.fixes):
        return "Next: apply the first fix above, then repeat the command that failed."
    return "Next: follow the fix above, then repeat the command that failed."
