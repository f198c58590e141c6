"""What `explain` concludes. Plain values; renderers turn them into text, JSON or Markdown."""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.facts import Facts
from attn_doctor.findings import Fix

#: Beginnings of a match's verdict, from the best news to none.
CHECKED = (
    "confirmed by this machine",
    "confirmed by the log",
    "not confirmed",
    "could not be checked",
    "not checked",
)


class Match(Struct, frozen=True, kw_only=True):
    """One cause that a log shows."""

    rule: str
    """The rule that says most about it."""
    cause: str
    """Its label in the taxonomy of causes."""
    confidence: float
    """How well the log supports it: from 0.8 the log names the cause, from 0.5 it is what such a
    log mostly means, below that it is possible. Not a probability."""
    file: str
    line: int
    """Number of the line, from 1."""
    excerpt: str
    """That line, trimmed around what matched."""
    rank: str
    """The process that wrote it, where the log tells."""
    times: int
    """On how many lines it was seen; in a huge log, at least so many."""
    severity: str
    title: str
    why: str
    verdict: str
    """One of `CHECKED`, with the reason after a colon where there is one."""
    fixes: tuple[Fix, ...] = ()
    evidence: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """Other rules that name the same cause."""


class Log(Struct, frozen=True):
    """One log that was read."""

    file: str
    lines: int
    bytes: int


class Told(Struct, frozen=True):
    """A fact that the log states, and what it is on this machine where that differs."""

    fact: str
    value: str
    here: str = ""


class Explanation(Struct, frozen=True, kw_only=True):
    """Everything that was found in some logs, the likeliest cause first."""

    matches: tuple[Match, ...]
    logs: tuple[Log, ...]
    told: tuple[Told, ...]
    """What the logs say of the machine that wrote them."""
    facts: Facts
    """The facts that commands are written with: this machine's, or else those the log states."""
    probed: bool
    """This machine, or a snapshot, was looked at as well."""
    rules: int
    seconds: float = 0.0

    @property
    def elsewhere(self) -> tuple[Told, ...]:
        """Facts in which the log's machine is another than this one."""
        return tuple(one for one in self.told if one.here)
