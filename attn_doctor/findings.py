"""What the rules conclude. Plain values: nothing here prints, decides or repairs."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from attn_doctor.facts import Facts


class Verdict(str, Enum):
    """What a rule says about one subject."""

    PROBLEM = "problem"
    OK = "ok"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not applicable"


class Severity(str, Enum):
    """How bad a problem is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """0 for info, 2 for error."""
        return ("info", "warning", "error").index(self.value)


class Because(Struct, frozen=True, kw_only=True):
    """One condition line with the value seen and the value wanted, as text for a reader."""

    fact: str
    seen: str
    """`unknown` if the fact could not be read."""
    wanted: str
    """Empty for a line that only says where the rule applies."""
    truth: bool | None
    """The line is true, false, or cannot be told."""
    gap: str = ""
    """Why the fact is unknown."""


class Fix(Struct, frozen=True, kw_only=True):
    """A remedy with its commands filled in for this machine."""

    title: str
    safety: str
    """`auto`, `ask` or `manual`."""
    run: tuple[tuple[str, ...], ...] = ()
    """argv lists; leading `NAME=value` elements set the environment of that command."""
    exports: dict[str, str] = {}
    """Environment variables to set for later commands; an empty value means unset."""
    manual: str = ""
    """What a person has to do, where no command can."""
    code: str = ""
    """Lines for a person to copy as they are, such as Python for a training script."""
    needs: str = ""
    """What it takes: minutes, memory, tools."""
    clears: tuple[str, ...] = ()
    """Kinds of caches that become stale."""


class Place(Struct, frozen=True):
    """A line of a file that the user wrote, which a finding is about."""

    file: str
    """Relative to the working directory where it lies below it."""
    line: int = 1
    """Counted from 1."""


class Finding(Struct, frozen=True, kw_only=True):
    """One rule's verdict on one subject."""

    rule: str
    verdict: Verdict
    severity: Severity
    cause: str
    title: str
    subject: str = ""
    """The element that was judged, such as `GPU 1 (NVIDIA H200)`; empty for the whole machine."""
    why: str = ""
    because: tuple[Because, ...] = ()
    context: tuple[Because, ...] = ()
    """The lines that say where the rule applies."""
    fixes: tuple[Fix, ...] = ()
    backends: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    caused_by: str = ""
    """The rule whose problem explains this one; empty for a root cause."""
    waived: str = ""
    """Why a problem does not count: accepted by the policy, or known from a baseline."""
    place: Place | None = None
    """Where it stands, if it is about a file; None for what is about the machine."""


class Diagnosis(Struct, frozen=True, kw_only=True):
    """Facts and everything the rules said about them, problems first, roots before echoes."""

    facts: Facts
    findings: tuple[Finding, ...]
    rules: int
    """How many rules were judged."""
    seconds: float = 0.0

    @property
    def problems(self) -> tuple[Finding, ...]:
        """Findings that are problems and count, worst first."""
        return tuple(
            one for one in self.findings if one.verdict is Verdict.PROBLEM and not one.waived
        )

    @property
    def waived(self) -> tuple[Finding, ...]:
        """Problems that do not count, each with its reason."""
        return tuple(one for one in self.findings if one.waived)

    @property
    def unknown(self) -> tuple[Finding, ...]:
        """Findings that could not be told."""
        return tuple(one for one in self.findings if one.verdict is Verdict.UNKNOWN)
