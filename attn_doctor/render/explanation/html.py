"""An explanation as a page: the cause, its fixes, and the log with the cause marked in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attn_doctor.explain.explanation import Explanation, Guess, Note, Passage, RankedCause
from attn_doctor.explain.fact_words import value
from attn_doctor.render.explanation.text import (
    confidence_in_words,
    guess_in_words,
    note_in_words,
    stated,
    verdict,
)
from attn_doctor.render.findings.summary import caveats
from attn_doctor.render.grouping import plural, rules_for
from attn_doctor.render.html.elements import (
    Html,
    fixes,
    link,
    listed,
    pairs,
    prose,
    rule_name,
    rule_names,
    section,
    tag,
)
from attn_doctor.render.html.page import page


def html(found: Explanation) -> str:
    """The whole page."""
    first, *rest = found.matches or (None,)
    lines = sum(log.lines for log in found.logs)
    return page(
        "explain",
        _verdict(found),
        f"{plural(lines, 'line')} read, {rules_for(found.rules, 'logs')}",
        [
            section("Cause", *_cause(first, found)) if first else Html(""),
            section("Guess", *_guess(found.guess, found)) if found.guess else Html(""),
            section("Note", *_note(found.note)) if found.note else Html(""),
            section("In the log", *(_passage(one, found) for one in found.passages)),
            section(
                "Also in the log, less likely the root cause",
                listed(_further(one) for one in rest if one),
            ),
            section("Facts in the log", _facts(found)),
            section("Limits", listed(map(prose, (*found.conflicts, *caveats(found.facts))))),
        ],
    )


def _verdict(found: Explanation) -> Html:
    if found.matches:
        return tag("strong", f"✗ {found.matches[0].title}", class_="state wrong")
    if found.guess:
        return tag("strong", f"? {found.guess.title}", class_="state unknown")
    return tag("strong", "No attention-kernel cause in this log.")


def _cause(match: RankedCause, found: Explanation) -> Iterator[Html]:
    yield tag("p", prose(match.why, found.facts))
    yield from fixes(match.fixes, found.facts_for(match))
    cause = f"`{match.cause}`, {confidence_in_words(match.confidence)}"
    yield pairs([("check", [verdict(match, found)]), ("cause", [cause])])
    yield tag("p", prose("Rule"), Html(" "), rule_names((match.rule, *match.also)), class_="muted")
    yield listed(map(link, match.evidence))


def _guess(guess: Guess, found: Explanation) -> Iterator[Html]:
    yield tag("p", prose(guess_in_words(guess)))
    yield from fixes(guess.fixes, found.facts)
    seen = (("found", guess.seen), ("wanted", guess.wanted), ("component", guess.component))
    yield pairs((name, [value]) for name, value in seen if value)


def _note(note: Note) -> Iterator[Html]:
    yield tag("p", f"{note.file}, line {note.line}:")
    yield tag("pre", note.excerpt)
    yield tag("p", prose(" ".join(note_in_words(note))))


def _passage(passage: Passage, found: Explanation) -> Html:
    """Numbered lines. A cause has a note above it, so that colour alone does not mark it."""
    causes: dict[int, str] = {}
    for number, one in enumerate(found.matches):
        if one.file == passage.file:
            causes.setdefault(one.line, f"{'Also' if number else 'Cause'}: {one.title}")
    if found.guess and found.guess.file == passage.file:
        causes[found.guess.line] = f"Guess: {found.guess.title}"
    return tag(
        "div",
        tag("h3", passage.file),
        tag(
            "ol",
            *_lines(passage, causes),
            class_="log",
            tabindex="0",
            aria_label=f"lines of {passage.file}",
        ),
    )


def _lines(passage: Passage, causes: Mapping[int, str]) -> Iterator[Html]:
    last = passage.lines[0][0] - 1 if passage.lines else 0
    if last:
        yield tag("li", f"… {plural(last, 'line')} above", class_="left")
    for number, words in passage.lines:
        if number > last + 1:
            yield tag("li", f"… {plural(number - last - 1, 'line')} left out", class_="left")
        last = number
        label = tag("span", str(number), class_="number")
        if number in causes:
            note = tag("span", causes[number], class_="note")
            yield tag("li", label, note, class_="cause")
            yield tag("li", label, tag("mark", words), class_="cause")
        else:
            yield tag("li", label, tag("span", words))


def _further(match: RankedCause) -> Html:
    place = tag("span", f"{match.file}, line {match.line}:")
    verdict = tag("span", match.verdict)
    return Html(f"{place} {prose(match.title)} [{rule_name(match.rule)}; {verdict}]")


def _facts(found: Explanation) -> Html:
    return listed(
        prose(
            stated(fact)
            + (f" (line {fact.line})" if fact.line else "")
            + (f"; here it is {value(fact.fact, fact.this_machine)}" if fact.this_machine else "")
        )
        for fact in found.log_facts
    )
