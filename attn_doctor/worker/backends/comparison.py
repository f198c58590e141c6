"""Attention in float64, piece by piece, held against what a backend returned.

Nothing of the size of all scores is ever in memory: one head and some rows of queries at a time.
The errors are relative: the length of the difference over the length of the right answer, as a
whole, and for the worst single row, so that one wrong row in a hundred thousand is seen as well.
"""

from __future__ import annotations

import math
from typing import Any

import torch

#: Rows of queries that are looked at together.
ROWS = 1024


class _Difference:
    """Sums the difference between some rows and what they should be."""

    def __init__(self) -> None:
        self.error: list[Any] = []
        self.right: list[Any] = []
        self.broken: Any = 0

    def add(self, got: Any, right: Any) -> None:
        """Take in some rows; the last dimension is one row."""
        self.error.append((got - right).norm(dim=-1).flatten())
        self.right.append(right.norm(dim=-1).flatten())
        self.broken = self.broken + (~torch.isfinite(got)).sum()

    def result(self) -> dict[str, Any]:
        error, right = torch.cat(self.error), torch.cat(self.right)
        usual = right.norm() / math.sqrt(right.numel())
        # A row may rightly be zero, as the first query's gradient is under a causal mask.
        worst = (error / torch.maximum(right, usual)).max()
        return {
            "error": _number(error.norm() / right.norm()),
            "worst": _number(worst),
            "not_finite": int(self.broken),
        }


def _number(value: Any) -> float | None:
    """A float that JSON can carry; None if it is not finite."""
    number = float(value)
    return number if math.isfinite(number) else None


def scratch_bytes(rows: int, keys: int, head_dim: int) -> int:
    """Bytes of memory that `compare` needs beside its arguments, about."""
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
    where = "cpu" if out.device.type == "mps" else out.device
    query, key, value = (one.detach().to(where) for one in inputs)
    batch, rows, heads, head_dim = query.shape
    keys, kv_heads = key.shape[1], key.shape[2]
    scale = 1 / math.sqrt(head_dim)
    names = ["out", "dq", "dk", "dv"] if gradients is not None else ["out"]
    found = {name: _Difference() for name in names}
    for item in range(batch):
        for head in range(kv_heads):
            k = key[item, :, head].double()
            v = value[item, :, head].double()
            dk, dv = torch.zeros_like(k), torch.zeros_like(v)
            group = heads // kv_heads
            for q_head in range(head * group, (head + 1) * group):
                for first in range(0, rows, ROWS):
                    part = slice(first, min(rows, first + ROWS))
                    q = query[item, part, q_head].double()
                    scores = (q @ k.T) * scale
                    hidden = _hidden(mask, causal, item, q_head, part, keys, where)
                    if hidden is not None:
                        scores = scores.masked_fill(hidden, -math.inf)
                    weights = torch.softmax(scores, dim=-1)
                    right = weights @ v
                    found["out"].add(out[item, part, q_head].detach().to(where).double(), right)
                    if gradients is None:
                        continue
                    up = upstream[item, part, q_head].to(where).double()
                    dv += weights.T @ up
                    inner = (up * right).sum(-1, keepdim=True)
                    change = weights * (up @ v.T - inner) * scale
                    found["dq"].add(_slice(gradients[0], item, part, q_head, where), change @ k)
                    dk += change.T @ q
            if gradients is not None:
                whole = slice(0, keys)
                found["dk"].add(_slice(gradients[1], item, whole, head, where), dk)
                found["dv"].add(_slice(gradients[2], item, whole, head, where), dv)
    return {name: one.result() for name, one in found.items()}


def _slice(gradient: Any, item: int, part: slice, head: int, where: Any) -> Any:
    return gradient[item, part, head].to(where).double()


def _hidden(
    mask: Any, causal: bool, item: int, head: int, part: slice, keys: int, where: Any
) -> Any:
    """The scores to leave out, as a boolean matrix of these rows, or None."""
    hidden = None
    if mask is not None:
        own = mask[min(item, mask.shape[0] - 1), min(head, mask.shape[1] - 1)]
        own = own if own.shape[0] == 1 else own[part]
        hidden = ~own.to(where)
    if causal:
        row = torch.arange(part.start, part.stop, device=where)[:, None]
        later = torch.arange(keys, device=where)[None, :] > row
        hidden = later if hidden is None else hidden | later
    return hidden
