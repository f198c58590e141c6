"""The inputs that a kernel is called with: one table, an entry for each kind of fault.

All entries have the sizes and strides of the call, so that a compiled kernel serves
them all. What each must not exceed follows from its numbers (`exact.py`), so that no entry needs a
tolerance of its own; `why` says which faults it shows and what a right kernel has to keep to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

#: Makes queries, keys and values of the given shapes, (batch, heads, length, size), in float32:
#: `maker(noise, shapes)`, where `noise(*shape)` is normal and the same for the same seed.
Maker = Callable[[Callable[..., Any], "list[tuple[int, ...]]"], "tuple[Any, Any, Any]"]
#: Makes the gradient of the output from a shape of (batch, heads, length, size).
Upstream = Callable[[Callable[..., Any], "tuple[int, ...]"], Any]


class Probe(NamedTuple):
    """One call."""

    name: str
    """As users read it, after `with`."""
    make: Maker | None
    """None: the inputs hold their numbers already."""
    upstream: Upstream
    why: str
    in_training: str = ""
    """What the name ends with where there is a gradient."""
    gradient: float = 1.0
    """What the gradient of the output is multiplied with, a power of two."""

    def named(self, training: bool) -> str:
        """The name in a phase."""
        return self.name + self.in_training * training


def _ordinary(noise: Any, shapes: list[tuple[int, ...]]) -> tuple[Any, Any, Any]:
    query, key, value = (noise(*shape) for shape in shapes)
    return query, key, value


def _steep(noise: Any, shapes: list[tuple[int, ...]]) -> tuple[Any, Any, Any]:
    """Scores of normal size 12, and a trend over the keys from -75 to 75; back in odd heads."""
    query, key, value = _ordinary(noise, shapes)
    length, size = key.shape[2:]
    direction, repeated = _direction(noise, query, key)
    steps = key.new_ones(length).cumsum(0) * (2 / length) - 1
    trend = steps[:, None] * (75 / 12 * size**0.5) * direction
    trend[:, 1::2] *= -1
    return 12 * (query + repeated), key + trend, value


def _direction(noise: Any, query: Any, key: Any) -> tuple[Any, Any]:
    """A vector of length 1 for each key head, and the same for the heads of queries."""
    found = noise(1, key.shape[1], 1, key.shape[3])
    found = found / found.norm(dim=-1, keepdim=True)
    return found, found.repeat_interleave(query.shape[1] // key.shape[1], 1)


def _shifted(sign: float) -> Maker:
    """Every score is shifted by about 220 for a head size of 128: 50 * 50 / sqrt(size)."""

    def make(noise: Any, shapes: list[tuple[int, ...]]) -> tuple[Any, Any, Any]:
        query, key, value = _ordinary(noise, shapes)
        direction, repeated = _direction(noise, query, key)
        return 0.3 * query + 50 * repeated, 0.3 * key + sign * 50 * direction, value

    return make


def _averaged(noise: Any, shapes: list[tuple[int, ...]]) -> tuple[Any, Any, Any]:
    query, key, value = _ordinary(noise, shapes)
    return query, key, value + 2


def _plain(noise: Any, shape: tuple[int, ...]) -> Any:
    return noise(*shape)


def _turned(noise: Any, shape: tuple[int, ...]) -> Any:
    """The last two dimensions lie in memory the other way round."""
    return noise(*shape[:2], shape[3], shape[2]).transpose(2, 3)


#: The order matters: the last call is nearly ordinary again, so that what is kept of the first is
#: seen. A call may take seconds on a CPU, so one entry shows several kinds of faults.
PROBES = (
    Probe(
        "normal inputs", _ordinary, _plain,
        "scores of about 1, as at the start of a training: wrong scales, masks, heads and tiles",
    ),
    Probe(
        "large scores", _steep, _plain,
        "scores up to 130 in size that rise or fall over the keys: clamps, caps, scores that are "
        "rounded, a maximum that is not kept across tiles. Few keys weigh in a row: its error is "
        "that of a few weights",
    ),
    Probe(
        "scores of about +220", _shifted(1), _plain,
        "exp() overflows without the maximum taken away; a log-sum-exp in a narrow type loses all "
        "digits. Scores lose 2**-23 of the product of the lengths of query and key, 2500 here",
    ),
    Probe(
        "scores of about -220", _shifted(-1), _plain,
        "log-sum-exp strongly negative: cuDNN 9.19 gives NaN gradients for lengths with "
        "64 over a multiple of 128. Gradients of queries cancel: the product of output and "
        "gradient is off by the rounding of the output, times keys of length 50",
    ),
    Probe(
        "values with a mean", _averaged, _turned,
        "other numbers in the same memory: results kept from an earlier call, every fifth call "
        "wrong, sums of weights that are not 1. And a gradient of the output whose memory has "
        "another order: gradients that are read as contiguous, or by the strides of an earlier "
        "call. It is as small as in a training: what is rounded to float16 loses it",
        in_training=" and a small gradient in another layout than before",
        gradient=2.0**-20,
    ),
)  # fmt: skip
