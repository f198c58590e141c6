"""Compares what a backend returned with attention in float64.

Nothing of the size of all scores is ever in memory: one head and some rows of queries at a time.
The errors are relative: the norm of the difference over the norm of the right answer, in all, and
for the worst single row, so that one wrong row in a hundred thousand is seen as well.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from attn_doctor.worker.reference import exact_parts

#: Rows of queries that are compared together.
ROWS = 1024


class _Difference:
    """Collects the differences between rows and what they should be."""

    def __init__(self) -> None:
        self.error: list[Any] = []
        self.right: list[Any] = []
        self.broken: Any = 0

    def add(self, got: Any, right: Any) -> None:
        """Add some rows; the last dimension is one row."""
        self.error.append((got - right).norm(dim=-1).flatten())
        self.right.append(right.norm(dim=-1).flatten())
        self.broken = self.broken + (~torch.isfinite(got)).sum()

    def result(self) -> dict[str, Any]:
        error, right = torch.cat(self.error), torch.cat(self.right)
        usual = right.norm() / math.sqrt(right.numel())
        # A right row may be zero, as the gradient of the first query is under a causal mask.
        worst = (error / torch.maximum(right, usual)).max()
        return {
            "error": _number(error.norm() / right.norm()),
            "worst": _number(worst),
            "not_finite": int(self.broken),
        }


def _number(value: Any) -> float | None:
    """A float that JSON can represent; None if it is not finite."""
    number = float(value)
    return number if math.isfinite(number) else None


def scratch_bytes(rows: int, keys: int, head_dim: int) -> int:
    """Bytes of memory that `compare` needs besides its arguments, roughly."""
    return 8 * (6 * min(rows, ROWS) * keys + 10 * (rows + keys) * head_dim)


def compare(
    inputs: tuple[Any, Any, Any],
    out: Any,
    *,
    mask: Any = None,
    causal: bool = False,
    upstream: Any = None,
    gradients: tuple[Any, Any, Any] | None = None,
) -> dict[str, dict[str, Any]]:
    """Errors of `out`, and of `gradients` for `upstream`, per tensor.

    All tensors are (batch, length, heads, head_dim); `mask` is boolean and broadcasts to (batch,
    heads, queries, keys), true where a query may see a key.
    """
    # Apple's GPUs know no float64.
    device = "cpu" if out.device.type == "mps" else out.device

    def heads_first(tensor: Any) -> Any:
        return tensor.detach().to(device).transpose(1, 2)

    query, key, value = map(heads_first, inputs)
    results = {"out": heads_first(out)}
    if gradients is not None:
        results.update(zip(("dq", "dk", "dv"), map(heads_first, gradients)))  # noqa: B905

    def weights(scores: Any, batch: int, head: int, rows: slice) -> Any:
        hidden = _hidden(mask, causal, batch, head, rows, key.shape[2], device)
        if hidden is not None:
            scores = scores.masked_fill(hidden, -math.inf)
        return torch.softmax(scores, dim=-1)

    found = {name: _Difference() for name in results}
    for name, index, exact in exact_parts(
        (query, key, value),
        weights,
        1 / math.sqrt(query.shape[3]),
        gradient=heads_first(upstream) if gradients is not None else None,
        kv_heads=range(key.shape[1]),
        ranges=[(0, query.shape[2])],
        step=ROWS,
    ):
        found[name].add(results[name][index].double(), exact)
    return {name: difference.result() for name, difference in found.items()}


def _hidden(
    mask: Any, causal: bool, batch: int, head: int, rows: slice, keys: int, device: Any
) -> Any:
    """The scores to leave out, as a boolean matrix of these rows, or None."""
    hidden = None
    if mask is not None:
        own = mask[min(batch, mask.shape[0] - 1), min(head, mask.shape[1] - 1)]
        own = own if own.shape[0] == 1 else own[rows]
        hidden = ~own.to(device)
    if causal:
        row = torch.arange(rows.start, rows.stop, device=device)[:, None]
        later = torch.arange(keys, device=device)[None, :] > row
        hidden = later if hidden is None else hidden | later
    return hidden
