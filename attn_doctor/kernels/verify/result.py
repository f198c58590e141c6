"""What came of running a built kernel in a fresh process."""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.kernels.verify.misses import Miss


class Proof(Struct, frozen=True, kw_only=True):
    """One kernel, or (without a key) the cache as a whole."""

    folder: str
    title: str
    hit: bool
    """Every cache hit and no compiler ran."""
    key: str = ""
    """Its key in the builder's record."""
    place: str = ""
    seconds: float | None = None
    """The first call."""
    errors: dict[str, float] = {}
    """Relative error against a float64 reference: out, and in training dq, dk, dv."""
    message: str = ""
    """What was not reused, or why nothing was run."""
    state: str = ""
    """`built` (reused, and right), `unverified` (reused where nothing can be computed), else
    what is wrong, as in the builder's record."""
    was: str = ""
    """The state in the record before."""
    ended: bool = False
    """It is a program that failed by itself, which says nothing of the cache."""
    misses: tuple[Miss, ...] = ()
    """What differs, in words, where that is known."""
