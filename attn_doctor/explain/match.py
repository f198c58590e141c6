"""Symptoms held against a page: which of them occur, and on which lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from itertools import islice

from msgspec import Struct

from attn_doctor.explain.normalize import Page
from attn_doctor.rulebook.patterns import keyword
from attn_doctor.rulebook.rule import Rule

#: Occurrences of one symptom on a page that are looked at.
_MOST = 100


class Watched:
    """One symptom of one rule. Its pattern is compiled only once its plain text has been seen."""

    def __init__(self, rule: Rule, index: int) -> None:
        self.rule = rule
        self.index = index
        self.symptom = rule.symptoms[index]
        self.needs = rule.symptom_needs[index]

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The pattern, ready to search with."""
        return re.compile(self.symptom.pattern)

    @property
    def keywords(self) -> tuple[str, ...]:
        """Words, one of which stands in each log that shows the symptom."""
        return tuple(dict.fromkeys(filter(None, map(keyword, self.needs))))


class Hit(Struct, frozen=True, kw_only=True):
    """A symptom found on a page."""

    rule: str
    symptom: int
    lines: range
    """Indexes of the page's lines that it covers."""
    text: str
    """What matched."""
    groups: dict[str, str] = {}
    """What the named groups of its pattern matched."""


def watched(rules: Iterable[Rule]) -> tuple[Watched, ...]:
    """Every symptom of the rules."""
    return tuple(Watched(rule, index) for rule in rules for index in range(len(rule.symptoms)))


def hits(page: Page, symptoms: Iterable[Watched]) -> list[Hit]:
    """The symptoms that occur on a page: on its lines as they are, else on mended ones."""
    lowered = page.lowered
    found: list[Hit] = []
    for one in symptoms:
        if not one.needs or any(text in lowered for text in one.needs):
            found += _hits(page, one)
    return found


def _hits(page: Page, one: Watched) -> Iterator[Hit]:
    plain = list(_searched(one, page.text, page.index_at))
    if plain:
        yield from plain
        return
    for form, text in enumerate(page.mended):
        found = _searched(one, text, partial(page.index_in, form))
        # What lies on one line would have been found there, but for what the pattern forbids.
        mended = [hit for hit in found if len(hit.lines) > 1]
        if mended:
            yield from mended
            return


def _searched(one: Watched, text: str, index_at: Callable[[int], int]) -> Iterator[Hit]:
    for match in islice(one.regex.finditer(text), _MOST):
        last = max(match.start(), match.end() - 1)
        yield Hit(
            rule=one.rule.id,
            symptom=one.index,
            lines=range(index_at(match.start()), index_at(last) + 1),
            text=match[0],
            groups={name: value for name, value in match.groupdict().items() if value},
        )
