"""A line about attention, or about its environment, that did not stop the run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from attn_doctor.explain.components import component_table
from attn_doctor.explain.explanation import Note
from attn_doctor.explain.log_signals import log_signals
from attn_doctor.explain.normalize import LogLine, NormalizedLog
from attn_doctor.explain.symptom_match import SymptomMatch, excerpt
from attn_doctor.explain.tracebacks import LineKind, TraceLog
from attn_doctor.facts import ELEMENTS, Facts
from attn_doctor.rulebook.evaluate import FactLookup
from attn_doctor.rulebook.rule import Rule
from attn_doctor.rulebook.texts import fill_known

#: Words by which a line says that a part does not work, or is not used.
_LACKS = re.compile(
    r"(?i:\bfail(?:ed|s|ure)\b|\bnot (?:be )?(?:compiled|available|supported|found|installed|used"
    r"|enabled|built)\b|\bunavailable\b|\bunsupported\b|\bdisabl(?:ed|ing)\b"
    r"|\bfall(?:ing|s)?[ -]?back"
    r"|\bcannot\b|\bcould not\b|\bincompatible\b|\bmissing\b|\bwithout\b)"
)


def of_rules(matches: Sequence[SymptomMatch], rules: Mapping[str, Rule]) -> Note | None:
    """The notice that says most, of those that rules know."""
    signals = log_signals()
    said = (
        one
        for one in matches
        if rules[one.rule].advisory is None
        and not any(
            each.search(one.said) for each in (signals.quoted, signals.passed, signals.benign)
        )
    )
    best = max(said, key=lambda one: (one.score, -one.line), default=None)
    if best is None:
        return None
    rule = rules[best.rule]
    return Note(
        component=rule.id.partition("/")[0],
        file=best.file,
        line=best.line,
        excerpt=best.excerpt,
        rank=best.rank,
        rule=rule.id,
        title=fill_known(
            rule.title, FactLookup(Facts(), ELEMENTS.get(rule.for_each, ""), partial=True)
        ),
    )


def of_components(name: str, log: NormalizedLog) -> Note | None:
    """The first warning that a component of attention does not work, or is not used."""
    for line in _warnings(TraceLog(log.lines)):
        for one in component_table().component:
            if not one.attention and one.is_named_in(line.text):
                return _note(name, line, one.id, one.name)
        for part in component_table().outside:
            if part.named_in(line.text):
                return _note(name, line, part.id, part.name)
        if component_table().gpu_fails(line.text):
            for framework in component_table().framework:
                if framework.is_named_in(line.text):
                    return _note(name, line, framework.id, framework.name)
    return None


def _warnings(trace: TraceLog) -> Iterator[LogLine]:
    signals = log_signals()
    for line, position in zip(trace.lines, trace.positions, strict=True):
        warns = position.kind in (LineKind.WARNING, LineKind.ERROR) and position.failure < 0
        if not warns or not _LACKS.search(line.text):
            continue
        if not any(one.search(line.text) for one in (signals.quoted, signals.benign)):
            yield line


def _note(name: str, line: LogLine, component: str, called: str) -> Note:
    return Note(
        component=component,
        file=name,
        line=line.number,
        excerpt=excerpt(line.text, line.text.strip()),
        rank=line.rank,
        title=f"The line is about {called}",
    )
