"""Compares the gradients of a block's parameters with those in float64, one parameter at a time.

All gradients of a block are gigabytes in float64. They stay where they were computed, and only
norms are kept of them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple


class Compared(NamedTuple):
    """Relative errors of gradients: of all, of all without compiling, and the worst one."""

    error: float
    rounding: float
    worst: float
    """The largest relative error of one parameter's gradient."""
    where: str
    """The name of that parameter; empty if none is far worse than without compiling."""


def compare(seen: dict[str, Any], eager: dict[str, Any], true: dict[str, Any]) -> Compared:
    """Compare gradients with `true` ones; `eager` were computed without compiling.

    A small parameter that is all wrong would not show in the norm of all. Of single parameters only
    those count that are far worse than without compiling: the gradients of some cancel nearly, and
    round much.
    """
    norms = {name: _norms(seen[name], eager[name], one) for name, one in true.items()}
    off, rounding, size = (math.hypot(*column) for column in zip(*norms.values(), strict=True))
    least = max(size, 1e-300)
    # For a gradient that is nearly zero, any rounding would look large.
    floor = size * 1e-3 / max(1, len(norms)) ** 0.5
    worst, where = 0.0, ""
    for name, (one, usual, own) in norms.items():
        share = one / max(own + floor, 1e-300)
        if math.isnan(share):
            worst, where = share, name
            break
        if share > max(4 * usual / max(own + floor, 1e-300), worst):
            worst, where = share, name
    return Compared(off / least, rounding / least, worst, where)


def _norms(seen: Any, eager: Any, true: Any) -> tuple[float, float, float]:
    true = true.double()
    off, rounding = ((one.to(true.device).double() - true).norm() for one in (seen, eager))
    return float(off), float(rounding), float(true.norm())
