"""Words of symptoms, searched in the words of a log all at once."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from functools import cached_property

#: Everything but lower case letters and `_` becomes a blank.
_SEPARATED = bytes(byte if byte in b"abcdefghijklmnopqrstuvwxyz_" else 32 for byte in range(256))


class Keywords:
    """Keywords in lower case, of letters and `_`."""

    def __init__(self, keywords: Iterable[str]) -> None:
        self._words = sorted(keywords)

    def in_text(self, lowered: str) -> frozenset[str]:
        """The keywords that are part of a word of a text in lower case."""
        words = set(lowered.encode("utf-8", "replace").translate(_SEPARATED).split())
        return self.inside(b"\n".join(self.holding(words)))

    def inside(self, text: bytes) -> frozenset[str]:
        """The keywords in a text in lower case."""
        found: set[str] = set()
        place = 0
        while match := self._any.search(text, place):
            place = match.start() + 1
            found.update(
                word
                for word in self._beginning[match[0]]
                if word not in found and text.startswith(word.encode(), match.start())
            )
        return frozenset(found)

    def holding(self, words: Iterable[bytes]) -> set[bytes]:
        """Those of the words, in lower case, in which a keyword is."""
        # One search in all of them: most words have no keyword.
        text = b"\n".join(words)
        found: set[bytes] = set()
        place = 0
        while match := self._any.search(text, place):
            start, end = text.rfind(b"\n", 0, match.start()) + 1, text.find(b"\n", match.end())
            place = end if end >= 0 else len(text)
            found.add(text[start:place])
        return found

    @cached_property
    def _any(self) -> re.Pattern[bytes]:
        """Matches the shortest keyword at a place; without keywords, nothing."""
        return re.compile(_any_of(self._words).encode() if self._words else rb"(?!)")

    @cached_property
    def _beginning(self) -> dict[bytes, list[str]]:
        """The keywords that begin with a match of `_any`."""
        found: dict[bytes, list[str]] = {}
        for word in self._words:
            match = self._any.match(word.encode())
            found.setdefault(match[0] if match else b"", []).append(word)
        return found


def _any_of(words: Sequence[str], depth: int = 0) -> str:
    """A pattern for any of some sorted words, which compares each of their beginnings once."""
    if any(len(word) == depth for word in words):
        return ""  # this word is the beginning of the others
    branches = [
        re.escape(letter) + _any_of(tuple(group), depth + 1)
        for letter, group in itertools.groupby(words, lambda word: word[depth])
    ]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
