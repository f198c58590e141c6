"""An explanation for a person at a terminal: the line, what it means, if it is so, the command."""

from __future__ import annotations

from collections.abc import Iterator

from attn_doctor.explain.explanation import Explanation, Match
from attn_doctor.render.definition_list import fix_lines, labelled
from attn_doctor.render.grouping import plural
from attn_doctor.render.terminal import Paper, clean

#: Remedies and further matches that are shown; the rest is in the JSON.
_FIXES, _FURTHER = 4, 6


def text(found: Explanation, paper: Paper, *, verbose: bool = False) -> str:
    """The whole explanation. `verbose` adds evidence and what the log tells."""
    lines: list[str] = []
    if not found.matches:
        lines += _nothing(found, paper)
    for match in found.matches[:1]:
        lines += _first(match, found, paper, verbose)
    if len(found.matches) > 1:
        lines += ["", paper.style("Also in the log, less likely the root:", "bold")]
        for match in found.matches[1 : _FURTHER + 1]:
            lines += _further(match, found, paper)
    lines += _told(found, paper, verbose)
    lines += _last(found, paper)
    return paper.glyphs("\n".join(lines)) + "\n"


def sure(confidence: float) -> str:
    """A confidence in words; see `Match.confidence`."""
    return (
        "the log names it" if confidence >= 0.8 else "likely" if confidence >= 0.5 else "possible"
    )


def _first(match: Match, found: Explanation, paper: Paper, verbose: bool) -> Iterator[str]:
    yield paper.style(f"{_place(match, found)}:", "dim")
    yield from (paper.style(line, "bold") for line in paper.wrap(clean(match.excerpt), 2))
    yield ""
    rules = ", ".join((match.rule, *match.also))
    title = paper.wrap(clean(match.title), 2)
    yield paper.style("✗", "bold", "red") + " " + paper.style(title[0][2:], "bold")
    yield from (paper.style(line, "bold") for line in title[1:])
    yield from paper.wrap(clean(match.why), 2)
    yield from labelled("here", _verdict(match), paper)
    yield from fix_lines(match.fixes[:_FIXES], found.facts, paper)
    yield from labelled(
        "cause", f"{match.cause}, {sure(match.confidence)}  [{rules}]", paper, "dim"
    )
    if verbose:
        for link in match.evidence:
            yield from labelled("read", link, paper)


def _verdict(match: Match) -> str:
    """The verdict as a sentence."""
    if match.verdict == "not checked":
        return "not checked: only the log was looked at"
    return match.verdict


def _further(match: Match, found: Explanation, paper: Paper) -> Iterator[str]:
    words = f"{_place(match, found)}: {match.title} [{match.rule}; {match.verdict}]"
    first, *rest = paper.wrap(clean(words), 4)
    yield "  - " + first[4:]
    yield from rest


def _place(match: Match, found: Explanation) -> str:
    """Where it stands, in as few words as are needed."""
    file = f"{clean(match.file)}, " if match.file != "standard input" or len(found.logs) > 1 else ""
    rank = f", rank {clean(match.rank)}" if match.rank else ""
    times = f", seen {match.times} times" if match.times > 1 else ""
    return f"{file}line {match.line}{rank}{times}"


def _nothing(found: Explanation, paper: Paper) -> Iterator[str]:
    several = "these logs" if len(found.logs) > 1 else "this log"
    yield paper.style(f"No attention-kernel cause in {several}.", "bold")
    words = f"It shows none of the failures that {plural(found.rules, 'rule')} describe."
    yield from paper.wrap(words, 2)


def _told(found: Explanation, paper: Paper, verbose: bool) -> Iterator[str]:
    if verbose and found.told:
        stated = ", ".join(f"{one.fact} {one.value}" for one in found.told)
        yield from ["", *paper.wrap(clean(f"The log tells: {stated}."), 0)]
    if found.elsewhere:
        differ = "; ".join(
            f"{one.fact} is {one.value} there, {one.here} here" for one in found.elsewhere
        )
        words = f"The log seems to come from another environment: {differ}."
        yield from ["", *paper.wrap(clean(words), 0)]


def _last(found: Explanation, paper: Paper) -> Iterator[str]:
    lines = sum(log.lines for log in found.logs)
    yield ""
    examined = f"{plural(lines, 'line')} read, {plural(found.rules, 'rule')}, {found.seconds:.2f} s"
    yield paper.style(examined, "dim")
    yield from paper.wrap(_next(found), 0)


def _next(found: Explanation) -> str:
    if not found.matches:
        return "Next: `attn-doctor check` looks at the machine itself."
    first = found.matches[0]
    if first.verdict == "not checked":
        return (
            "Next: on the machine of the log, `attn-doctor explain` without --no-probe checks it."
        )
    if any(fix.run or fix.exports for fix in first.fixes):
        return "Next: run the first fix above, then start again what failed."
    return "Next: do what the fix says, then start again what failed."
