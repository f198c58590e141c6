"""Compares results with exact rows, and says whether the error is what rounding explains.

A result is wrong if its error is more than the expected error of its roundings times a factor: over
all rows, over a block of rows, or in one row. Two figures more are nearly free of rounding, because
they average over all elements: by which factor the whole result is too large, and by which factor
the scale of the scores is. They show what hides in the rounding of eight-bit kernels.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from attn_doctor.worker.proof import exact
from attn_doctor.worker.proof.rounding import Rounding
from attn_doctor.worker.proof.rows import TILE, Sample


class _Limits(NamedTuple):
    """How many times the expected error is allowed."""

    whole: float
    """Over all rows."""
    block: float
    """Over 64 rows, whose errors are not independent where they weigh the same few values."""
    row: float
    """In one row, whose error may be that of a single value: uniform, up to 2.4 times its size."""


#: A right output has 0.7 (no rounding of weights) to 1.1 times the expected error.
_OUT = _Limits(1.6, 3.0, 6.0)
#: Gradients have up to 1.5 times: the flash kernel of CPUs rounds partial sums. Rows of `dk` share
#: the error of the product of output and gradient. Where all queries have a large part in common
#: (shifted scores), the error of a row or block is one number along that part, not an average. Seen
#: with 20 seeds on an H200 (memory-efficient): 4.3 times in blocks, 6.2 in rows.
_GRADIENT = _Limits(2.2, 6.0, 9.0)
#: A factor between a result and the right one that may be systematic, such as sums that are cut off
#: in fp8 tensor cores.
_SYSTEMATIC = 0.006
#: The same for the scale of scores that are not rounded before their product. log2(e) in bfloat16
#: makes it 0.0018 too large.
_SCALE = 0.001
#: Errors of scores make softmax flatter, by about this times the square of the result's error. Seen
#: with `sage_varlen` on an H200, scores near -220, one seed of 20: 1.06 times what 1.0 allows.
_FLATTER = 2.0
#: How many standard deviations chance may move it.
_CHANCE = 6.0
#: Rows of a head share the rounding of its keys to eight bits. So the error over all rows is that
#: of few numbers; this share more is allowed, over the number of heads.
_SHARED = 0.5
#: Sums of squares below it are taken for it where something is divided by them.
_TINY = 1e-300


NAMES = {
    "out": "the output",
    "dq": "the gradient of the queries",
    "dk": "the gradient of the keys",
    "dv": "the gradient of the values",
}


class Compared(NamedTuple):
    """One result of one call."""

    error: float
    """Length of the difference over that of the exact result."""
    allowed: float
    """The largest `error` that counts as right."""
    worst: float
    """The same as `error`, of the row that is most beyond what is allowed."""
    rows: int
    """Rows that were compared."""
    margin: float
    """The largest share that any figure has of what is allowed; above 1 the result is wrong."""
    wrong: str
    """What is wrong, with figures; empty if nothing is."""
    figure: str = ""
    """The first figure that is beyond what is allowed: `finite`, `whole`, `row`, `block`, `gain` or
    `scale`."""
    place: tuple[int, int, int] | None = None
    """Batch, head and row of the row that is most beyond what is allowed."""
    row_allowed: float = math.nan
    """The largest `worst` of that row that counts as right."""


def compare(
    torch: Any,
    tensors: tuple[Any, Any, Any],
    results: dict[str, Any],
    adjust: exact.Adjust,
    scale: float,
    rounding: Rounding,
    sample: Sample,
    upstream: Any = None,
) -> dict[str, Compared]:
    """Compare `results`: `out` and, with the `upstream` gradient, `dq`, `dk` and `dv`.

    All tensors are (batch, heads, length, size).
    """
    found = {name: _Rows(torch) for name in results}
    with torch.no_grad():
        for part in exact.parts(torch, tensors, adjust, scale, rounding, sample, upstream):
            found[part.name].add(part, results[part.name][part.place])
        exact_scores = not (rounding.steps or rounding.inputs)
        scale = _SCALE if exact_scores else _SYSTEMATIC
        shared = bool(rounding.steps)
        return {name: rows.evaluated(name, scale, shared) for name, rows in found.items()}


class _Rows:
    """Collects rows of one result. No number is transferred from the device before the end."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        #: Batch, head and number of rows of each part that was added.
        self._places: list[tuple[int, int, int]] = []
        self._columns: list[Any] = []

    def add(self, part: exact.Part, got: Any) -> None:
        """Add some rows."""
        torch, got = self._torch, got.double()
        off = got - part.exact
        strange = (~torch.isfinite(got)).sum(-1).double()
        slope = torch.zeros_like(off) if part.slope is None else part.slope
        batch, head, *rows = part.place
        order = rows[0] if rows else torch.arange(len(got), device=got.device)
        columns = [
            off.square().sum(-1),
            part.exact.square().sum(-1),
            part.noise.double(),
            (off * part.exact).sum(-1),
            (off * slope).sum(-1),
            slope.square().sum(-1),
            strange,
            strange * (part.exact == 0).all(-1),
            order.double(),
        ]
        self._columns.append(torch.stack(columns))
        self._places.append((batch, head, len(got)))

    def evaluated(self, name: str, scale: float, shared: bool) -> Compared:
        """Evaluate all rows that were added.

        `scale`: how far that of scores may be off. `shared`: all rows of a head have the rounding
        of its keys in common.
        """
        torch = self._torch
        if not self._columns:
            wrong = f"no row of {NAMES[name]} was compared"
            return Compared(math.nan, math.nan, math.nan, 0, math.inf, wrong)
        rows = torch.cat(self._columns, dim=1)
        off, size, noise, _, _, steep, *_ = rows
        sums = rows[:-1].sum(1)
        # NaN must not be lost: it is the largest. 0/0 is right, as the zeros of a masked row.
        alone = torch.where(off == 0, torch.zeros_like(off), off / noise)
        ratio, place = alone.nan_to_num(math.inf, math.inf).max(0)
        blocks = [_blocks(torch, one) for one in (off, noise)]
        block = torch.where(blocks[0] == 0, torch.zeros_like(blocks[0]), blocks[0] / blocks[1])
        worst_block, block_place = block.nan_to_num(math.inf, math.inf).max(0)
        # By how much chance may move the two factors.
        chance = torch.stack([(noise * size).sum(), (noise * steep).sum()])
        heads = len({place[:2] for place in self._places}) if shared else 0
        if heads > 1:
            chance = torch.maximum(chance, self._between_heads(rows))
        elif heads:
            chance = torch.stack([noise.sum() * size.sum(), noise.sum() * steep.sum()])
        # All numbers come in one transfer from the device: an index that is a tensor is one too.
        places = torch.stack([place, block_place * TILE])
        picked = rows.index_select(1, places)
        *numbers, row, first, where, start = torch.cat(
            [sums, chance, torch.stack([ratio, worst_block]), picked[:3, 0], picked[-1], places]
        ).tolist()
        worst, block_from = self._place(where, row), self._place(start, first)
        figures = _Figures(name, scale, heads, *numbers)
        found = figures.compared(len(off), self._words(worst), self._words(block_from))
        return found._replace(place=worst)

    def _between_heads(self, rows: Any) -> Any:
        """How far chance may move the two factors, from how they differ between heads: squares.

        A factor that all heads have in common adds nothing to it.
        """
        torch = self._torch
        heads = list(dict.fromkeys((batch, head) for batch, head, *_ in self._places))
        numbers = torch.tensor([heads.index((batch, head)) for batch, head, *_ in self._places])
        counts = torch.tensor([count for *_, count in self._places])
        owner = numbers.repeat_interleave(counts).to(rows.device)
        sums = rows.new_zeros(len(rows), len(heads)).index_add(1, owner, rows)
        _, size, _, gain, slope, steep, *_ = sums
        found = []
        for product, weight in ((gain, size), (slope, steep)):
            factor = product.sum() / weight.sum().clamp_min(_TINY)
            found.append((product - factor * weight).square().sum())
        return torch.stack(found) * (len(heads) / (len(heads) - 1))

    def _words(self, place: tuple[int, int, int]) -> str:
        """The place of a row in words."""
        batch, head, row = place
        sample = f" of sample {batch}" if self._places[-1][0] else ""
        return f"row {row} of head {head}{sample}"

    def _place(self, number: float, row: float) -> tuple[int, int, int]:
        """Batch, head and row of the row with this number."""
        for batch, head, count in self._places:
            if number < count:
                return (batch, head, int(row))
            number -= count
        raise AssertionError(f"row {number} was not added")


def _blocks(torch: Any, column: Any) -> Any:
    short = -len(column) % TILE
    return torch.nn.functional.pad(column, (0, short)).view(-1, TILE).sum(1)


class _Share(NamedTuple):
    """A figure's share of what is allowed, and what to say if it is more than that."""

    figure: str
    share: float
    words: str


class _Figures(NamedTuple):
    """Sums over all rows, and figures of the worst row and block."""

    name: str
    systematic_scale: float
    shared: int
    """How many heads have roundings that all their rows share; 0 if no head has."""
    off: float
    size: float
    noise: float
    gain: float
    slope: float
    steep: float
    strange: float
    strange_zeros: float
    gain_chance: float
    slope_chance: float
    row: float
    block: float
    row_off: float
    row_size: float
    row_noise: float

    def compared(self, rows: int, row: str, block: str) -> Compared:
        """Evaluate them; `row` and `block` are the worst ones in words."""
        error, allowed = (
            _ratio(self.off, self.size),
            self._limits.whole * _ratio(self.noise, self.size),
        )
        usual = max(self.row_size, self.size / rows)
        shares = self._shares(error, allowed, usual, row, block)
        # NaN is the largest.
        margin = max((one.share if one.share == one.share else math.inf) for one in shares)
        wrong = next((one for one in shares if not one.share <= 1.0), None)
        return Compared(
            error, allowed, _ratio(self.row_off, usual), rows, margin,
            wrong.words if wrong else "",
            wrong.figure if wrong else "",
            row_allowed=self._limits.row * _ratio(self.row_noise, usual),
        )  # fmt: skip

    @property
    def _limits(self) -> _Limits:
        limits = _OUT if self.name == "out" else _GRADIENT
        if not self.shared:
            return limits
        return limits._replace(whole=limits.whole * (1 + _SHARED / self.shared))

    def _shares(
        self, error: float, allowed: float, usual: float, row: str, block: str
    ) -> list[_Share]:
        what, limits = NAMES[self.name], self._limits
        flatter = _FLATTER * _ratio(self.noise, self.size) ** 2
        gain, gain_limit = _factor(self.gain, self.size, self.gain_chance, _SYSTEMATIC + flatter)
        scale, scale_limit = _factor(
            self.slope, self.steep, self.slope_chance, self.systematic_scale + flatter
        )
        return [
            _Share(
                "finite",
                math.inf if self.strange else 0.0,
                f"{what} holds {self.strange:.0f} values that are not finite (NaN or infinity)"
                f"{self._in_zeros()}",
            ),
            _Share(
                "whole",
                _ratio(self.off, self.noise) / limits.whole,
                f"{what} is off by {error:.2g}, most in {row}; {allowed:.2g} is allowed"
                f"{self._as_scale()}",
            ),
            _Share(
                "row",
                self.row**0.5 / limits.row,
                f"{row} of {what} is off by {_ratio(self.row_off, usual):.2g};"
                f" {limits.row * _ratio(self.row_noise, usual):.2g} is allowed",
            ),
            _Share(
                "block",
                self.block**0.5 / limits.block,
                f"{what} is off by {self.block**0.5:.2g} times its expected rounding in the rows"
                f" from {block} on; {limits.block:g} times is allowed",
            ),
            _Share(
                "gain",
                abs(gain) / gain_limit,
                f"{what} is {gain:+.1%} too large on average; {gain_limit:.1%} is allowed",
            ),
            _Share(
                "scale",
                abs(scale) / scale_limit,
                f"{what} is that of a scale {scale:+.1%} off; {scale_limit:.1%} is allowed",
            ),
        ]

    def _in_zeros(self) -> str:
        """A remark if only rows are not finite that are zero, as those whose keys are masked."""
        if self.strange != self.strange_zeros:
            return ""
        return " in rows for which all keys are masked; zeros are right there"

    def _as_scale(self) -> str:
        """A remark if most of the error is that of another scale."""
        if not self.steep or not self.off:
            return ""
        scale = self.slope / self.steep
        explained = self.slope * scale / self.off
        return f" (it is that of a scale {scale:+.1%} off)" if explained > 0.5 else ""


def _ratio(one: float, other: float) -> float:
    """The root of a quotient of squares; 0/0 is 0."""
    if one == 0.0:
        return 0.0
    return (one / other) ** 0.5 if other > 0 else math.inf


def _factor(product: float, size: float, chance: float, systematic: float) -> tuple[float, float]:
    """A factor, and how large it may be: systematic, and by chance."""
    if not size > 0:
        return 0.0, math.inf
    return product / size, systematic + _CHANCE * chance**0.5 / size
