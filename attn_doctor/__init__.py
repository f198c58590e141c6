"""attn-doctor: which attention kernels work on this machine, why the others do not, and the fix.

For programs and notebooks: `check()`, `backends()` and `explain(text)` return frozen results, and
`assert_backend(name)` raises `BackendNotReady`. `require_hit()` lets a job fail at its start if
kernels that were built ahead of time would be compiled again.
"""

from __future__ import annotations

import sys

from attn_doctor._version import __version__

#: As in `typing`, which the command line imports after it has put off the collection of garbage.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from attn_doctor.api import (
        BackendNotReady,
        BackendsResult,
        CheckResult,
        ExplainResult,
        assert_backend,
        backends,
        check,
        explain,
    )
    from attn_doctor.kernels.require_hit import CacheMiss, require_hit

__all__ = [
    "BackendNotReady",
    "BackendsResult",
    "CacheMiss",
    "CheckResult",
    "ExplainResult",
    "__version__",
    "assert_backend",
    "backends",
    "check",
    "explain",
    "require_hit",
]


def __getattr__(name: str) -> object:
    # Imported when asked for: the command line has no use for it.
    if name in ("CacheMiss", "require_hit"):
        from attn_doctor.kernels import require_hit

        return getattr(require_hit, name)
    if name in __all__:
        from attn_doctor import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Package(type(sys)):  # type: ignore[misc]
    """This package, in which two public functions have the names of packages below it.

    The import system assigns a package to its name here. `import attn_doctor.explain.engine` still
    works, since imports are looked up by the full name, but `attn_doctor.explain` is the function.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name not in ("backends", "explain"):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
