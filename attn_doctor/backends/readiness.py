"""Results of an evaluation: the state of each backend, and the requirements that decide it."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from attn_doctor.backends.attention_call import AttentionCall, Context
from attn_doctor.backends.catalogue_entries import Party
from attn_doctor.findings import Because


class Readiness(str, Enum):
    """Whether a backend serves an attention call."""

    READY = "ready"
    SLOW = "slow"
    """It works, but far below the speed that this machine can reach."""
    NOT_READY = "not ready"
    """It fails, or gives a wrong result."""
    UNKNOWN = "unknown"


class Outcome(str, Enum):
    """The result of one requirement."""

    SATISFIED = "satisfied"
    UNSATISFIED = "unsatisfied"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not applicable"


class RequirementResult(Struct, frozen=True, kw_only=True):
    """One requirement with its outcome and the values behind it."""

    id: str
    """The requirement, or the rule whose problem this is."""
    outcome: Outcome
    state: Readiness
    """The state that it allows: `ready` unless it is unsatisfied or unknown."""
    text: str
    """The sentence for a requirement that is unsatisfied, or what is unknown."""
    label: str = ""
    """What holds if it is satisfied, in a few words."""
    because: tuple[Because, ...] = ()
    by: Party = "library"
    """What refuses: `library`, `framework` or `package`."""
    silent: bool = False
    """There is no error message: the result is wrong."""
    rule: str = ""
    remedy: str = ""
    run: tuple[tuple[str, ...], ...] = ()
    """Commands of the remedy, as argv lists of rules."""
    unset: tuple[str, ...] = ()
    """Environment variables that the remedy unsets."""
    code: str = ""
    """Lines of the remedy to copy into the user's program."""
    curable: bool = True
    """Something on this machine can satisfy it: it has a remedy, or its rule has one here."""
    source: str = ""


class Answer(Struct, frozen=True, kw_only=True):
    """A backend's readiness for one attention call."""

    state: Readiness
    reasons: tuple[RequirementResult, ...] = ()
    """The unsatisfied and unknown requirements; those that decide the state come first.

    Of a backend that is ready: known faults of calls that are not this one, or not always.
    """

    @property
    def wrong(self) -> bool:
        """It runs, and the result is wrong without a message."""
        return self.state is Readiness.NOT_READY and self.reasons[0].silent


class Row(Struct, frozen=True, kw_only=True):
    """One name of a framework."""

    name: str
    backend: str
    title: str
    known: bool
    """This version of the framework accepts the name."""
    answers: tuple[Answer, ...]
    """One for each call of the matrix."""
    hardware: str = ""
    """The hardware it is made for, if that is not an NVIDIA GPU or the CPU."""
    package: str = ""
    """Facts of the package behind it; empty for torch's own."""
    note: str = ""
    fallback: str = ""
    """What the framework does where the backend fails."""
    compiled: bool = False
    """The framework compiles it, whatever the model does."""


class Recommendation(Struct, frozen=True, kw_only=True):
    """The name to use for one call; empty if no backend is ready or slow."""

    name: str
    state: Readiness
    why: str
    short: str = ""
    """The same in a few words."""
    measured: bool = False
    """The order rests on figures for this generation of GPU."""


class Matrix(Struct, frozen=True, kw_only=True):
    """All names of a framework, evaluated for each call."""

    framework: str
    title: str
    version: str | None
    installed: bool | None
    """False: not installed here, and evaluated as the newest known version."""
    context: Context
    calls: tuple[AttentionCall, ...]
    rows: tuple[Row, ...]
    recommended: tuple[Recommendation, ...]
    """One for each call."""
    note: str = ""

    def row(self, name: str) -> Row:
        """The row of a name. Raises `KeyError`."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)
