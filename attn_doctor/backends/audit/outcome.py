"""What an audit showed: values only, nothing here prints or decides."""

from __future__ import annotations

from enum import Enum
from typing import Any

from msgspec import Struct

from attn_doctor.backends.live.outcome import Device, Failure


class Kind(str, Enum):
    """What kind of fault it is."""

    WRONG = "wrong"
    """Numbers are further from float64 than rounding explains."""
    NOT_FINITE = "not finite"
    """NaN or infinity where float64 has a number."""
    CRASHED = "crashed"
    """The process died."""
    HUNG = "hung"
    """It did not end within its time."""


class Fault(Struct, frozen=True, kw_only=True):
    """One fault of one backend, shrunk."""

    kind: Kind
    sentence: str
    """What is wrong in the shrunk call, with figures."""
    words: str
    """The shrunk call in words."""
    probe: str
    """The probe that found it."""
    cases: tuple[dict[str, Any], ...] = ()
    """The shrunk calls, the wrong one last: what differs from the simplest call. Empty for a
    script."""
    first: str = ""
    """The call that was found wrong first, in words."""
    count: int = 1
    """Calls of this audit that show it."""
    program: str = ""
    """Plain torch, which ends with 1 where the fault is."""
    confirmed: bool | None = None
    """Whether the program shows the fault in a process of its own; None: it was not run."""
    printed: str = ""
    """What the program printed."""
    known: tuple[str, ...] = ()
    """Advisories that it may be, such as `ATTN-2026-0001`."""


class Audited(Struct, frozen=True, kw_only=True):
    """What the audit of one backend showed."""

    name: str
    route: str
    version: str = ""
    planned: int = 0
    """Calls in all."""
    right: int = 0
    wrong: int = 0
    not_counted: int = 0
    """Calls whose exact result float64 itself does not give with certainty."""
    forward_only: int = 0
    """Calls in training that were compared without a backward, which the backend does not have."""
    refusals: dict[str, int] = {}
    """Reasons why calls were refused, each with how many."""
    faults: tuple[Fault, ...] = ()
    failure: Failure | None = None
    """Why nothing could be run."""

    @property
    def refused(self) -> int:
        """Calls that the backend, or the memory, does not allow."""
        return sum(self.refusals.values())

    @property
    def done(self) -> int:
        """Calls that were tried."""
        return self.right + self.wrong + self.not_counted + self.refused

    @property
    def title(self) -> str:
        """Name and, if users do not reach it that way, the route."""
        return f"{self.name} (compiled)" if self.route == "compiled" else self.name


class Reproduced(Struct, frozen=True, kw_only=True):
    """The program of one advisory, run here."""

    advisory: str
    title: str
    present: bool | None
    """Whether the fault is here; None: the program did not say."""
    printed: str = ""


class AuditReport(Struct, frozen=True, kw_only=True):
    """The results of a whole audit."""

    python: str
    torch: str
    device: Device
    dtype: str
    phases: tuple[str, ...]
    seed: int
    results: tuple[Audited, ...]
    advisories: tuple[Reproduced, ...] = ()
    absent: dict[str, str] = {}
    """Backends that were named and are not installed, with what is missing."""
    failure: Failure | None = None
    """Why nothing could be run at all."""
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        """All that was planned was tried."""
        return self.failure is None and all(
            one.done >= one.planned or one.failure is not None for one in self.results
        )

    @property
    def faulty(self) -> bool:
        """A fault was found, or a known one is here."""
        return any(one.faults for one in self.results) or any(
            one.present for one in self.advisories
        )
