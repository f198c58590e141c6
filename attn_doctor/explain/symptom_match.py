"""Symptoms of rules in a log: which occur, on which lines, and how much each says."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache, partial

from msgspec import Struct

from attn_doctor.explain.keywords import Keywords
from attn_doctor.explain.log_signals import log_signals
from attn_doctor.explain.normalize import NormalizedLog, processes
from attn_doctor.explain.other_software import Raised, is_of_other_software, raised
from attn_doctor.explain.tracebacks import LineKind, Position, TraceLog
from attn_doctor.redact import redact
from attn_doctor.rulebook.patterns import keyword, plain_length, ways
from attn_doctor.rulebook.rule import Rule, Way
from attn_doctor.rulebook.symptom_text import is_raised_by, may_be_message, one_blank

#: Occurrences of one symptom in a stretch of a log that are used.
_MOST = 100
#: A line at most this far before a failure may be its reason: kernels say why they refuse.
_NEAR = 12
#: Distance to the last failure where it is not known, because more of the log follows.
UNKNOWN_DISTANCE = 1_000_000
#: Lines beside a line, or a failure, in which the other patterns of a symptom may match, and lines
#: of one failure that count.
_BESIDE, _FAILURE = 30, 400
#: Lines of a traceback between a `raise` and its message.
_MESSAGE = 60
#: Characters of a line that are shown.
_EXCERPT = 160
#: Characters on either side of a match that are searched for secrets.
_AROUND = 2000
#: The part of a long line that says what became of the failure.
_SAID = 400
#: A text up to this length is searched as a whole; a longer one around a pattern's plain text.
_SHORT = 16_000
#: A text up to this length is searched for each plain text; a longer one for all words at once.
_BY_TEXT = 1 << 16

# Weights of the score. They were chosen by hand so that the first match has the right cause in the
# logs of tests/logs, and are not probabilities.
#: Most that a symptom's own text adds, for a pattern with `_FULL_TEXT` characters of plain text.
_TEXT = 0.25
_FULL_TEXT = 45
#: Subtracted for a message with many possible reasons.
_GENERAL = 0.2
#: An exception: the first of a chain, one with the earlier as its direct cause, another later one.
_ROOT, _DIRECT, _LATER = 0.2, 0.02, 0.08
#: Subtracted for an exception that is not in the last failure of its process.
_EARLIER_FAILURE = 0.1
#: A frame, a C++ stack, or how a build ends.
_NOISE = -0.12
#: Other lines: not before another failure, shortly before one, long before one.
_OTHERS = {
    LineKind.ERROR: (0.14, 0.1, 0.02),
    LineKind.WARNING: (0.05, 0.0, -0.1),
    LineKind.TEXT: (0.08, 0.03, -0.05),
}


class Symptom:
    """One symptom of one rule. Its pattern is compiled only once its plain text has been found."""

    def __init__(self, rule: Rule, index: int) -> None:
        self.rule = rule
        self.index = index
        self.pattern = rule.symptoms[index].pattern
        self.near = rule.symptoms[index].near
        self.absent = rule.symptoms[index].absent
        self.without = rule.symptoms[index].without
        self.ways = rule.symptom_ways[index] if rule.symptom_ways else ways(self.pattern)

    @cached_property
    def others(self) -> tuple[re.Pattern[str], ...]:
        """The compiled patterns that must match in the same failure."""
        return tuple(map(re.compile, self.near))

    @cached_property
    def excluded(self) -> tuple[re.Pattern[str], ...]:
        """The compiled patterns that must not match in the same failure."""
        return tuple(map(re.compile, self.absent))

    @cached_property
    def specificity(self) -> int:
        """Characters of plain text that a match contains, with its other patterns."""
        return sum(map(plain_length, (self.pattern, *self.near)))

    @cached_property
    def keywords(self) -> tuple[str, ...]:
        """Words of which each log with the symptom contains one, unless it is `wordless`."""
        return tuple(dict.fromkeys(filter(None, map(keyword, self._texts))))

    @property
    def wordless(self) -> bool:
        """Some of its texts have no word."""
        texts = self._texts
        return not all(way.needs for way in self.ways) or not all(map(keyword, texts))

    @property
    def _texts(self) -> list[str]:
        return [text for way in self.ways for text in (way.needs[0] if way.needs else ())]


class SymptomMatch(Struct, frozen=True, kw_only=True):
    """A symptom of a rule on one line of a log."""

    rule: str
    symptom: int
    file: str
    line: int
    rank: str
    """The process that wrote the line, if the log says so."""
    excerpt: str
    said: str
    """The line, of a long one the part around the symptom: it may say that the run goes on."""
    position: Position
    final: bool
    """The line belongs to the last failure of its process."""
    distance: int
    """Lines between this one and the last failure that it does not belong to; 0 if none follows."""
    general: bool
    """The line reports a failure without its reason."""
    specificity: float
    """How much the symptom says, from 0 to 1, by the plain text that it requires."""
    quiet: bool = False
    """Its logger shows the line only to who looks for faults of the program."""
    groups: dict[str, str] = {}
    """Text of the named groups of the pattern."""

    @property
    def score(self) -> float:
        """What the match adds to the confidence in its rule; the root of a failure adds most."""
        return _TEXT * self.specificity + self._position_score() - _GENERAL * self.general

    def _position_score(self) -> float:
        kind = self.position.kind
        if kind is LineKind.NOISE:
            return _NOISE
        if kind in (LineKind.EXCEPTION, LineKind.MESSAGE):
            first = self.position.link == 0
            score = _ROOT if first else _DIRECT if self.position.direct else _LATER
            return score if self.final else score - _EARLIER_FAILURE
        last, near, far = _OTHERS[kind]
        return last if not self.distance else near if self.distance <= _NEAR else far


def all_symptoms(rules: Iterable[Rule]) -> tuple[Symptom, ...]:
    """Every symptom of the rules."""
    return tuple(Symptom(rule, index) for rule in rules for index in range(len(rule.symptoms)))


class SymptomIndex:
    """Symptoms by the words of their plain text."""

    def __init__(self, symptoms: Sequence[Symptom]) -> None:
        self._all = symptoms

    @cached_property
    def by_keyword(self) -> dict[str, list[Symptom]]:
        """The symptoms of each word. A short log is read without it."""
        found: dict[str, list[Symptom]] = {}
        for symptom in self._all:
            for word in symptom.keywords:
                found.setdefault(word, []).append(symptom)
        return found

    @cached_property
    def keywords(self) -> Keywords:
        """All words, to search for them at once."""
        return Keywords(self.by_keyword)

    def possible(self, log: NormalizedLog) -> Sequence[Symptom]:
        """The symptoms that can be in the log, by its words."""
        if len(log.text) <= _BY_TEXT:
            return self._all
        found = self.keywords.in_text("\n".join(log.lowered))
        return [one for one in self._all if one.wordless or not found.isdisjoint(one.keywords)]


class Effort:
    """Processor time that may still be spent inside `with` blocks.

    What a pattern costs depends on the text: a hostile log takes a thousand times as long.
    """

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._start: float | None = None

    def __enter__(self) -> None:
        self._start = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self._left -= self._spent()
        self._start = None

    def __bool__(self) -> bool:
        """Whether some is left."""
        return self._spent() < self._left

    def add(self, seconds: float) -> None:
        """Allow more."""
        self._left += seconds

    def _spent(self) -> float:
        return 0.0 if self._start is None else time.thread_time() - self._start


class SymptomSearch:
    """The symptoms that occur in a stretch of a log, before their positions are known."""

    def __init__(self, log: NormalizedLog, symptoms: Iterable[Symptom], effort: Effort) -> None:
        self._log = log
        self._effort = effort
        self._plain = _PlainTexts(log)
        self._occurrences: list[tuple[Symptom, re.Match[str], range]] = []
        self.complete = True
        """False if no effort was left for some symptoms."""
        for symptom in symptoms:
            possible = tuple(filter(self._plain.have, symptom.ways))
            if possible:
                if not self._goes_on():
                    break
                self._occurrences += self._find(symptom, possible)

    def __bool__(self) -> bool:
        return bool(self._occurrences)

    def matches(self, trace: TraceLog, file: str, *, last: bool) -> Iterator[SymptomMatch]:
        """The matches with their positions. `last`: the stretch is the end of the log."""
        signals = log_signals()
        vicinity = _Vicinity(trace)
        for symptom, found, lines in self._occurrences:
            index = _deciding_line(lines, found[0], trace)
            beside = vicinity.found(symptom.others, index)
            if beside is None or vicinity.has(symptom.excluded, index):
                continue
            exception = vicinity.raised_at(index)
            if exception is not None and not _is_raised_by(symptom, exception):
                continue
            line = trace.lines[index]
            yield SymptomMatch(
                rule=symptom.rule.id,
                symptom=symptom.index,
                file=file,
                line=line.number,
                rank=line.rank,
                excerpt=excerpt(line.text, found[0]),
                said=_around(line.text.strip(), found[0], _SAID),
                position=trace.positions[index],
                final=last and trace.is_final(index),
                distance=trace.distance(index) if last else UNKNOWN_DISTANCE,
                quiet=line.quiet,
                general=signals.general.search(line.text) is not None,
                specificity=min(1.0, min(symptom.specificity, len(found[0]) + beside) / _FULL_TEXT),
                groups={name: value for name, value in found.groupdict().items() if value},
            )

    def _find(
        self, symptom: Symptom, possible: Sequence[Way]
    ) -> list[tuple[Symptom, re.Match[str], range]]:
        """Occurrences in the lines as they are, or else in lines that were joined."""
        for form, text in enumerate((self._log.text, *self._log.joined)):
            found = [
                (symptom, match, lines)
                for match, lines in self._search(form, text, possible)
                if not symptom.without or may_be_message(symptom.without, text, *match.span())
                # One within a line was excluded by the pattern before the lines were joined.
                if not form or len(lines) > 1
            ]
            if found:
                return found
        return []

    def _search(
        self, form: int, text: str, possible: Sequence[Way]
    ) -> Iterator[tuple[re.Match[str], range]]:
        """Matches in a form of the log, with the lines that each covers."""
        regex = _compiled("|".join(way.pattern for way in possible))
        reach = max(way.reach for way in possible)
        left = _MOST
        for start, end in self._plain.around(form, possible, reach):
            while start < end and left and self._goes_on():
                # In pieces, since one search can take long.
                stop = min(end, start + _SHORT)
                for match in regex.finditer(text, start, min(end, stop + reach)):
                    if match.start() >= stop or not left:
                        break
                    left -= 1
                    stop = max(stop, match.end())
                    yield match, self._lines(form, match)
                start = stop

    def _lines(self, form: int, match: re.Match[str]) -> range:
        index_at = self._log.index_at if not form else partial(self._log.index_in, form - 1)
        last = max(match.start(), match.end() - 1)
        return range(index_at(match.start()), index_at(last) + 1)

    def _goes_on(self) -> bool:
        """Whether effort is left."""
        self.complete = self.complete and bool(self._effort)
        return self.complete


def _is_raised_by(symptom: Symptom, exception: Raised) -> bool:
    """The exception can be one of the symptom's rule, by the frame that raised it."""
    asked = symptom.rule.symptoms[symptom.index]
    if asked.frame and exception.frame is not None:
        return is_raised_by(asked, exception.frame)
    return not is_of_other_software(symptom.rule, exception)


class _Vicinity:
    """The text around a line: the failure that it belongs to, and the lines beside it."""

    def __init__(self, trace: TraceLog) -> None:
        self._trace = trace
        self._texts: dict[range, str] = {}
        self._raised: dict[tuple[int, int], Raised] = {}

    def found(self, patterns: Sequence[re.Pattern[str]], index: int) -> int | None:
        """Characters that the patterns match around a line; None if one of them does not."""
        if not patterns:
            return 0
        text = self._text(self._lines(index))
        matches = [pattern.search(text) for pattern in patterns]
        return sum(len(one[0]) for one in matches if one) if all(matches) else None

    def has(self, patterns: Sequence[re.Pattern[str]], index: int) -> bool:
        """Whether one of the patterns matches around a line."""
        if not patterns:
            return False
        text = self._text(self._lines(index))
        return any(pattern.search(text) for pattern in patterns)

    def raised_at(self, index: int) -> Raised | None:
        """The exception that a line belongs to; None if it belongs to none."""
        at = self._trace.positions[index]
        if at.failure < 0:
            return None
        link = (at.failure, at.link)
        if link not in self._raised:
            self._raised[link] = raised(
                [
                    (line.text, position)
                    for line, position in zip(self._trace.lines, self._trace.positions, strict=True)
                    if (position.failure, position.link) == link
                ]
            )
        return self._raised[link]

    def _lines(self, index: int) -> range:
        first, last = self._failures.get(self._trace.positions[index].failure, (index, index))
        first, last = max(first, index - _FAILURE), min(last, index + _FAILURE)
        return range(max(0, first - _BESIDE), min(len(self._trace.lines), last + _BESIDE + 1))

    def _text(self, lines: range) -> str:
        if lines not in self._texts:
            there, signals = [self._trace.lines[at] for at in lines], log_signals()
            texts = (line.text for line in there if not signals.listed.search(line.text))
            self._texts[lines] = one_blank("\n".join((*processes(there), *texts)))
        return self._texts[lines]

    @cached_property
    def _failures(self) -> dict[int, tuple[int, int]]:
        """The first and the last line of each failure, by its number."""
        found: dict[int, tuple[int, int]] = {}
        for index, position in enumerate(self._trace.positions):
            if position.failure >= 0:
                found[position.failure] = (found.get(position.failure, (index, 0))[0], index)
        return found


class _PlainTexts:
    """Where the plain texts of patterns are in a log. Offsets are those of its forms."""

    def __init__(self, log: NormalizedLog) -> None:
        self._log = log
        self._known: dict[str, bool] = {}
        self._counts: dict[str, int] = {}

    def have(self, way: Way) -> bool:
        """Whether the log has one text of each choice that a match needs."""
        # A loop, as each log is asked for all ways: a generator for each would take twice as long.
        for texts in way.needs:  # noqa: SIM110
            if not any(map(self._has, texts)):
                return False
        return True

    def around(self, form: int, possible: Sequence[Way], reach: int) -> Iterator[tuple[int, int]]:
        """The stretches of whole lines, from and to an offset, in which a match can be."""
        lowered = self._log.lowered[form]
        if not all(way.needs for way in possible) or (reach and len(lowered) <= _SHORT):
            yield 0, len(lowered)
        elif reach:
            yield from _beside(lowered, self._rarest(possible), reach)
        else:
            lines = (
                self._log.joined_lines[form - 1]
                if form
                else _beside(lowered, self._rarest(possible), reach)
            )
            for start, end in lines:
                line = lowered[start:end]
                if any(holds(line, way) for way in possible):
                    yield start, end

    def _rarest(self, possible: Sequence[Way]) -> Iterable[str]:
        """One choice of texts of each way: each match has one of them."""
        return dict.fromkeys(
            text for way in possible for text in min(way.needs, key=self._times, default=())
        )

    def _has(self, text: str) -> bool:
        known = self._known.get(text)
        if known is None:
            known = text in self._log.lowered[0] or text in self._log.only_joined
            self._known[text] = known
        return known

    def _times(self, texts: Iterable[str]) -> int:
        return sum(map(self._count, texts))

    def _count(self, text: str) -> int:
        count = self._counts.get(text)
        if count is None:
            count = self._counts[text] = self._log.lowered[0].count(text)
        return count


def holds(text: str, way: Way) -> bool:
    """Whether a text in lower case has one text of each choice that a match needs."""
    return all(any(one in text for one in texts) for texts in way.needs)


def _beside(lowered: str, texts: Iterable[str], reach: int) -> Iterator[tuple[int, int]]:
    """The stretches of whole lines around the texts, which do not overlap."""
    places = {text: place for text in texts if (place := lowered.find(text)) >= 0}
    start = end = 0
    while places:
        place = min(places.values())
        left = lowered.rfind("\n", 0, max(0, place - reach)) + 1
        right = lowered.find("\n", place + reach)
        right = right if right >= 0 else len(lowered)
        if left > end:
            if end:
                yield start, end
            start = left
        end = right
        # What lies before this is covered.
        covered = max(place + 1, end - reach)
        places = {
            text: following
            for text, at in places.items()
            if (following := at if at >= covered else lowered.find(text, covered)) >= 0
        }
    if end > start:
        yield start, end


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _deciding_line(covered: range, matched: str, trace: TraceLog) -> int:
    """Index of the line that is nearest to the reason, of those that a match covers.

    A traceback shows the `raise` with the words of the message; the message itself is taken.
    """
    positions, lines = trace.positions, trace.lines
    index = max(covered, key=lambda number: (positions[number].kind, number))
    if positions[index].kind is not LineKind.NOISE:
        return index
    words = re.split(r"[\"'(]", matched.rsplit("\n", 1)[-1])[-1].strip()
    for later in range(index + 1, min(index + _MESSAGE, len(lines))):
        if positions[later].kind >= LineKind.MESSAGE and words and words in lines[later].text:
            return later if positions[later].failure == positions[index].failure else index
    return index


def excerpt(text: str, matched: str) -> str:
    """The line, trimmed around the matched text.

    It is redacted first, because nothing recognises half a token.
    """
    text = text.strip()
    if len(text) <= _EXCERPT:
        return text
    text = redact(_around(text, matched, _AROUND))
    parts = (part.strip() for part in matched.split("\n"))
    part = next((part for part in parts if part and part in text), "")
    start = max(0, text.find(part) - 40) if part else 0
    end = min(len(text), start + _EXCERPT)
    start = max(0, end - _EXCERPT)
    return ("…" if start else "") + text[start:end].strip() + ("…" if end < len(text) else "")


def _around(text: str, matched: str, width: int) -> str:
    begin = max(0, text.find(matched.split("\n", maxsplit=1)[0].strip()) - width)
    return text[begin : begin + 2 * width]
