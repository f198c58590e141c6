"""From logs to an explanation: read, find symptoms, learn what is told, judge, rank.

A short log is one page and is read from end to end. Of a long one, the first and the last stretch
are read so, since that is where versions and the final failure stand, and between them the passages
that the sieve lets through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct

from attn_doctor.explain.explanation import Explanation, Log
from attn_doctor.explain.extract import WITNESS, Statement, statements
from attn_doctor.explain.log_facts import facts_from
from attn_doctor.explain.log_files import Block, blocks, name_of
from attn_doctor.explain.match import (
    Hit,
    Watched,
    hits,
    watched,
)
from attn_doctor.explain.normalize import Page
from attn_doctor.explain.prefilter import Sieve
from attn_doctor.explain.ranking import ranked
from attn_doctor.explain.symptom_match import (
    Ending,
    Sighting,
    ending,
    sighting,
)
from attn_doctor.explain.tracebacks import Course
from attn_doctor.facts import Facts
from attn_doctor.rulebook.rule import Rule

#: A log up to this size is one page; of a longer one, so much at each end is.
_PAGE = 1 << 17
#: Passages of a long log that are searched for facts as well.
_TELLING = 100


class _Reader:
    """Reads logs and keeps what they show."""

    def __init__(self, symptoms: Sequence[Watched]) -> None:
        self.symptoms = symptoms
        self.seen: dict[tuple[str, str, int, int], Sighting] = {}
        self.texts: list[str] = []
        self.logs: list[Log] = []
        self.endings: list[Ending] = []
        self._patterns = {(one.rule.id, one.index): one.symptom.pattern for one in symptoms}
        self._by_keyword: dict[str, list[Watched]] = {}
        for one in symptoms:
            for word in one.keywords:
                self._by_keyword.setdefault(word, []).append(one)

    def read(self, path: str) -> None:
        """Read one log."""
        name = name_of(path)
        stream = blocks(path)
        head = list(_up_to(stream, _PAGE))
        rest = next(stream, None)
        if rest is None:
            self._page(name, head, self.symptoms, tell=True, last=True)
            self._count(name, head[-1] if head else Block(1, b""), sum(len(b.data) for b in head))
            return
        self._page(name, head, self.symptoms, tell=True, last=False)
        tail = _Tail(chain(head, [rest], stream))
        for number, passage in enumerate(Sieve(self._by_keyword).passages(tail)):
            words = [one for word in passage.keywords for one in self._by_keyword[word]]
            page = [Block(passage.first, passage.data)]
            self._page(name, page, dict.fromkeys(words), tell=number < _TELLING, last=False)
        self._page(name, tail.kept, self.symptoms, tell=True, last=True)
        self._count(name, tail.kept[-1], tail.bytes)

    def _page(
        self,
        name: str,
        parts: Sequence[Block],
        symptoms: Iterable[Watched],
        *,
        tell: bool,
        last: bool,
    ) -> None:
        if not parts:
            return
        page = Page(parts[0].first, b"".join(part.data for part in parts))
        found = hits(page, symptoms)
        if tell:
            self.texts.append(page.text)
        if not found and not last:
            return
        course = Course(page.lines)
        if last:
            self.endings.append(ending(name, course))
        for hit in found:
            one = sighting(hit, self._pattern(hit), course, file=name, last=last)
            place = (one.rule, name, one.symptom, one.line)
            if last or place not in self.seen:
                # The end of the log is read last, and knows how the log ends.
                self.seen[place] = one

    def _pattern(self, hit: Hit) -> str:
        return self._patterns[hit.rule, hit.symptom]

    def _count(self, name: str, last: Block, size: int) -> None:
        lines = last.first - 1 + last.data.count(b"\n") + (last.data[-1:] not in (b"\n", b""))
        self.logs.append(Log(name, lines, size))


class _Tail:
    """Passes blocks on and keeps the last of them."""

    def __init__(self, stream: Iterable[Block]) -> None:
        self._stream = stream
        self.kept: list[Block] = []
        self.bytes = 0

    def __iter__(self) -> Iterator[Block]:
        size = 0
        for block in self._stream:
            self.kept.append(block)
            self.bytes += len(block.data)
            size += len(block.data)
            while len(self.kept) > 1 and size - len(self.kept[0].data) >= _PAGE // 2:
                size -= len(self.kept.pop(0).data)
            yield block


def _up_to(stream: Iterator[Block], size: int) -> Iterator[Block]:
    while size > 0 and (block := next(stream, None)) is not None:
        size -= len(block.data)
        yield block


class Reading(Struct, frozen=True):
    """What some logs show, before it is judged."""

    seen: tuple[Sighting, ...]
    told: tuple[Statement, ...]
    logs: tuple[Log, ...]
    endings: tuple[Ending, ...]


def read(paths: Sequence[str], rules: Sequence[Rule]) -> Reading:
    """Read the logs at `paths`. Raises `AttnDoctorError` for one that cannot be read."""
    reader = _Reader(watched(rules))
    for path in dict.fromkeys(paths):
        reader.read(path)
    by_id = {rule.id: rule for rule in rules}
    seen = tuple(reader.seen.values())
    told = (*_told(reader.texts), *_told_by_symptoms(seen, by_id)) if seen else ()
    return Reading(seen, told, tuple(reader.logs), tuple(reader.endings))


def explanation(
    reading: Reading,
    rules: Sequence[Rule],
    tables: Callable[[], Mapping[str, Any]],
    machine: Facts | None = None,
) -> Explanation:
    """What the logs mean. `machine`: facts to hold the causes against, if any.

    `tables` is called only if there is something to look up.
    """
    return ranked(
        reading.seen,
        {rule.id: rule for rule in rules},
        facts_from(reading.told, tables) if reading.seen else (Facts(), set()),
        tables,
        machine,
        reading.logs,
        reading.endings,
    )


def _told(texts: Iterable[str]) -> Iterator[Statement]:
    for text in texts:
        yield from statements(text)


def _told_by_symptoms(seen: Iterable[Sighting], rules: Mapping[str, Rule]) -> Iterator[Statement]:
    """Facts in the named groups of symptoms; the message itself is the best witness."""
    for one in seen:
        facts = rules[one.rule].symptoms[one.symptom].facts
        for group, value in one.groups.items():
            if group in facts:
                yield Statement(facts[group], value, WITNESS)
