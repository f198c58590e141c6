"""attn-doctor: which attention kernels work on this machine, why the others do not, and the fix.

For programs: `attn_doctor.require_hit()` lets a job fail at its start if kernels that were built
ahead of time would be compiled again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attn_doctor.guard import CacheMiss, require_hit

__all__ = ["CacheMiss", "__version__", "require_hit"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Imported when asked for: `attn-doctor check` has no use for it.
    if name in ("CacheMiss", "require_hit"):
        from attn_doctor import guard

        return getattr(guard, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
