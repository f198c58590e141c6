"""The known names nearest to a misspelt one, for `did you mean …?`."""

from __future__ import annotations

from collections.abc import Iterable

#: Likeness, from 0 to 1, from which a known name is suggested; below 0.6 mi300x resembles gb300.
_LIKENESS = 0.6


def nearest(name: str, known: Iterable[str], count: int = 1) -> list[str]:
    """At most `count` of the known names that resemble `name`, the most alike first.

    Those that are equally alike are in the order of their names.
    """
    # Imported on demand: only mistakes need it.
    from difflib import SequenceMatcher

    likeness = {one: SequenceMatcher(None, one, name).ratio() for one in known}
    near = [one for one in likeness if likeness[one] >= _LIKENESS]
    return sorted(near, key=lambda one: (-likeness[one], one))[:count]


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", count: int = 3) -> str:
    """`did you mean A or B?` with the nearest names, or else `otherwise`."""
    near = nearest(name, known, count)
    return f"did you mean {' or '.join(near)}?" if near else otherwise


def hint(name: str, known: Iterable[str], otherwise: str = "", count: int = 3) -> str:
    """`did_you_mean` as the end of a sentence: after a semicolon, or empty."""
    text = did_you_mean(name, known, otherwise, count)
    return f"; {text}" if text else ""
