"""attn-doctor: which attention kernels work on this machine, why the others do not, and the fix.

For programs: `attn_doctor.require_hit()` lets a job fail at its start if kernels that were built
ahead of time would be compiled again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attn_doctor._version import __version__

if TYPE_CHECKING:
    from attn_doctor.kernels.require_hit import CacheMiss, require_hit

__all__ = ["CacheMiss", "__version__", "require_hit"]


def __getattr__(name: str) -> Any:
    # Imported when asked for: `attn-doctor check` has no use for it.
    if name in ("CacheMiss", "require_hit"):
        from attn_doctor.kernels import require_hit

        return getattr(require_hit, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
