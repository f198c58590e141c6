"""What is said of a backend: a state, and for each state short of ready its reasons."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from attn_doctor.backends.workload import Use, Wish
from attn_doctor.findings import Because


class Readiness(str, Enum):
    """Whether a backend would do what is wished."""

    READY = "ready"
    SLOW = "slow"
    """It works, but far below what this machine can do."""
    NOT_READY = "not ready"
    """It fails, or gives a wrong result."""
    UNKNOWN = "unknown"


class Outcome(str, Enum):
    """What became of one demand."""

    MET = "met"
    UNMET = "unmet"
    UNKNOWN = "unknown"
    NOT_DEMANDED = "not demanded"


class Reason(Struct, frozen=True, kw_only=True):
    """One demand that is not met, or cannot be told."""

    id: str
    """The demand, or the rule whose problem this is."""
    state: Readiness
    """What it makes of the backend."""
    text: str
    because: tuple[Because, ...] = ()
    by: str = "library"
    """Who refuses: `library`, `framework` or `package`."""
    silent: bool = False
    """There is no error message: the result is wrong."""
    rule: str = ""
    remedy: str = ""
    code: str = ""
    """Lines for the remedy, to be copied as they are."""
    source: str = ""


class Demand(Struct, frozen=True, kw_only=True):
    """One demand with its outcome, for those who ask why."""

    id: str
    outcome: Outcome
    text: str
    """What is said if it is not met."""
    because: tuple[Because, ...]
    by: str
    otherwise: str
    source: str
    rule: str = ""


class Answer(Struct, frozen=True, kw_only=True):
    """A backend's readiness for one wish."""

    state: Readiness
    reasons: tuple[Reason, ...] = ()
    """Those that decide the state first, then others."""


class Row(Struct, frozen=True, kw_only=True):
    """One name of a framework."""

    name: str
    backend: str
    title: str
    known: bool
    """This version of the framework accepts the name."""
    answers: tuple[Answer, ...]
    """One for each of the matrix's wishes."""
    hardware: str = ""
    """What it is made for, if that is not an NVIDIA GPU or the CPU."""
    package: str = ""
    """Facts of the package behind it; empty for torch's own."""
    note: str = ""


class Recommendation(Struct, frozen=True, kw_only=True):
    """The name to use for one wish; empty if none is ready or slow."""

    name: str
    state: Readiness
    why: str
    short: str = ""
    """The same in a few words."""
    measured: bool = False
    """The order rests on figures for this generation of GPU."""


class Matrix(Struct, frozen=True, kw_only=True):
    """All names of a framework, judged for each wish."""

    framework: str
    title: str
    version: str | None
    installed: bool | None
    """False: not installed here, and judged as the newest known version."""
    use: Use
    wishes: tuple[Wish, ...]
    rows: tuple[Row, ...]
    recommended: tuple[Recommendation, ...]
    """One for each wish."""
    note: str = ""

    def row(self, name: str) -> Row:
        """The row of a name. Raises `KeyError`."""
        for one in self.rows:
            if one.name == name:
                return one
        raise KeyError(name)
