"""From logs to an explanation: read, find symptoms, extract facts, evaluate, rank.

A short log is searched from end to end. Of a long one, the first and the last stretch are searched
so, since versions and the final failure are there, and between them the passages that the prefilter
lets through.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, starmap

from msgspec.structs import replace

from attn_doctor.explain.contradictions import contradictions
from attn_doctor.explain.explanation import Explanation, Guess, Log, Note, Passage, RankedCause
from attn_doctor.explain.extract import Confidence, Stated, Statement, facts_from, statements
from attn_doctor.explain.known_lines import KnownLines
from attn_doctor.explain.log_files import LogChunk, chunks, log_name
from attn_doctor.explain.log_machine import conflicts, log_facts
from attn_doctor.explain.normalize import LogLine, NormalizedLog, processes
from attn_doctor.explain.prefilter import Prefilter
from attn_doctor.explain.ranking import rank_causes
from attn_doctor.explain.relevance import LogEnd, log_end, relevant, standing
from attn_doctor.explain.symptom_match import (
    Effort,
    Symptom,
    SymptomIndex,
    SymptomMatch,
    SymptomSearch,
    all_symptoms,
)
from attn_doctor.explain.tracebacks import TraceLog
from attn_doctor.facts import Facts
from attn_doctor.rulebook import library
from attn_doctor.rulebook.rule import Rule

_log = logging.getLogger(__name__)

#: A log up to this size (in bytes) is one stretch; of a longer one, about half of it at each end.
_STRETCH = 1 << 17
#: Bytes that a line counts as at least: to read short ones closely takes longer.
_LINE = 32
#: Bytes of passages of a long log from which facts are extracted as well.
_FACTS = 1 << 18
#: Lines that are kept on each side of a symptom, and symptoms for which they are.
_NEAR, _KEPT = 40, 500
#: The name of a log that was given as a text.
_GIVEN = "the text"
#: Seconds of processor time for reading closely: the ends of a log, the passages between them, and
#: more of those for each byte. Only hostile logs take so long, so that no answer depends on the
#: speed of the machine.
_ENDS, _PASSAGES, _MORE = 1.0, 0.6, 5e-9


def explain(
    paths: Sequence[str],
    rules: Sequence[Rule],
    machine: Facts | Callable[[], Facts] | None = None,
    *,
    texts: Sequence[str] = (),
    against: str = "",
) -> Explanation:
    """The causes of the failures in the logs at `paths` (`-`: standard input), by `rules`.

    `machine`: facts of a machine that confirm or exclude causes; a function is called only if a
    symptom is found. `texts`: logs themselves. `against`: a log of a run that worked; lines that it
    has as well explain nothing. Raises `AttnDoctorError` for a log that cannot be read.
    """
    start = time.perf_counter()
    reader = _Reader(all_symptoms(rules), KnownLines(chunks(against)) if against else None)
    for path in dict.fromkeys(paths):
        reader.read(log_name(path), chunks(path))
    for text in texts:
        reader.read(_GIVEN, iter([LogChunk(1, text.encode())]))
    by_id = {rule.id: rule for rule in rules}
    found = tuple(reader.matches.values())
    _log.debug("%d symptoms in %d logs", len(found), len(reader.logs))
    if callable(machine):
        # A log without a symptom is not worth an examination.
        machine = machine() if found else None
    stated, suspected, before = Stated(), None, found
    unexplained: tuple[str, ...] = ()
    if found:
        stated = facts_from((*reader.statements(), *_groups(found, by_id)))
        found = tuple(relevant(found, by_id, reader.ends))
    if not found and (suspected := reader.guess()) is not None:
        stated = facts_from(reader.statements())
    elif not found:
        found = tuple(standing(before))
        unexplained = _unexplained(reader.ends) if found else ()
    if found:
        from attn_doctor.derived import derive

        stated = stated._replace(facts=derive(stated.facts, library.tables()))
    shown = log_facts(stated, machine)
    probed = machine is not None
    if any(fact.this_machine for fact in shown):
        # The log was written elsewhere: a verdict or a command for this machine would be wrong.
        machine = None
    matches = rank_causes(found, by_id, stated.facts, machine, reader.text())
    if found and not matches:
        suspected = reader.guess()
    return Explanation(
        matches=matches,
        guess=suspected,
        note=None if matches or suspected else reader.note(before, by_id),
        conflicts=(
            *unexplained,
            *conflicts(stated),
            *reader.contradictions(matches, suspected),
        ),
        known_lines=reader.known_lines,
        logs=tuple(reader.logs),
        log_facts=shown,
        facts=_for_commands(matches, by_id, stated.facts if machine is None else machine),
        probed=probed,
        rules=sum(bool(rule.symptoms) for rule in rules),
        passages=reader.passages((*matches, *([suspected] if suspected else []))),
        seconds=time.perf_counter() - start,
    )


def _for_commands(matches: Sequence[RankedCause], rules: dict[str, Rule], facts: Facts) -> Facts:
    """The facts for commands: a cause that only one system can have names that system."""
    platforms = set(rules[matches[0].rule].platforms) if matches else set()
    if facts.system.os is not None or platforms not in ({"windows"}, {"macos"}):
        return facts
    os = "windows" if "windows" in platforms else "macos"
    return replace(facts, system=replace(facts.system, os=os))


def _unexplained(ends: Iterable[LogEnd]) -> tuple[str, ...]:
    """That the failures in which the logs end have another cause."""
    return tuple(
        f"The log ends in another failure (line {end.last}), which this does not explain."
        for end in ends
        if end.last
    )


def _groups(matches: Iterable[SymptomMatch], rules: dict[str, Rule]) -> Iterator[Statement]:
    """Facts in the named groups of symptoms; the message itself is the most reliable source."""
    for match in matches:
        facts = rules[match.rule].symptoms[match.symptom].facts
        for group, value in match.groups.items():
            if group in facts:
                yield Statement(facts[group], value, Confidence.DIRECT, line=match.line)


class _Reader:
    """Reads logs and keeps their symptoms."""

    def __init__(self, symptoms: Sequence[Symptom], known: KnownLines | None = None) -> None:
        self.matches: dict[tuple[str, str, int, int], SymptomMatch] = {}
        self._stretches: list[NormalizedLog] = []
        self._last: dict[str, NormalizedLog] = {}
        self._near: dict[tuple[str, int], list[LogLine]] = {}
        self.logs: list[Log] = []
        self.ends: list[LogEnd] = []
        self._index = SymptomIndex(symptoms)
        self._known = known

    @property
    def known_lines(self) -> int:
        """Lines that were left out, because a run that worked printed them too."""
        return 0 if self._known is None else self._known.dropped

    def text(self) -> str:
        """The stretches of the logs from which facts are extracted, each below its processes."""
        return "\n".join(
            text for log in self._stretches for text in (*processes(log.lines), log.text)
        )

    def statements(self) -> Iterator[Statement]:
        """What the logs state about the machine, with the numbers of the lines."""
        for log in self._stretches:
            for statement in statements(log.text):
                number = log.lines[log.index_at(statement.offset)].number
                yield statement._replace(line=number)

    def contradictions(
        self, matches: Sequence[RankedCause], suspected: Guess | None
    ) -> tuple[str, ...]:
        """Statements that contradict each other, in a log with a failure."""
        return contradictions(self._stretches) if matches or suspected is not None else ()

    def guess(self) -> Guess | None:
        """A guess at the end of the first log that fails in a component."""
        from attn_doctor.explain.guess import guess

        return next(filter(None, starmap(guess, self._last.items())), None)

    def note(self, found: Sequence[SymptomMatch], rules: dict[str, Rule]) -> Note | None:
        """A notice that did not stop the run, if a rule or a component knows one."""
        from attn_doctor.explain.notes import of_components, of_rules

        notes = starmap(of_components, self._last.items())
        return of_rules(found, rules) or next(filter(None, notes), None)

    def read(self, name: str, stream: Iterator[LogChunk]) -> None:
        """Read one log."""
        ends, passages = Effort(_ENDS), Effort(_PASSAGES)
        head = list(_up_to(stream, _STRETCH))
        rest = next(stream, None)
        if rest is None:
            skipped = self._search(name, head, None, ends, facts=True, last=True)
            size = sum(len(chunk.data) for chunk in head)
            self._count(name, head[-1] if head else LogChunk(1, b""), size, skipped)
            return
        skipped = self._search(name, head, None, passages, facts=True, last=False)
        tail = _Tail(chain(head, [rest], stream), passages)
        by_keyword = self._index.by_keyword
        prefilter = Prefilter(self._index.keywords, passages)
        facts = _FACTS
        for passage in prefilter.passages(tail):
            symptoms = dict.fromkeys(s for word in passage.keywords for s in by_keyword[word])
            chunk = LogChunk(passage.first, passage.data)
            skipped += self._search(name, [chunk], symptoms, passages, facts=facts > 0, last=False)
            facts -= len(passage.data)
        skipped += self._search(name, tail.kept, None, ends, facts=True, last=True)
        self._count(name, tail.kept[-1], tail.bytes, prefilter.skipped + skipped)

    def _search(
        self,
        name: str,
        parts: Sequence[LogChunk],
        symptoms: Iterable[Symptom] | None,
        effort: Effort,
        *,
        facts: bool,
        last: bool,
    ) -> int:
        """Find symptoms in neighbouring chunks; return the bytes that were not searched for all.

        `symptoms`: None for all. `facts`: extract facts from the chunks as well.
        """
        if not parts:
            return 0
        data = b"".join(part.data for part in parts)
        log = NormalizedLog(parts[0].first, data)
        if facts:
            self._stretches.append(log)
        if self._known is not None:
            log = self._known.without(log)
        possible = self._index.possible(log) if symptoms is None else symptoms
        with effort:
            search = SymptomSearch(log, possible, effort)
        skipped = 0 if search.complete else len(data)
        if last:
            self._last[name] = log
        # The end of a log decides about symptoms anywhere in it.
        if not search and not (last and self.matches):
            return skipped
        trace = TraceLog(log.lines, log.stepped)
        if last:
            self.ends.append(log_end(name, trace))
        for match in search.matches(trace, name, last=last):
            key = (match.rule, name, match.symptom, match.line)
            if last or key not in self.matches:
                # The end of the log is read last, and only there the last failure is known.
                self.matches[key] = match
            if (name, match.line) not in self._near and len(self._near) < _KEPT:
                self._near[name, match.line] = _near(log, match.line)
        return skipped

    def passages(self, found: Iterable[RankedCause | Guess]) -> tuple[Passage, ...]:
        """The lines around what was found, for each log in their order."""
        lines: dict[str, dict[int, str]] = {}
        for one in found:
            near = self._near.get((one.file, one.line))
            if near is None and one.file in self._last:
                near = _near(self._last[one.file], one.line)
            for line in near or ():
                lines.setdefault(one.file, {}).setdefault(line.number, line.text)
        return tuple(Passage(file, tuple(sorted(of.items()))) for file, of in lines.items())

    def _count(self, name: str, last: LogChunk, size: int, skipped: int = 0) -> None:
        lines = last.first - 1 + last.data.count(b"\n") + (last.data[-1:] not in (b"\n", b""))
        self.logs.append(Log(name, lines, size, min(size, skipped)))


class _Tail:
    """Passes chunks on, keeps the last of them, and allows more effort for each."""

    def __init__(self, stream: Iterable[LogChunk], effort: Effort) -> None:
        self._stream = stream
        self._effort = effort
        self.kept: list[LogChunk] = []
        self.bytes = 0

    def __iter__(self) -> Iterator[LogChunk]:
        size = 0
        for chunk in self._stream:
            self.kept.append(chunk)
            self.bytes += len(chunk.data)
            self._effort.add(_MORE * len(chunk.data))
            size += _weight(chunk)
            while len(self.kept) > 1 and size - _weight(self.kept[0]) >= _STRETCH // 2:
                size -= _weight(self.kept.pop(0))
            yield chunk


def _near(log: NormalizedLog, number: int) -> list[LogLine]:
    """The lines around the one with this number; none if it is elsewhere."""
    index = next((at for at, line in enumerate(log.lines) if line.number == number), None)
    return [] if index is None else log.lines[max(0, index - _NEAR) : index + _NEAR + 1]


def _up_to(stream: Iterator[LogChunk], size: int) -> Iterator[LogChunk]:
    while size > 0 and (chunk := next(stream, None)) is not None:
        size -= _weight(chunk)
        yield chunk


def _weight(chunk: LogChunk) -> int:
    """The time that it takes to read a chunk closely, in bytes of common lines."""
    return max(len(chunk.data), _LINE * chunk.ends)
