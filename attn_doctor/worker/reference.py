"""Attention in float64 as a function that torch can differentiate, a few rows at a time.

A whole matrix of scores is never in memory.
"""

from __future__ import annotations

from typing import Any

#: Scores held at once, in elements of float64.
_CHUNK = 1 << 26


def backward(
    query: Any, key: Any, value: Any, weights: Any, out: Any, gradient: Any, scale: float
) -> tuple[Any, Any, Any]:
    """Gradients of queries, keys and values, for some rows of queries.

    Shapes are (…, rows, size); `weights` is the softmax of these rows, `out` their output, and
    `gradient` its gradient. The gradients of keys and values have to be summed over all rows.
    """
    inner = (gradient * out).sum(-1, keepdim=True)
    change = weights * (gradient @ value.mT - inner) * scale
    return change @ key, change.mT @ query, weights.mT @ gradient


def scaled_dot_product(torch: Any) -> Any:
    """A function like `torch.nn.functional.scaled_dot_product_attention`, a few rows at a time.

    torch's own for float64 holds all scores, forward and backward. Shapes are (batch, heads,
    length, size). A mask is bool, True where a key is seen, or is added; it gets no gradient.
    """

    class Exact(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(
            ctx: Any, query: Any, key: Any, value: Any, mask: Any, causal: bool, scale: float
        ) -> Any:
            out = query.new_empty(*query.shape[:3], value.shape[3])
            for rows in _chunks(query, key):
                weights = _softmax(torch, query[:, :, rows], key, mask, causal, scale, rows)
                out[:, :, rows] = weights @ value
            ctx.save_for_backward(query, key, value, mask, out)
            ctx.causal, ctx.scale = causal, scale
            return out

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            query, key, value, mask, out = ctx.saved_tensors
            dq, dk, dv = (torch.zeros_like(one) for one in (query, key, value))
            for rows in _chunks(query, key):
                part = query[:, :, rows]
                weights = _softmax(torch, part, key, mask, ctx.causal, ctx.scale, rows)
                changes = backward(
                    part, key, value, weights, out[:, :, rows], grad[:, :, rows], ctx.scale
                )
                dq[:, :, rows] = changes[0]
                dk += changes[1]
                dv += changes[2]
            return dq, dk, dv, None, None, None

    def attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: Any = None,
        enable_gqa: bool = False,
    ) -> Any:
        if dropout_p:
            raise ValueError("a result with dropout cannot be compared with another")
        if enable_gqa:
            key, value = (
                one.repeat_interleave(query.shape[1] // one.shape[1], 1) for one in (key, value)
            )
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        return Exact.apply(query, key, value, attn_mask, is_causal, scale)

    return attention


def _chunks(query: Any, key: Any) -> Any:
    """Ranges of rows whose scores are held together."""
    batch, heads, length, _ = query.shape
    step = max(1, _CHUNK // (batch * heads * key.shape[2]))
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


def _softmax(
    torch: Any, query: Any, key: Any, mask: Any, causal: bool, scale: float, rows: slice
) -> Any:
    scores = query @ key.mT * scale
    if mask is not None:
        part = mask[..., rows, :] if mask.shape[-2] > 1 else mask
        added = mask.dtype != torch.bool
        scores = scores + part if added else scores.masked_fill(~part, float("-inf"))
    if causal:
        row = torch.arange(rows.start, rows.stop, device=scores.device)[:, None]
        column = torch.arange(key.shape[2], device=scores.device)[None, :]
        scores = scores.masked_fill(column > row, float("-inf"))
    # A row without a key has the result 0, not 0/0.
    empty = (scores == float("-inf")).all(-1, keepdim=True)
    return torch.softmax(scores, dim=-1).masked_fill(empty, 0.0)
