"""Select the passages of a huge log that may hold symptoms, at the speed of a plain search.

Logs repeat themselves: a training run of a gigabyte has a few hundred different words. Each chunk
is reduced to its words, and known words without a keyword are skipped all at once, which costs a
few nanoseconds per byte for any number of symptoms. Only the text around a keyword is searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from attn_doctor.explain.keywords import Keywords
from attn_doctor.explain.log_files import LogChunk

_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
_NO_WORD = bytes(byte for byte in range(256) if byte not in _LETTERS + b" \t\r\n\f\v")
_NO_SHAPE = bytes(byte for byte in range(256) if byte not in _LETTERS + b"\n")
#: Characters kept on either side of a keyword, for patterns of several lines.
_AROUND = 8000
#: Most passages for lines of the same words, and for one keyword.
_SAME, _EACH = 4, 300
#: Bytes of all passages together, and one more for each of so many bytes of the log. They are
#: searched closely. One with many keywords is searched for many symptoms, and counts several times.
_PASSAGES, _BETWEEN = 1 << 19, 32
#: Bytes of words that were not seen before, and one more for each of so many bytes of the log. Text
#: has few of them. Noise consists of them, and to search it takes ten times as long as to skip it.
_NEW, _OLD = 1 << 20, 8
#: Chunks after which lines are forgotten, if fewer than one of so many was known whole.
_TRIED, _REPEATED = 64, 4
#: Most entries of a memory before it is emptied.
_REMEMBERED = 100_000


class Passage(Struct, frozen=True):
    """A stretch of a log that may hold symptoms."""

    first: int
    """Number of its first line."""
    data: bytes
    keywords: frozenset[str]
    """The keywords that led to it."""


class Prefilter:
    """Finds the passages of a log around keywords, while `effort` is true."""

    def __init__(self, keywords: Keywords, effort: object = True) -> None:
        self._keywords = keywords
        self._effort = effort
        self._times_left: dict[str, int] = {}
        self._ignorable: set[bytes] = set()
        self._relevant: dict[bytes, list[str]] = {}
        self._passed: set[bytes] = set()
        self._tried = self._repeated = 0
        self._known: set[bytes] = set()
        self._times: dict[bytes, int] = {}
        self._passages, self._new = _PASSAGES, _NEW
        self.skipped = 0
        """Bytes that were not searched, since a limit was reached."""

    def passages(self, chunks: Iterable[LogChunk]) -> Iterator[Passage]:
        """The passages of a log, which is given chunk by chunk."""
        before, this = b"", LogChunk(1, b"")
        for following in chunks:
            yield from self._around(before, this, following.data)
            before, this = this.data, following
        yield from self._around(before, this, b"")

    def _around(self, before: bytes, chunk: LogChunk, after: bytes) -> Iterator[Passage]:
        self._new += len(chunk.data) // _OLD
        self._passages += len(chunk.data) // _BETWEEN
        if self._passages <= 0 or self._new <= 0 or not self._effort:
            self.skipped += len(chunk.data)
            return
        found = self._offsets(chunk.data)
        if not found:
            return
        head, tail = before[-_AROUND:], after[:_AROUND]
        head = head[head.find(b"\n") + 1 :]
        text = head + chunk.data + tail
        first = chunk.first - head.count(b"\n")
        for start, end, keywords in _spans(found, len(head), len(text)):
            start = text.rfind(b"\n", max(0, start - _AROUND), start) + 1 or start
            end = text.find(b"\n", end, end + _AROUND) + 1 or end
            self._passages -= (end - start) * (1 + len(keywords) // 8)
            yield Passage(first + text.count(b"\n", 0, start), text[start:end], keywords)

    def _offsets(self, data: bytes) -> list[tuple[int, str]]:
        """Offsets of keywords in a chunk, on lines that were not passed often enough."""
        text = data.translate(None, _NO_WORD)
        if self._is_passed(text):
            return []
        words = text.split()
        if self._ignorable.issuperset(words):
            self._pass(text)
            return []
        unknown = set(words) - self._ignorable
        self._learn(unknown - self._relevant.keys())
        keywords = {
            keyword: keyword.encode()
            for word in unknown
            for keyword in self._relevant.get(word, ())
        }
        if not keywords:
            return []
        if b"\r" in data:
            data = data.replace(b"\r", b"\n")
        shapes = data.translate(None, _NO_SHAPE).split(b"\n")
        if self._known.issuperset(shapes):
            self._pass(text)
            return []
        return list(self._places(data, shapes, keywords))

    def _is_passed(self, text: bytes) -> bool:
        """Each line has the words of one that was passed. Lines are fewer than words."""
        if self._tried >= _TRIED and self._repeated * _REPEATED < self._tried:
            return False
        self._tried += 1
        known = self._passed.issuperset(text.split(b"\n"))
        self._repeated += known
        return known

    def _pass(self, text: bytes) -> None:
        """Remember lines that were passed, while the log repeats them."""
        if self._tried < _TRIED or self._repeated * _REPEATED >= self._tried:
            if len(self._passed) > _REMEMBERED:
                self._passed = set()
            self._passed.update(text.split(b"\n"))

    def _places(
        self, data: bytes, shapes: Sequence[bytes], keywords: Mapping[str, bytes]
    ) -> Iterator[tuple[int, str]]:
        lowered = data.lower()
        # A word of noise has letters that are apart in the text.
        keywords = {word: letters for word, letters in keywords.items() if letters in lowered}
        if not keywords:
            return
        offset = 0
        for line, shape in zip(lowered.split(b"\n"), shapes, strict=True):
            if shape not in self._known:
                place = -1
                for keyword, letters in keywords.items():
                    found = line.find(letters)
                    if found >= 0 and self._spend(keyword):
                        place = found
                        yield offset + place, keyword
                self._remember(shape, for_good=place < 0)
            offset += len(line) + 1

    def _remember(self, shape: bytes, *, for_good: bool) -> None:
        """Skip a line without keywords at once, and one with keywords after a few times."""
        if len(self._known) + len(self._times) > _REMEMBERED:
            self._known, self._times, self._passed = set(), {}, set()
        times = self._times.get(shape, 0) + 1
        if for_good or times >= _SAME:
            self._known.add(shape)
        else:
            self._times[shape] = times

    def _learn(self, words: set[bytes]) -> None:
        """Find the keywords in new words; a word with none is ignorable from now on."""
        if not words:
            return
        if len(self._ignorable) + len(self._relevant) > _REMEMBERED:
            self._ignorable, self._relevant = set(), {}
        lowered = [word.lower() for word in words]
        self._new -= sum(map(len, lowered)) + len(lowered)
        found = self._keywords.holding(lowered)
        for word in words if found else ():
            if word.lower() in found:
                keywords = [one for one in self._keywords.inside(word.lower()) if self._has(one)]
                if keywords:
                    self._relevant[word] = keywords
        self._ignorable |= words - self._relevant.keys()

    def _has(self, keyword: str) -> bool:
        """Whether passages are left for a keyword."""
        return self._times_left.get(keyword, _EACH) > 0

    def _spend(self, keyword: str) -> bool:
        """Count a passage; a keyword with too many passages is no longer searched."""
        if not self._has(keyword):
            return False
        left = self._times_left[keyword] = self._times_left.get(keyword, _EACH) - 1
        if not left:
            self._relevant = {}
        return left > 0


def _spans(
    found: Sequence[tuple[int, str]], shift: int, length: int
) -> Iterator[tuple[int, int, frozenset[str]]]:
    """Passages around the offsets, joined where they meet."""
    start = end = -1
    keywords: set[str] = set()
    for place, keyword in found:
        left, right = max(0, place + shift - _AROUND), min(length, place + shift + _AROUND)
        if start >= 0 and left <= end:
            end = right
            keywords.add(keyword)
            continue
        if start >= 0:
            yield start, end, frozenset(keywords)
        start, end, keywords = left, right, {keyword}
    if start >= 0:
        yield start, end, frozenset(keywords)
