"""A rule: what it says, where it holds, what logs show it, and what helps.

`rule_shape` has the shape of the file that it is read from.
"""

import re
from collections.abc import Iterator
from datetime import date
from typing import Annotated, Literal

from msgspec import Meta, Struct

from attn_doctor.findings import Advisory, Safety
from attn_doctor.rulebook.conditions import (
    Condition,
    Lookup,
    conjunction,
    disjunction,
    negation,
)

SeverityName = Literal["info", "warning", "error"]
Platform = Literal["linux", "windows", "macos", "wsl"]
Text = Annotated[str, Meta(min_length=1)]


class SymptomParts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a symptom has besides its pattern."""

    logs: tuple[Text, ...] = ()
    """Lines that a program printed, unchanged."""
    reports: tuple[Text, ...] = ()
    """The same in words of people: titles of issues, and paraphrases."""
    facts: dict[str, str] = {}
    """Facts that named groups of the pattern extract, such as `torch = "torch.version"`."""
    absent: tuple[Text, ...] = ()
    """Patterns that must not occur in the same failure, read like those of `near`: words of
    another failure with the same message."""
    without: tuple[Text, ...] = ()
    """Patterns that must not match on the line of the message: words that deny it, or that say
    what is used instead."""
    frame: str = ""
    """Pattern for the frame that raised the exception: its path with `/` between folders, its
    function and its code, with a blank between them. An exception without frames needs none."""
    printed_by: str = ""
    """The only package whose source prints this text, if the text does not name it."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Every line that the pattern must match, those of programs first."""
        return (*self.logs, *self.reports)


class Symptom(SymptomParts, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A symptom with one regular expression for all its alternatives."""

    pattern: Text
    near: tuple[Text, ...] = ()
    """Patterns that must each occur as well: in the same failure, before or after, in any order.
    Blanks and line ends around them count as one blank."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """Its patterns that must match; the first one decides which line is shown."""
        return (self.pattern, *self.near)

    @property
    def exclusions(self) -> tuple[str, ...]:
        """Its patterns that must not match."""
        return (*self.absent, *self.without)


class FixFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A remedy. `run` holds argv lists; `{fact}` fills part of one element; never a shell."""

    title: Text
    safety: Safety
    run: tuple[tuple[Text, ...], ...] = ()
    set: dict[str, str] = {}
    unset: tuple[Text, ...] = ()
    manual: str = ""
    code: str = ""
    """Lines to copy into the user's program or configuration, where no command helps."""
    instead_of: str = ""
    """A family of attention that the program is to replace. `programs` has the option of each."""
    needs: str = ""
    clears: tuple[Text, ...] = ()
    done: tuple[Text, ...] = ()
    when: tuple[Text, ...] = ()
    """Offer it only where all these lines hold."""
    printed: tuple[Text, ...] = ()
    """Patterns: `explain` offers it only for a failure that one of them matches. A check, which
    reads no log, does not offer it."""

    @property
    def reads_log(self) -> bool:
        """It differs from log to log."""
        return bool(self.printed or self.instead_of)

    @property
    def is_in_words(self) -> bool:
        """It has instructions for a person."""
        return bool(self.manual or self.instead_of)

    def is_for(self, log: str) -> bool:
        """The fix is for a failure with this text; for no text if it asks for one."""
        return not self.printed or any(re.search(pattern, log) for pattern in self.printed)


class Group(Struct, frozen=True):
    """A group of parsed conditions."""

    all: tuple[Condition, ...] = ()
    any: tuple[Condition, ...] = ()
    none: tuple[Condition, ...] = ()

    @property
    def lines(self) -> tuple[Condition, ...]:
        """Every line of the group."""
        return (*self.all, *self.any, *self.none)

    def __bool__(self) -> bool:
        return bool(self.lines)

    def truth(self, lookup: Lookup, *, partial: bool = False) -> bool | None:
        """All, any and none of its lines under Kleene's logic; an empty group is true."""
        return conjunction(self._parts(lookup, partial))

    def _parts(self, lookup: Lookup, partial: bool) -> Iterator[bool | None]:
        for line in self.all:
            yield line.truth(lookup, partial=partial)
        if self.any:
            yield disjunction(line.truth(lookup, partial=partial) for line in self.any)
        for line in self.none:
            yield negation(line.truth(lookup, partial=partial))


class Way(Struct, frozen=True, array_like=True):
    """One alternative of a symptom's pattern, and where in a log it can match."""

    pattern: str
    needs: tuple[tuple[str, ...], ...]
    """Choices of texts in lower case, the most telling first: a match has one text of each."""
    reach: int
    """Characters on either side of such a text in which a match lies; 0 if within its line."""


class Rule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule, ready to be evaluated. See `rules/README.md` for the meaning of each field."""

    id: str
    severity: SeverityName
    cause: str
    title: str
    why: str
    checked: date
    evidence: tuple[str, ...]
    backends: tuple[str, ...] = ()
    platforms: tuple[Platform, ...] = ()
    row: str = ""
    requires: tuple[str, ...] = ()
    for_each: str = ""
    subject: str = ""
    applies: Group = Group()
    when: Group = Group()
    symptoms: tuple[Symptom, ...] = ()
    symptom_ways: tuple[tuple[Way, ...], ...] = ()
    """For each symptom, the alternatives of its pattern (`patterns.ways`), in an index only."""
    fixes: tuple[FixFile, ...] = ()
    fix_when: tuple[tuple[Condition, ...], ...] = ()
    """The parsed `when` of each fix."""
    fix_done: tuple[tuple[Condition, ...], ...] = ()
    """The parsed `done` of each fix."""
    advisory: Advisory | None = None

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Every condition line of the rule, those of its fixes included."""
        return (*self.applies.lines, *self.when.lines, *sum((*self.fix_when, *self.fix_done), ()))

    @property
    def has_conditions(self) -> bool:
        """It has conditions on facts; a rule without `[when]` only reads logs."""
        return bool(self.when)
