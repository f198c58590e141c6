"""The prediction for one configuration: the backend that each phase will run, and problems."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from attn_doctor.backends.readiness import Readiness
from attn_doctor.configs.readers.settings import Reading
from attn_doctor.findings import Finding

PhaseName = Literal["training", "validation", "inference"]
#: What a user asks for: `training`, `inference`, or nothing for all phases.
Wanted = Literal["", "training", "inference"]


def counts(phase: PhaseName, wanted: Wanted) -> bool:
    """A phase is of those that the user asks for; validation is inference."""
    return not wanted or (phase == "training") == (wanted == "training")


class Phase(Struct, frozen=True, kw_only=True):
    """One phase of a run."""

    phase: PhaseName
    asked: str
    """The backend as the configuration names it; empty if it names none."""
    backend: str
    """The canonical name of the one that runs; empty if unknown."""
    shown: str
    """The same for readers, such as `native (torch's own)`."""
    why: str = ""
    """The reason, if it is not the backend that the configuration names."""
    line: int = 0
    """The line that asks for it; 0 if no line does."""
    when: str = ""
    """The condition under which it runs, if that is not known before the run."""
    undecided: str = ""
    """The reason why the backend is not known; empty if it is."""
    fallback: str = ""
    """What the program does if the backend cannot run; empty if it stops."""
    last: str = ""
    """The backend in the last known release, if this release is not known."""
    fused: bool | None = None
    """The scores are never stored as a whole; None if unknown."""
    state: Readiness | None = None
    """Whether it runs on this machine."""
    reason: str = ""
    """The reason why it fails or is slow."""
    exceptions: tuple[str, ...] = ()
    """Known faults without an error message, of calls that this phase may make."""
    dtype: str = ""
    mask: str = ""
    tokens: int = 0
    """Tokens of the attention at the configured resolution; 0 if unknown."""
    mib: int | None = None
    """Approximate memory of one attention layer at that size."""


class Prediction(Struct, frozen=True, kw_only=True):
    """One configuration and its prediction."""

    reading: Reading
    title: str
    """The framework, as its makers write it."""
    version: str = ""
    installed: bool | None = None
    """False: the newest known release is assumed."""
    subject: str = ""
    """The model family by its title."""
    phases: tuple[Phase, ...] = ()
    findings: tuple[Finding, ...] = ()
    ignored: tuple[str, ...] = ()
    """Settings that have no effect."""
    notes: tuple[str, ...] = ()
