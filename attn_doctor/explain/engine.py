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

from attn_doctor.explain.explanation import Explanation, Guess, Log
from attn_doctor.explain.extract import Confidence, Stated, Statement, facts_from, statements
from attn_doctor.explain.guess import guess
from attn_doctor.explain.log_files import LogChunk, chunks, log_name
from attn_doctor.explain.log_machine import log_facts
from attn_doctor.explain.normalize import NormalizedLog
from attn_doctor.explain.prefilter import Prefilter
from attn_doctor.explain.ranking import LogEnd, log_end, rank_causes, relevant
from attn_doctor.explain.symptom_match import Symptom, SymptomMatch, SymptomSearch, all_symptoms
from attn_doctor.explain.tracebacks import TraceLog
from attn_doctor.facts import Facts
from attn_doctor.rulebook import library
from attn_doctor.rulebook.rule import Rule

_log = logging.getLogger(__name__)

#: A log up to this size (in bytes) is one stretch; of a longer one, about half of it at each end.
_STRETCH = 1 << 17
#: Passages of a long log from which facts are extracted as well.
_FACT_PASSAGES = 100


def explain(
    paths: Sequence[str],
    rules: Sequence[Rule],
    machine: Facts | Callable[[], Facts] | None = None,
) -> Explanation:
    """The causes of the failures in the logs at `paths` (`-`: standard input), by `rules`.

    `machine`: facts of a machine that confirm or exclude causes; a function is called only if a
    symptom is found. Raises `AttnDoctorError` for a log that cannot be read.
    """
    start = time.perf_counter()
    reader = _Reader(all_symptoms(rules))
    for path in dict.fromkeys(paths):
        reader.read(path)
    by_id = {rule.id: rule for rule in rules}
    found = tuple(reader.matches.values())
    _log.debug("%d symptoms in %d logs", len(found), len(reader.logs))
    if callable(machine):
        # A log without a symptom is not worth an examination.
        machine = machine() if found else None
    stated = Stated()
    if found:
        stated = facts_from((*reader.statements(), *_groups(found, by_id)))
        found = tuple(relevant(found, by_id, reader.ends))
    if found:
        from attn_doctor.derived import derive

        stated = stated._replace(facts=derive(stated.facts, library.tables()))
    shown = log_facts(stated, machine)
    probed = machine is not None
    if any(fact.this_machine for fact in shown):
        # The log was written elsewhere: a verdict or a command for this machine would be wrong.
        machine = None
    matches = rank_causes(found, by_id, stated.facts, machine, reader.text())
    return Explanation(
        matches=matches,
        guess=None if matches else reader.guess(),
        logs=tuple(reader.logs),
        log_facts=shown,
        facts=stated.facts if machine is None else machine,
        probed=probed,
        rules=sum(bool(rule.symptoms) for rule in rules),
        seconds=time.perf_counter() - start,
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

    def __init__(self, symptoms: Sequence[Symptom]) -> None:
        self.matches: dict[tuple[str, str, int, int], SymptomMatch] = {}
        self._stretches: list[NormalizedLog] = []
        self._last: dict[str, NormalizedLog] = {}
        self.logs: list[Log] = []
        self.ends: list[LogEnd] = []
        self._symptoms = symptoms
        self._by_keyword: dict[str, list[Symptom]] = {}
        for symptom in symptoms:
            for word in symptom.keywords:
                self._by_keyword.setdefault(word, []).append(symptom)

    def text(self) -> str:
        """The stretches of the logs from which facts are extracted."""
        return "\n".join(log.text for log in self._stretches)

    def statements(self) -> Iterator[Statement]:
        """What the logs state about the machine, with the numbers of the lines."""
        for log in self._stretches:
            for statement in statements(log.text):
                number = log.lines[log.index_at(statement.offset)].number
                yield statement._replace(line=number)

    def guess(self) -> Guess | None:
        """A guess at the end of the first log that fails in a component."""
        return next(filter(None, starmap(guess, self._last.items())), None)

    def read(self, path: str) -> None:
        """Read one log."""
        name = log_name(path)
        stream = chunks(path)
        head = list(_up_to(stream, _STRETCH))
        rest = next(stream, None)
        if rest is None:
            self._search(name, head, self._symptoms, facts=True, last=True)
            size = sum(len(chunk.data) for chunk in head)
            self._count(name, head[-1] if head else LogChunk(1, b""), size)
            return
        self._search(name, head, self._symptoms, facts=True, last=False)
        tail = _Tail(chain(head, [rest], stream))
        prefilter = Prefilter(self._by_keyword)
        for number, passage in enumerate(prefilter.passages(tail)):
            symptoms = [s for word in passage.keywords for s in self._by_keyword[word]]
            chunk = LogChunk(passage.first, passage.data)
            facts = number < _FACT_PASSAGES
            self._search(name, [chunk], dict.fromkeys(symptoms), facts=facts, last=False)
        self._search(name, tail.kept, self._symptoms, facts=True, last=True)
        self._count(name, tail.kept[-1], tail.bytes, prefilter.skipped)

    def _search(
        self,
        name: str,
        parts: Sequence[LogChunk],
        symptoms: Iterable[Symptom],
        *,
        facts: bool,
        last: bool,
    ) -> None:
        """Find symptoms in neighbouring chunks. `facts`: extract facts from them as well."""
        if not parts:
            return
        log = NormalizedLog(parts[0].first, b"".join(part.data for part in parts))
        search = SymptomSearch(log, symptoms)
        if facts:
            self._stretches.append(log)
        if last:
            self._last[name] = log
        # The end of a log decides about symptoms anywhere in it.
        if not search and not (last and self.matches):
            return
        trace = TraceLog(log.lines)
        if last:
            self.ends.append(log_end(name, trace))
        for match in search.matches(trace, name, last=last):
            key = (match.rule, name, match.symptom, match.line)
            if last or key not in self.matches:
                # The end of the log is read last, and only there the last failure is known.
                self.matches[key] = match

    def _count(self, name: str, last: LogChunk, size: int, skipped: int = 0) -> None:
        lines = last.first - 1 + last.data.count(b"\n") + (last.data[-1:] not in (b"\n", b""))
        self.logs.append(Log(name, lines, size, skipped))


class _Tail:
    """Passes chunks on and keeps the last of them."""

    def __init__(self, stream: Iterable[LogChunk]) -> None:
        self._stream = stream
        self.kept: list[LogChunk] = []
        self.bytes = 0

    def __iter__(self) -> Iterator[LogChunk]:
        size = 0
        for chunk in self._stream:
            self.kept.append(chunk)
            self.bytes += len(chunk.data)
            size += len(chunk.data)
            while len(self.kept) > 1 and size - len(self.kept[0].data) >= _STRETCH // 2:
                size -= len(self.kept.pop(0).data)
            yield chunk


def _up_to(stream: Iterator[LogChunk], size: int) -> Iterator[LogChunk]:
    while size > 0 and (chunk := next(stream, None)) is not None:
        size -= len(chunk.data)
        yield chunk
