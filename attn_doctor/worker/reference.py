"""Attention and its gradients in float64, a few rows at a time, and the errors of a result.

A whole matrix of scores is never in memory. Where computing everything would take too long, some
heads are computed, and of very long sequences some rows: the gradient that is fed in is then zero
in the other rows, so that the gradients of keys and values stay exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

#: Scores held at once, in elements of float64.
_CHUNK = 1 << 23
#: Rows that are taken together where only some are.
_ROWS = 64


class Sample(NamedTuple):
    """The part of a call that is compared."""

    kv_heads: tuple[int, ...]
    rows: tuple[tuple[int, int], ...]
    """Ranges of query rows; everything is one range."""
    whole: bool
    """All rows are compared."""


def limit(dtype: str) -> float:
    """Largest relative error that counts as right. bf16 has 8 bits, so 2**-8 for one rounding."""
    return {"bfloat16": 1e-2, "float16": 5e-3}.get(dtype, 3e-3)


def sample(spec: dict[str, Any], length: int, operations: float) -> Sample:
    """Heads and rows to compare, so that about `operations` float64 operations suffice."""
    heads = spec["heads"]
    kv_heads = spec.get("kv_heads") or heads
    group = heads // kv_heads
    kv_length = spec.get("kv_length") or length
    per_row = 14.0 * spec.get("batch", 1) * group * kv_length * spec["head_dim"]
    fitting = int(operations / max(per_row * length, 1.0))
    if fitting >= kv_heads:
        return Sample(tuple(range(kv_heads)), ((0, length),), True)
    if fitting >= 1:
        step = kv_heads / fitting
        return Sample(tuple(sorted({int(i * step) for i in range(fitting)})), ((0, length),), True)
    blocks = max(2, int(operations / (per_row * _ROWS)))
    starts = [int(i * (length - _ROWS) / (blocks - 1)) for i in range(blocks)]
    ranges: list[tuple[int, int]] = []
    for start in starts:
        start = max(start, ranges[-1][1] if ranges else 0)
        if start + _ROWS <= length:
            ranges.append((start, start + _ROWS))
    return Sample((0, kv_heads - 1)[: min(2, kv_heads)], tuple(ranges), False)


def masked_gradient(torch: Any, out: Any, part: Sample) -> Any:
    """A random gradient of `out` with its strides, zero in rows that are not compared."""
    gradient = torch.randn_like(out)
    if not part.whole:
        keep = torch.zeros(out.shape[2], device=out.device, dtype=torch.bool)
        for start, end in part.rows:
            keep[start:end] = True
        gradient *= keep[None, None, :, None]
    return gradient


def errors(
    torch: Any, call: Any, results: dict[str, Any], gradient: Any, scale: float, part: Sample
) -> tuple[dict[str, float], dict[str, float]]:
    """Relative errors of `out` and, if they are given, `dq`, `dk`, `dv`; then the worst of a part.

    The first are norms over all that is compared; the second is the largest over blocks of rows,
    so that a few wrong rows cannot hide in many right ones.
    """
    # Numbers stay on the device to the end: beside other jobs, each transfer waits for its turn.
    sums = {name: results[name].new_zeros(3, dtype=torch.float64) for name in results}

    def weights(scores: Any, batch: int, head: int, rows: slice) -> Any:
        return _weights(torch, call, scores, (batch, head), rows)

    parts = exact_parts(
        (call.query, call.key, call.value),
        weights,
        scale,
        gradient=gradient if "dq" in results else None,
        kv_heads=part.kv_heads,
        ranges=part.rows,
        step=max(1, _CHUNK // call.key.shape[2]),
    )
    with torch.no_grad():
        for name, index, exact in parts:
            _add(torch, results[name][index], exact, sums[name])
    numbers = {name: found.tolist() for name, found in sums.items()}
    total = {
        name: (off / size) ** 0.5 if size else (0.0 if off == 0 else float("inf"))
        for name, (off, size, _) in numbers.items()
    }
    return total, {name: worst**0.5 for name, (_, _, worst) in numbers.items()}


def exact_parts(
    tensors: tuple[Any, Any, Any],
    weights: Callable[[Any, int, int, slice], Any],
    scale: float,
    *,
    gradient: Any = None,
    kv_heads: Sequence[int],
    ranges: Sequence[tuple[int, int]],
    step: int,
) -> Iterator[tuple[str, tuple[Any, ...], Any]]:
    """Yield attention in float64 part by part: a name, an index, and the exact values there.

    `tensors`: queries, keys and values, (batch, heads, length, size); one batch of keys and values
    serves all if there is one only. `weights(scores, batch, head, rows)`: the softmax after a mask.
    `gradient`: of the output; with it come `dq`, `dk`, `dv` besides `out`. Only `kv_heads` and the
    `ranges` of query rows are computed, `step` rows at a time.
    """
    queries, keys, values = tensors
    group = queries.shape[1] // keys.shape[1]
    for batch, kv_head in itertools.product(range(queries.shape[0]), kv_heads):
        place = (min(batch, keys.shape[0] - 1), kv_head)
        key, value = keys[place].double(), values[place].double()
        dk, dv = key.new_zeros(key.shape), value.new_zeros(value.shape)
        for head in range(kv_head * group, (kv_head + 1) * group):
            for begin, end in ranges:
                for start in range(begin, end, step):
                    rows = slice(start, min(start + step, end))
                    index = (batch, head, rows)
                    query = queries[index].double()
                    used = weights(query @ key.mT * scale, *index)
                    out = used @ value
                    yield "out", index, out
                    if gradient is None:
                        continue
                    changes = backward(
                        query, key, value, used, out, gradient[index].double(), scale
                    )
                    yield "dq", index, changes[0]
                    dk += changes[1]
                    dv += changes[2]
        if gradient is not None:
            yield "dk", place, dk
            yield "dv", place, dv


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


def _weights(torch: Any, call: Any, scores: Any, place: tuple[int, int], rows: slice) -> Any:
    """Softmax of the scores after the mask; zero in a row whose keys are all masked."""
    batch, head = place
    b = torch.full((), batch, device=scores.device)
    h = torch.full((), head, device=scores.device)
    q = torch.arange(rows.start, rows.stop, device=scores.device)[:, None]
    kv = torch.arange(scores.shape[1], device=scores.device)[None, :]
    if call.score_mod is not None:
        scores = call.score_mod(scores, b, h, q, kv)
    if call.mask_mod is not None:
        scores = scores.masked_fill(~call.mask_mod(b, h, q, kv), float("-inf"))
    return torch.nan_to_num(torch.softmax(scores, dim=-1), nan=0.0)


def _add(torch: Any, seen: Any, true: Any, found: Any) -> None:
    """Add to `found`: squares of the differences and of the true values, and the worst ratio.

    No number is transferred from the device.
    """
    off = (seen.double() - true).square().sum(-1)
    size = true.square().sum(-1)
    whole = size.sum()
    found[0] += off.sum()
    found[1] += whole
    count = -(-true.shape[0] // _ROWS)
    short = count * _ROWS - true.shape[0]
    off, size = (torch.nn.functional.pad(one, (0, short)) for one in (off, size))
    # In rows that are nearly zero, any rounding would look large.
    floor = whole / max(1, count) * 0.01
    ratios = off.view(-1, _ROWS).sum(-1) / (size.view(-1, _ROWS).sum(-1) + floor).clamp_min(1e-300)
    # NaN must not be lost: `amax` and `maximum` keep it.
    found[2] = torch.maximum(found[2], ratios.amax())


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
    step = max(1, 8 * _CHUNK // (batch * heads * key.shape[2]))
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
    return torch.softmax(scores, dim=-1)
