"""An explanation as Markdown, to answer an issue with. Text from the log cannot become markup."""

from __future__ import annotations

from collections.abc import Iterator

from attn_doctor._version import __version__
from attn_doctor.explain.explanation import Explanation, Guess, Note, RankedCause
from attn_doctor.render.explanation.text import (
    confidence_in_words,
    guess_in_words,
    note_in_words,
    stated,
)
from attn_doctor.render.findings.markdown import escape, fenced, fix_lines, prose
from attn_doctor.render.findings.summary import caveats
from attn_doctor.render.grouping import rules_for
from attn_doctor.rulebook.pages import page


def markdown(found: Explanation) -> str:
    """The whole explanation."""
    lines = [f"### attn-doctor {__version__} explain", ""]
    if found.guess is not None:
        lines += _guess(found.guess, found)
    elif not found.matches:
        lines += [f"No attention-kernel cause in this log ({rules_for(found.rules, 'logs')}).", ""]
        lines += _note(found.note) if found.note is not None else ()
    for number, match in enumerate(found.matches):
        lines += _match(match, found) if not number else _further(match)
    if found.matches and found.log_facts:
        facts = ", ".join(escape(stated(fact)) for fact in found.log_facts)
        lines += ["", f"Facts in the log: {facts}"]
    for sentence in caveats(found.facts):
        lines += ["", f"> {escape(sentence)}"]
    return "\n".join(lines).rstrip() + "\n"


def _match(match: RankedCause, found: Explanation) -> Iterator[str]:
    yield f"**{prose(match.title)}**"
    yield ""
    yield f"{escape(match.file)}, line {match.line}:"
    yield ""
    yield from (*fenced("", match.excerpt.splitlines()), "")
    yield f"{prose(match.why)}"
    yield ""
    yield f"- {prose(match.verdict)}"
    yield f"- cause `{match.cause}`, {confidence_in_words(match.confidence)}; rule `{match.rule}`"
    if address := page(match.rule):
        yield f"- page: <{address}>"
    yield f"- evidence: {' · '.join(f'<{link}>' for link in match.evidence)}"
    yield ""
    yield from fix_lines(match.fixes, found.facts_for(match))


def _guess(guess: Guess, found: Explanation) -> Iterator[str]:
    yield f"**{prose(guess.title)}**"
    yield ""
    yield f"{escape(guess.file)}, line {guess.line}:"
    yield ""
    yield from (*fenced("", guess.excerpt.splitlines()), "")
    yield f"{prose(guess_in_words(guess))}"
    yield ""
    for label, value in (("found", guess.seen), ("wanted", guess.wanted)):
        if value:
            yield f"- {label}: {escape(value)}"
    yield f"- component `{guess.component}`, cause unknown"
    yield ""
    yield from fix_lines(guess.fixes, found.facts)


def _note(note: Note) -> Iterator[str]:
    yield f"{escape(note.file)}, line {note.line}:"
    yield ""
    yield from (*fenced("", note.excerpt.splitlines()), "")
    yield " ".join(map(prose, note_in_words(note)))


def _further(match: RankedCause) -> Iterator[str]:
    yield (
        f"- also line {match.line}: {prose(match.title)} (cause `{match.cause}`, rule"
        f" `{match.rule}`, {prose(match.verdict)})"
    )
