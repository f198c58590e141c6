"""Which rows of queries are compared: rows of every head and both sides of every tile boundary.

The reference costs up to a hundred times as much as the kernel, so long calls are sampled. Rows are
taken from all heads, not all rows from a few heads: a kernel that is wrong in one head, or beside
one boundary of its tiles, is then seen.
"""

from __future__ import annotations

from typing import Any, NamedTuple

#: Kernels take rows in tiles of multiples of it.
TILE = 64
#: float64 operations for each score and element of a head, and those steps that are not products,
#: which take as long as those of so many elements.
_FORWARD, _BACKWARD, _STEPS = 8.0, 20.0, 32
#: float64 operations that one call may cost: on CPUs, on GPUs, on GPUs made for float64.
_OPERATIONS = (1e10, 8e11, 1e13)
#: Rows of each head besides boundaries that are compared whatever it costs.
_LEAST = 14
#: Later calls may cost this share of the first, and compare so many rows of a head besides.
_LATER, _MOST = 0.1, 320


def operations(torch: Any, device: str) -> float:
    """float64 operations that the comparison of the first call may take on a device."""
    if not device.startswith("cuda"):
        return _OPERATIONS[0]
    major, minor = torch.cuda.get_device_capability(device)
    return _OPERATIONS[2] if (major, minor) in ((8, 0), (9, 0), (10, 0)) else _OPERATIONS[1]


class Sample(NamedTuple):
    """Rows of one call."""

    length: int
    each: int
    """How many of each head, about; all if it is the length."""
    heads: int
    """Heads of all samples of the batch together."""
    seed: int

    @property
    def whole(self) -> bool:
        """All rows are compared."""
        return self.each >= self.length

    def rows(self, torch: Any, head: int, device: Any) -> Any:
        """The rows of the head with this number, sorted; (rows,) of int64."""
        if self.whole:
            return torch.arange(self.length, device=device)
        edges = boundaries(self.length)
        # Where the rows of one head do not reach for all boundaries, heads take turns.
        step = max(1, -(-len(edges) // (self.each - 2)))
        fixed = torch.tensor([0, self.length - 1, *edges[(head + self.seed) % step :: step]])
        generator = torch.Generator().manual_seed(1000 * self.seed + head)
        spare = max(0, self.each - len(fixed))
        more = torch.randint(self.length, (spare,), generator=generator)
        return torch.cat([fixed, more]).unique().to(device)


def boundaries(length: int) -> list[int]:
    """The last row of each tile and the first of the next, without the ends of the sequence."""
    edges = (row for edge in range(TILE, length, TILE) for row in (edge - 1, edge))
    return [row for row in edges if 0 < row < length - 1]


def sample(
    shape: tuple[int, int, int, int],
    kv_length: int,
    *,
    training: bool,
    allowed: float,
    call: int,
    seed: int = 0,
) -> Sample:
    """The rows to compare of queries of a shape (batch, heads, length, size).

    `allowed`: float64 operations for the first call; `call`: its number, from 0. At least so many
    rows are taken that every boundary is compared in some head.
    """
    batch, heads, length, size = shape
    per_row = (_BACKWARD if training else _FORWARD) * kv_length * (size + _STEPS)
    fitting = int(allowed * (_LATER if call else 1.0) / (per_row * batch * heads))
    if call:
        fitting = min(fitting, _MOST)
    least = _LEAST + -(-len(boundaries(length)) // (batch * heads))
    return Sample(length, min(length, max(least, fitting)), batch * heads, seed)
