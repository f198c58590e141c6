"""Which lines of a huge log are worth reading closely, at the pace of a plain search.

Logs repeat themselves: a training run of a gigabyte is written with a few hundred words. Each block
is reduced to its words, and words seen before that cannot belong to a symptom are passed over all
at once, which costs a few nanoseconds a byte however many symptoms there are. Only the surroundings
of a word that a symptom needs are looked at as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from attn_doctor.explain.log_files import Block

_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
_NO_WORD = bytes(byte for byte in range(256) if byte not in _LETTERS + b" \t\r\n\f\v")
_NO_SHAPE = bytes(byte for byte in range(256) if byte not in _LETTERS + b"\n")
#: Text kept on either side of a word, for patterns that look around.
_AROUND = 8000
#: So often a line of the same words is read closely, and so many passages for one keyword.
_SAME, _EACH = 4, 300
#: Memories are emptied beyond this size.
_REMEMBERED = 100_000


class Passage(Struct, frozen=True):
    """A stretch of a log that may hold symptoms."""

    first: int
    """Number of its first line."""
    data: bytes
    keywords: frozenset[str]
    """The keywords that led to it."""


class Sieve:
    """Finds the passages of a log around keywords."""

    def __init__(self, keywords: Iterable[str]) -> None:
        self._left = dict.fromkeys(keywords, _EACH)
        self._dull: set[bytes] = set()
        self._telling: dict[bytes, list[str]] = {}
        self._known: set[bytes] = set()
        self._times: dict[bytes, int] = {}
        self._renew()

    def passages(self, blocks: Iterable[Block]) -> Iterator[Passage]:
        """The passages of a log, given block by block."""
        before, this = b"", Block(1, b"")
        for following in blocks:
            yield from self._around(before, this, following.data)
            before, this = this.data, following
        yield from self._around(before, this, b"")

    def _around(self, before: bytes, block: Block, after: bytes) -> Iterator[Passage]:
        found = self._found(block.data)
        if not found:
            return
        head, tail = before[-_AROUND:], after[:_AROUND]
        head = head[head.find(b"\n") + 1 :]
        text = head + block.data + tail
        first = block.first - head.count(b"\n")
        for start, end, keywords in _spans(found, len(head), len(text)):
            start = text.rfind(b"\n", max(0, start - _AROUND), start) + 1 or start
            end = text.find(b"\n", end, end + _AROUND) + 1 or end
            yield Passage(first + text.count(b"\n", 0, start), text[start:end], keywords)

    def _found(self, data: bytes) -> list[tuple[int, str]]:
        """Places of keywords in a block, on lines that are not known well enough."""
        words = data.translate(None, _NO_WORD).split()
        if self._dull.issuperset(words):
            return []
        keywords: dict[str, bytes] = {}
        for word in set(words) - self._dull:
            keywords.update((one, one.encode()) for one in self._keywords_in(word))
        return list(self._places(data, keywords)) if keywords else []

    def _places(self, data: bytes, keywords: Mapping[str, bytes]) -> Iterator[tuple[int, str]]:
        if b"\r" in data:
            data = data.replace(b"\r", b"\n")
        shapes = data.translate(None, _NO_SHAPE).split(b"\n")
        if self._known.issuperset(shapes):
            return
        offset = 0
        for line, shape in zip(data.lower().split(b"\n"), shapes, strict=True):
            if shape not in self._known:
                place = -1
                for one, letters in keywords.items():
                    found = line.find(letters)
                    if found >= 0 and self._spend(one):
                        place = found
                        yield offset + place, one
                self._remember(shape, for_good=place < 0)
            offset += len(line) + 1

    def _remember(self, shape: bytes, *, for_good: bool) -> None:
        """A line without keywords is known at once, one with them after a few times."""
        if len(self._known) + len(self._times) > _REMEMBERED:
            self._known, self._times = set(), {}
        times = self._times.get(shape, 0) + 1
        if for_good or times >= _SAME:
            self._known.add(shape)
        else:
            self._times[shape] = times

    def _keywords_in(self, word: bytes) -> list[str]:
        """The keywords that a word contains; a word with none is dull from now on."""
        known = self._telling.get(word)
        if known is not None:
            return known
        text = word.decode("ascii").lower()
        found = []
        if self._any is not None and self._any.search(text):
            found = [one for one in self._left if one in text]
        if len(self._dull) + len(self._telling) > _REMEMBERED:
            self._dull, self._telling = set(), {}
        if found:
            self._telling[word] = found
        else:
            self._dull.add(word)
        return found

    def _spend(self, one: str) -> bool:
        """Count a passage; a keyword that has had its share is no longer looked for."""
        if one not in self._left:
            return False
        self._left[one] -= 1
        if self._left[one] > 0:
            return True
        del self._left[one]
        self._renew()
        return False

    def _renew(self) -> None:
        """Learn the words anew, since fewer keywords are looked for."""
        parts = sorted(map(re.escape, self._left))
        self._any = re.compile("|".join(parts)) if parts else None
        self._telling = {}


def _spans(
    found: Sequence[tuple[int, str]], shift: int, length: int
) -> Iterator[tuple[int, int, frozenset[str]]]:
    """Stretches around the places, joined where they meet."""
    start = end = -1
    keywords: set[str] = set()
    for place, one in found:
        left, right = max(0, place + shift - _AROUND), min(length, place + shift + _AROUND)
        if start >= 0 and left <= end:
            end = right
            keywords.add(one)
            continue
        if start >= 0:
            yield start, end, frozenset(keywords)
        start, end, keywords = left, right, {one}
    if start >= 0:
        yield start, end, frozenset(keywords)
