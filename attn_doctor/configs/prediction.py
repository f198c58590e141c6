"""What is predicted of one configuration: the backend that each phase will run, and problems."""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.backends.readiness import Readiness
from attn_doctor.configs.readers.settings import Reading
from attn_doctor.findings import Finding


class Phase(Struct, frozen=True, kw_only=True):
    """One phase of a run."""

    phase: str
    """`training`, `validation` or `inference`."""
    asked: str
    """The backend as the configuration names it; empty if it names none."""
    backend: str
    """The canonical name of the one that runs; empty if that cannot be told."""
    shown: str
    """The same for a reader, such as `native (torch's own)`."""
    why: str = ""
    """Why that one runs, if it is not simply the one asked for."""
    last: str = ""
    """What ran in the last release that is known, where this one is not."""
    fused: bool | None = None
    """Scores never lie in memory as a whole; None if that cannot be told."""
    state: Readiness | None = None
    """Whether it runs on this machine."""
    reason: str = ""
    """What keeps it from running, or makes it slow."""
    dtype: str = ""
    mask: str = ""
    tokens: int = 0
    """Tokens of the attention at the configured resolution; 0 if they cannot be told."""
    mib: int | None = None
    """What one attention layer takes at that size, about."""


class Prediction(Struct, frozen=True, kw_only=True):
    """All about one configuration."""

    reading: Reading
    title: str
    """The framework, as its makers write it."""
    version: str = ""
    installed: bool | None = None
    """False: judged as the newest known release."""
    subject: str = ""
    """The model family by its title."""
    phases: tuple[Phase, ...] = ()
    findings: tuple[Finding, ...] = ()
    ignored: tuple[str, ...] = ()
    """What the configuration says and nothing heeds."""
    notes: tuple[str, ...] = ()
