"""The result of `explain`: plain values, which renderers turn into text, JSON or Markdown."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.facts import Facts
from attn_doctor.findings import Fix


class Confirmation(str, Enum):
    """Whether facts confirm a cause."""

    BY_MACHINE = "confirmed by this machine"
    BY_LOG = "confirmed by the log"
    NO = "not confirmed"
    UNKNOWN = "could not be checked"
    NOT_CHECKED = "not checked"
    LOG_ONLY = "only a log can show it"


class RankedCause(Struct, frozen=True, kw_only=True):
    """One cause that a log shows."""

    rule: str
    """The rule that says most about it."""
    cause: str
    """Its label in `tables/causes.toml`."""
    confidence: float
    """How well the log supports it: from 0.8 the log names the cause, from 0.5 it is the usual
    meaning of such a log, below that it is possible. Not a probability."""
    file: str
    line: int
    """Number of the line, from 1."""
    excerpt: str
    """That line, trimmed around the matched text."""
    rank: str
    """The process that wrote the line, if the log says so."""
    times: int
    """Number of lines with the symptom; in a huge log, at least this many."""
    severity: str
    title: str
    why: str
    confirmation: Confirmation
    reason: str = ""
    """Why it is not confirmed, or could not be checked."""
    fixes: tuple[Fix, ...] = ()
    evidence: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """Other rules with the same cause."""

    @property
    def verdict(self) -> str:
        """The confirmation, with the reason after a colon if there is one."""
        return (
            f"{self.confirmation.value}: {self.reason}" if self.reason else self.confirmation.value
        )


class Guess(Struct, frozen=True, kw_only=True):
    """Where a failure is that no rule knows: a component and a kind, not a cause."""

    component: str
    """Its id in `tables/components.toml`."""
    name: str
    kind: str
    """The kind of failure in that table."""
    file: str
    line: int
    excerpt: str
    rank: str
    title: str
    frame: str = ""
    """The innermost frame that belongs to the component or calls it."""
    source: str = ""
    """The place of the message in the sources of the component, if it is known."""
    condition: str = ""
    """The condition under which it is raised, as the code writes it."""
    seen: str = ""
    """The value that was found, if the message says it."""
    wanted: str = ""
    fixes: tuple[Fix, ...] = ()
    """What to try."""


class Note(Struct, frozen=True, kw_only=True):
    """A line about attention, or about its environment, that did not stop the run."""

    component: str
    """The area of a rule, or a component of `tables/components.toml`."""
    file: str
    line: int
    excerpt: str
    rank: str
    title: str
    """What it says."""
    rule: str = ""
    """The rule that knows it."""


class Outcome(str, Enum):
    """The result of an explanation."""

    CAUSE = "cause"
    """A rule names a cause."""
    COMPONENT = "component"
    """A part of attention software failed, for a reason that no rule knows."""
    NOTHING = "nothing"


class Log(Struct, frozen=True):
    """One log that was read."""

    file: str
    lines: int
    bytes: int
    skipped: int = 0
    """Bytes that were not searched for every symptom: noise, or too many symptoms."""


class Passage(Struct, frozen=True):
    """Lines around causes in one log, without what terminals and log collectors add."""

    file: str
    lines: tuple[tuple[int, str], ...]
    """The number of each line, from 1, and its text. Lines between two passages are left out."""


class LogFact(Struct, frozen=True):
    """A fact that the log states, and its value on this machine if that differs."""

    fact: str
    value: str
    this_machine: str = ""
    line: int = 0
    """Number of the line that states it; 0 if it follows from other facts."""


class Explanation(Struct, frozen=True, kw_only=True):
    """Everything that was found in some logs, the most likely cause first."""

    matches: tuple[RankedCause, ...]
    logs: tuple[Log, ...]
    log_facts: tuple[LogFact, ...]
    """What the logs state about the machine that wrote them."""
    facts: Facts
    """The facts for commands: those that the log states, completed by this machine's if it states
    nothing else."""
    probed: bool
    """Facts of this machine, or of a snapshot, were used as well."""
    rules: int
    """Number of rules with symptoms."""
    guess: Guess | None = None
    """Only without matches."""
    note: Note | None = None
    """Only without a guess. The outcome stays `nothing`: no failure of attention was found."""
    conflicts: tuple[str, ...] = ()
    """Facts that the logs report with two values, as sentences."""
    known_lines: int = 0
    """Lines that were left out, because a log of a run that worked has them as well."""
    passages: tuple[Passage, ...] = ()
    """The logs around the causes, or around the line of the guess."""
    again: tuple[str, ...] = ()
    """The command that examines the interpreter that the log names, if this machine has it and
    another one was examined."""
    seconds: float = 0.0

    @property
    def outcome(self) -> Outcome:
        """What was found."""
        if self.matches:
            return Outcome.CAUSE
        return Outcome.NOTHING if self.guess is None else Outcome.COMPONENT

    def facts_for(self, match: RankedCause) -> Facts:
        """The facts for its commands; none changes this machine if this machine refutes the cause.

        An interpreter that the log names stays.
        """
        named = any(fact.fact == "python.path" for fact in self.log_facts)
        if match.confirmation is not Confirmation.NO or named:
            return self.facts
        return replace(self.facts, python=replace(self.facts.python, path=None))

    @property
    def differences(self) -> tuple[LogFact, ...]:
        """Facts by which the log's machine differs from this one."""
        return tuple(fact for fact in self.log_facts if fact.this_machine)
