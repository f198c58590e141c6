"""Wrong attentions: each has one fault that real kernels had, or a kernel could have.

They run in the examined interpreter, which has torch and nothing of the tests: this file imports
nothing else. Tensors are (batch, heads, length, size). `make(name)` returns a function with a
memory of its own; the fault `""` is none: that one rounds as a fused bfloat16 kernel does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

#: A tile of queries or keys.
TILE = 64
LOG2 = 0.6931471805599453
Change = Callable[..., Any]


class Fault(NamedTuple):
    """Where a kernel goes wrong; each part gets `call`, which says what is asked for."""

    scale: Change | None = None
    """`(scale, call)`"""
    keys: Change | None = None
    """`(key, value, call)`, with as many heads as queries"""
    scores: Change | None = None
    """`(scores, call)`, in float32, before the mask"""
    hidden: Change | None = None
    """`(hidden, call)`: which scores are masked, True; None: none"""
    bias: Change | None = None
    """`(bias, call)`: what is added; None: nothing"""
    exponent: Change | None = None
    """`(scores, maximum, call)`: the numbers that are summed"""
    total: Change | None = None
    """`(total, weights, call)`"""
    weights: Change | None = None
    """`(weights, call)`, not divided by their total"""
    out: Change | None = None
    """`(out, call)`"""
    upstream: Change | None = None
    """`(gradient, call)`"""
    lse: Change | None = None
    """`(lse, call)`, in the backward"""
    delta: Change | None = None
    """`(delta, call)`: the product of output and gradient"""
    gradients: Change | None = None
    """`(dq, dk, dv, call)`, with as many heads as queries for all"""
    around: Change | None = None
    """`(attention, query, key, value, call)`: in place of calling it once"""
    needs: tuple[str, ...] = ()
    """What the call must have: `causal`, `mask`, `gqa`, `bias`"""
    backward: bool = False
    """Only a gradient is wrong."""


def attend(fault: Fault, query: Any, key: Any, value: Any, call: Any) -> Any:
    """Attention with a fault. `call`: `scale`, `causal`, `hidden`, `bias`, and its own memory."""
    if fault.around is not None:
        return fault.around(
            lambda *given: _Kernel.apply(*given, fault, call), query, key, value, call
        )
    return _Kernel.apply(query, key, value, fault, call)


def make(name: str) -> Callable[..., Any]:
    """A function `(query, key, value, *, scale, causal, hidden, bias)` with the fault `name`."""
    fault, memory = FAULTS[name], SimpleNamespace(calls=0)

    def attention(
        query: Any, key: Any, value: Any, *, scale: float = 0.0, causal: bool = False,
        hidden: Any = None, bias: Any = None,
    ) -> Any:  # fmt: skip
        memory.calls += 1
        call = SimpleNamespace(
            scale=scale or query.shape[-1] ** -0.5, causal=causal, hidden=hidden, bias=bias,
            memory=memory, dtype=query.dtype, rows=query.shape[2], columns=key.shape[2],
        )  # fmt: skip
        return attend(fault, query, key, value, call)

    return attention


def _or(change: Change | None, value: Any, *given: Any) -> Any:
    return value if change is None else change(value, *given)


class _Kernel(torch.autograd.Function):  # type: ignore[misc]
    """A fused kernel in the plainest form: scores in float32, weights as narrow as the inputs."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, fault: Fault, call: Any) -> Any:
        group = query.shape[1] // key.shape[1]
        keys, values = (one.repeat_interleave(group, 1) for one in (key, value))
        if fault.keys is not None:
            keys, values = fault.keys(keys, values, call)
        scale = _or(fault.scale, call.scale, call)
        scores = _or(fault.scores, (query.float() @ keys.float().mT) * scale, call)
        bias = _or(fault.bias, call.bias, call)
        if bias is not None:
            scores = scores + bias.float()
        hidden = _or(fault.hidden, _hidden(call, query.device), call)
        if hidden is not None:
            scores = scores.masked_fill(hidden, float("-inf"))
        maximum = scores.amax(-1, keepdim=True).clamp_min(-1e30)
        exponent = fault.exponent or (lambda one, most, _: torch.exp(one - most))
        weights = exponent(scores, maximum, call)
        total = weights.sum(-1, keepdim=True)
        if fault.total is not None:
            total = fault.total(total, weights, call)
        lse = maximum + torch.log(total)
        weights = _or(fault.weights, weights, call)
        out = (weights.to(call.dtype).float() @ values.float()) / total.clamp_min(1e-38)
        out = _or(fault.out, out.to(call.dtype), call)
        ctx.save_for_backward(query, keys, values, scores, lse, out)
        ctx.fault, ctx.call, ctx.group, ctx.scale = fault, call, group, scale
        return out

    @staticmethod
    def backward(ctx: Any, upstream: Any) -> Any:
        query, keys, values, scores, lse, out = ctx.saved_tensors
        fault, call, dtype = ctx.fault, ctx.call, ctx.call.dtype
        upstream = _or(fault.upstream, upstream, call)
        lse = _or(fault.lse, lse, call)
        weights = torch.nan_to_num(torch.exp(scores - lse), nan=0.0, posinf=0.0)
        delta = _or(fault.delta, (upstream.float() * out.float()).sum(-1, keepdim=True), call)
        product = upstream.float() @ values.float().mT
        change = (weights * (product - delta)).to(dtype).float() * ctx.scale
        dq, dk = change @ keys.float(), change.mT @ query.float()
        dv = weights.to(dtype).float().mT @ upstream.float()
        if fault.gradients is not None:
            dq, dk, dv = fault.gradients(dq, dk, dv, call)
        if ctx.group > 1:
            dk, dv = (one.unflatten(1, (-1, ctx.group)).sum(2) for one in (dk, dv))
        return dq.to(dtype), dk.to(dtype), dv.to(dtype), None, None


def _hidden(call: Any, device: Any) -> Any:
    if not call.causal:
        return call.hidden
    past = ~torch.ones(call.rows, call.columns, dtype=torch.bool, device=device).tril()
    return past if call.hidden is None else call.hidden | past


# Faults of scores, weights and masks


def _softcap(most: float) -> Change:
    return lambda scores, _: most * torch.tanh(scores / most)


def _part(tensor: Any, dimension: int, start: int, size: int, change: Change) -> Any:
    tensor = tensor.clone()
    part = tensor.narrow(dimension, start, size)
    part.copy_(change(part))
    return tensor


def _beyond(tensor: Any, dimension: int, tile: int = TILE) -> tuple[int, int]:
    """Where the last tile of a dimension begins, and its size."""
    length = tensor.shape[dimension]
    start = (length - 1) // tile * tile
    return start, length - start


def _unseen(scores: Any) -> Any:
    return scores - 1e4


def _zero_tail(tensor: Any, dimension: int) -> Any:
    return _part(tensor, dimension, *_beyond(tensor, dimension), torch.zeros_like)


def _rolled(hidden: Any, call: Any) -> Any:
    return None if hidden is None else hidden.roll(1, -1)


def _first_sample(hidden: Any, call: Any) -> Any:
    return None if hidden is None else hidden[:1].expand_as(hidden)


def _only_first_keys(hidden: Any, call: Any) -> Any:
    if hidden is None:
        return None
    hidden = hidden.clone()
    hidden[..., TILE:] = False
    return hidden


def _odd_heads_see_all(hidden: Any, call: Any) -> Any:
    if hidden is None:
        return None
    hidden = hidden.clone()
    hidden[:, 1::2] = False
    return hidden


def _causal_by(offset: int) -> Change:
    def changed(hidden: Any, call: Any) -> Any:
        past = torch.ones(call.rows, call.columns, dtype=torch.bool).tril(offset)
        return ~past.to(hidden.device)

    return changed


def _whole_tiles(hidden: Any, call: Any) -> Any:
    rows, columns = (torch.arange(n, device=hidden.device) // TILE for n in hidden.shape[-2:])
    return columns[None, :] > rows[:, None]


def _without_maximum(scores: Any, maximum: Any, call: Any) -> Any:
    call.shift = 0.0
    return torch.exp(scores) / torch.exp(maximum)


def _first_tile_maximum(scores: Any, maximum: Any, call: Any) -> Any:
    """The maximum of the first tile stays that of all."""
    first = scores[..., :TILE].amax(-1, keepdim=True).clamp_min(-1e30)
    return torch.exp(scores - first) / torch.exp(maximum - first)


def _unscaled_tiles(scores: Any, maximum: Any, call: Any) -> Any:
    """What was summed is not scaled down when a later tile has a larger maximum."""
    tiles = [
        torch.exp(tile - tile.amax(-1, keepdim=True).clamp_min(-1e30))
        for tile in scores.split(2 * TILE, -1)
    ]
    return torch.cat(tiles, -1)


def _last_keys_of_tiles(scores: Any, call: Any) -> Any:
    scores = scores.clone()
    scores[..., TILE - 1 :: TILE] = -1e4
    return scores


def _powers_in_one_row(scores: Any, maximum: Any, call: Any) -> Any:
    weights = torch.exp(scores - maximum)
    row = min(TILE, scores.shape[2] - 1)
    weights[:, :, row] = torch.exp2((scores - maximum)[:, :, row])
    return weights


def _small_dropped(weights: Any, call: Any) -> Any:
    """As sparse kernels do, which leave out what weighs little."""
    return weights * (weights > 2.0**-8)


def _dropout(weights: Any, call: Any) -> Any:
    return weights * (torch.rand_like(weights) > 0.001)


def _log2e_in_bfloat16(scores: Any, maximum: Any, call: Any) -> Any:
    return torch.exp2((scores - maximum) * 1.4453125)


def _shifted_in_one_tile(hidden: Any, call: Any) -> Any:
    if hidden is None:
        return None
    hidden = hidden.expand(*hidden.shape[:2], call.rows, call.columns)
    return _part(hidden, 2, TILE, min(TILE, call.rows - TILE), lambda one: one.roll(1, -1))


def _finite_mask(scores: Any, maximum: Any, call: Any) -> Any:
    """Masked scores are large negative numbers, so that rows without a key get all of them."""
    return torch.exp(scores.clamp_min(-1e30) - maximum)


def _nan_without_keys(out: Any, call: Any) -> Any:
    """0 / 0."""
    hidden = _hidden(call, out.device)
    if hidden is None:
        return out
    empty = hidden.expand(-1, -1, call.rows, -1).all(-1, keepdim=True)
    return out.masked_fill(empty, float("nan"))


def _fp8(tensor: Any) -> Any:
    return tensor.to(torch.float8_e4m3fn).to(tensor.dtype)


# Faults of memory and layout


def _contiguous(attention: Any, query: Any, key: Any, value: Any, call: Any) -> Any:
    """Memory is read as if tensors were contiguous."""

    def read(tensor: Any) -> Any:
        if tensor.is_contiguous():
            return tensor
        flat = tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())
        return flat.view(tensor.shape)

    try:
        return attention(read(query), read(key), read(value))
    except RuntimeError:  # beyond the end of the memory
        return attention(query.flip(2), key, value)


def _by_heads(attention: Any, query: Any, key: Any, value: Any, call: Any) -> Any:
    """Wrong only where (batch, heads, length, size) does not lie in memory in that order."""
    out = attention(query, key, value)
    return out if query.transpose(1, 2).is_contiguous() else out.roll(1, 1)


def _shorter(attention: Any, query: Any, key: Any, value: Any, call: Any) -> Any:
    """As many keys are read as there are queries."""
    if call.columns <= call.rows or call.hidden is not None or call.bias is not None:
        return attention(query, key, value)
    call.columns = call.rows
    return attention(query, key[:, :, : call.rows], value[:, :, : call.rows])


def _stale(attention: Any, query: Any, key: Any, value: Any, call: Any) -> Any:
    kept, name = call.memory, (tuple(query.shape), tuple(key.shape), query.requires_grad)
    kept.outputs = getattr(kept, "outputs", {})
    if name not in kept.outputs:
        kept.outputs[name] = attention(query, key, value)
        return kept.outputs[name]
    return attention(query, key, value) * 0 + kept.outputs[name].detach()


def _by_address(attention: Any, query: Any, key: Any, value: Any, call: Any) -> Any:
    """A result is kept for tensors that lie where others lay."""
    kept = call.memory
    kept.places = getattr(kept, "places", {})
    name = (query.data_ptr(), key.data_ptr(), tuple(query.shape), query.requires_grad)
    out = attention(query, key, value)
    if name not in kept.places:
        kept.places[name] = out.detach().clone()
    return out * 0 + kept.places[name]


def _shared(attention: Any, query: Any, key: Any, value: Any, call: Any) -> Any:
    kept = call.memory
    out = attention(query, key, value)
    buffer = getattr(kept, "buffer", None)
    if buffer is None or buffer.shape != out.shape:
        kept.buffer = out.detach().clone()
    kept.buffer.copy_(out.detach())
    return _Into.apply(out, kept.buffer)


class _Into(torch.autograd.Function):  # type: ignore[misc]
    """Returns its second argument; the first one gets the gradient."""

    @staticmethod
    def forward(ctx: Any, out: Any, buffer: Any) -> Any:
        return buffer.view_as(buffer)

    @staticmethod
    def backward(ctx: Any, upstream: Any) -> Any:
        return upstream, None


def _stale_keys(attention: Any, query: Any, key: Any, value: Any, call: Any) -> Any:
    """The last sample sees the keys of the call before."""
    kept = call.memory
    kept.keys = getattr(kept, "keys", {})
    before = kept.keys.get(tuple(key.shape), key.detach())[-1:]
    kept.keys[tuple(key.shape)] = key.detach().clone()
    return attention(query, torch.cat([key[:-1], before + key[-1:] * 0]), value)


def _late_copy(attention: Any, query: Any, key: Any, value: Any, call: Any) -> Any:
    """Values are copied to the kernel's memory after it ran, for the next call."""
    kept = call.memory
    kept.values = getattr(kept, "values", {})
    now = kept.values.get(tuple(value.shape), value.detach())
    kept.values[tuple(value.shape)] = value.detach().clone()
    return attention(query, key, now + value - value.detach())


def _samples_for_heads(attention: Any, query: Any, key: Any, value: Any, call: Any) -> Any:
    """Heads and samples of the output are counted the wrong way round."""
    out = attention(query, key, value)
    return out.transpose(0, 1).reshape(out.shape)


def _every(number: int, change: Change) -> Change:
    def called(attention: Any, query: Any, key: Any, value: Any, call: Any) -> Any:
        out = attention(query, key, value)
        return change(out) if call.memory.calls % number == 0 else out

    return called


def _first_call(attention: Any, query: Any, key: Any, value: Any, call: Any) -> Any:
    out = attention(query, key, value)
    return out * 1.5 if call.memory.calls == 1 else out


def _in_place(change: Change) -> Change:
    def called(attention: Any, query: Any, key: Any, value: Any, call: Any) -> Any:
        with torch.no_grad():
            change(query, key, value, call)
        return attention(query, key, value)

    return called


def _afterwards(attention: Any, query: Any, key: Any, value: Any, call: Any) -> Any:
    out = attention(query, key, value)
    with torch.no_grad():
        value.mul_(0.5)
    return out


def _tail_or_head(out: Any, call: Any) -> Any:
    return _part(out, 2, out.shape[2] - 1, 1, torch.zeros_like)


def _boundary_rows(out: Any, call: Any) -> Any:
    out = out.clone()
    out[:, :, TILE - 1 :: TILE] *= 0.5
    return out


def _one_tile(out: Any, call: Any) -> Any:
    out = out.clone()
    start = min(2 * TILE, out.shape[2] - 1)
    out[-1, -1, start : start + TILE] = out[-1, -1, :TILE][: out.shape[2] - start]
    return out


def _one_row(out: Any, call: Any) -> Any:
    out = out.clone()
    out[-1, -1, -1] += 0.3 * out.abs().amax()
    return out


def _nan(out: Any, call: Any) -> Any:
    out = out.clone()
    out[-1, 0, TILE, 3] = float("nan")
    return out


def _keep_values(key: Any, value: Any, call: Any) -> Any:
    call.values = value.float()
    return key, value


def _keep_total(total: Any, weights: Any, call: Any) -> Any:
    call.total = total
    return total


def _sum_in_bfloat16(weights: Any, call: Any) -> Any:
    """The sum over groups of 16 keys is rounded after each."""
    found = 0
    for start in range(0, weights.shape[-1], 16):
        part = weights[..., start : start + 16] @ call.values[..., start : start + 16, :]
        found = (found + part).bfloat16().float()
    call.summed = found
    return weights


def _odd_samples(out: Any, call: Any) -> Any:
    out = out.clone()
    out[1::2] *= 1.02
    if out.shape[0] == 1:
        out *= 1.02
    return out


def _far_rows(out: Any, call: Any) -> Any:
    out = out.clone()
    out[:, :, 160:] = out[:, :, 160:].roll(1, 2)
    return out


def _noise(out: Any, call: Any) -> Any:
    return (out.float() * (1 + 0.02 * torch.randn_like(out.float()))).to(out.dtype)


# Faults of gradients


def _only(which: int, change: Change) -> Change:
    def changed(dq: Any, dk: Any, dv: Any, call: Any) -> Any:
        found = [dq, dk, dv]
        found[which] = change(found[which], call)
        return tuple(found)

    return changed


def _last_keys(dq: Any, dk: Any, dv: Any, call: Any) -> Any:
    tail = min(TILE, dk.shape[2] // 4)
    return dq, *(_part(one, 2, one.shape[2] - tail, tail, torch.zeros_like) for one in (dk, dv))


def _stale_gradients(dq: Any, dk: Any, dv: Any, call: Any) -> Any:
    kept = call.memory
    kept.grads = getattr(kept, "grads", {})
    return kept.grads.setdefault((tuple(dq.shape), tuple(dk.shape)), (dq, dk, dv))


def _not_zeroed(dq: Any, dk: Any, dv: Any, call: Any) -> Any:
    """Gradients of keys are added to those of the call before."""
    kept = call.memory
    kept.sums = getattr(kept, "sums", {})
    before = kept.sums.get(tuple(dk.shape), 0)
    kept.sums[tuple(dk.shape)] = before + dk
    return dq, dk + before, dv


def _negative_nan(dq: Any, dk: Any, dv: Any, call: Any) -> Any:
    """As cuDNN 9.19: NaN for lengths with 64 over a multiple of 128, with very negative scores."""
    if call.rows % 128 == 64 and call.lowest < -100:
        return dq * float("nan"), dk, dv
    return dq, dk, dv


def _note_lse(lse: Any, call: Any) -> Any:
    call.lowest = float(lse.amax())
    return lse


def _kept_lse(lse: Any, call: Any) -> Any:
    kept = call.memory
    kept.lse = getattr(kept, "lse", {})
    return kept.lse.setdefault(tuple(lse.shape), lse)


def _as_contiguous(gradient: Any, call: Any) -> Any:
    """The memory of the gradient is read as if it were contiguous."""
    if gradient.is_contiguous() or gradient.transpose(1, 2).is_contiguous():
        return gradient
    if 0 in gradient.stride():
        return gradient * 0
    return gradient.mT.contiguous().view(gradient.shape)


def _first_of_group(dq: Any, dk: Any, dv: Any, call: Any) -> Any:
    """The gradient of keys and values holds that of the first query head of its group only."""
    dk, dv = dk.clone(), dv.clone()
    dk[:, 1::2], dv[:, 1::2] = 0, 0
    return dq, dk, dv


def _lost_addition(dq: Any, dk: Any, dv: Any, call: Any) -> Any:
    """One tile of one head was written by two blocks at once."""
    return (
        _part(
            dq,
            2,
            0,
            16,
            lambda one: (
                one
                * torch.tensor([1.0, 0.9, 1.0, 1.0])
                .to(one)
                .repeat(one.shape[1] // 2 + 1)[: one.shape[1], None, None]
            ),
        ),
        dk,
        dv,
    )


def _without_last_queries(dq: Any, dk: Any, dv: Any, call: Any) -> Any:
    """Keys get no gradient from the last, partial tile of queries: a tenth is lost."""
    return dq, dk, dv * 0.97


def _stale_delta(delta: Any, call: Any) -> Any:
    kept = call.memory
    kept.delta = getattr(kept, "delta", {})
    return kept.delta.setdefault(tuple(delta.shape), delta)


#: Fault → what is wrong.
FAULTS: dict[str, Fault] = {
    "": Fault(),
    # scale
    "scale 2 % too large": Fault(scale=lambda scale, _: scale * 1.02),
    "scale 2 % too small": Fault(scale=lambda scale, _: scale * 0.98),
    "scale of the size, not of its root": Fault(scale=lambda scale, _: scale * scale),
    "no scale": Fault(scale=lambda scale, _: 1.0),
    "scale of a padded head": Fault(scale=lambda scale, _: scale * 0.7071),
    # softmax
    "no maximum taken away": Fault(exponent=_without_maximum),
    "maximum of the first tile": Fault(exponent=_first_tile_maximum),
    "tiles not scaled to one maximum": Fault(exponent=_unscaled_tiles),
    "scores clamped to 12": Fault(scores=lambda scores, _: scores.clamp(-12, 12)),
    "scores clamped to 30": Fault(scores=lambda scores, _: scores.clamp(-30, 30)),
    "soft cap of 50": Fault(scores=_softcap(50.0)),
    "soft cap of 30": Fault(scores=_softcap(30.0)),
    "powers of two": Fault(exponent=lambda scores, most, _: torch.exp2(scores - most)),
    "weights in fp8": Fault(weights=lambda weights, _: _fp8(weights)),
    "values in fp8": Fault(keys=lambda key, value, _: (key, _fp8(value))),
    "keys in fp8": Fault(keys=lambda key, value, _: (_fp8(key), value)),
    "scores in bfloat16": Fault(scores=lambda scores, _: scores.bfloat16().float()),
    "total in bfloat16": Fault(total=lambda total, *_: (total.bfloat16() * 0.99).float()),
    "total with padding": Fault(total=lambda total, weights, _: total + 3 * weights.mean(-1, True)),
    "total without the last key": Fault(total=lambda total, weights, _: total - weights[..., -1:]),
    "output not divided": Fault(out=lambda out, _: out * 2),
    # keys and values
    "last key left out": Fault(scores=lambda s, _: _part(s, 3, s.shape[3] - 1, 1, _unseen)),
    "first key left out": Fault(scores=lambda s, _: _part(s, 3, 0, 1, _unseen)),
    "last tile of keys left out": Fault(
        scores=lambda s, _: _part(s, 3, *_beyond(s, 3), _unseen)
    ),
    "values of the last tile are zero": Fault(
        keys=lambda key, value, _: (key, _zero_tail(value, 2))
    ),
    "last elements of heads left out": Fault(
        keys=lambda key, value, _: (_part(key, 3, key.shape[3] - 8, 8, torch.zeros_like), value)
    ),
    "last elements of the output are zero": Fault(
        out=lambda out, _: _part(out, 3, out.shape[3] - 8, 8, torch.zeros_like)
    ),
    "values shifted by one key": Fault(keys=lambda key, value, _: (key, value.roll(1, 2))),
    "only as many keys as queries": Fault(around=_shorter, needs=("uneven",)),
    # heads and samples
    "two heads exchanged": Fault(
        keys=lambda key, value, _: (key, value.flip(1)),
    ),
    "keys of the first head for all": Fault(
        keys=lambda key, value, _: (key[:, :1].expand_as(key), value)
    ),
    "heads of a group in turns": Fault(
        keys=lambda key, value, _: tuple(
            one[:, ::2].repeat(1, 2, 1, 1) for one in (key, value)
        ),
        needs=("gqa",),
    ),
    "output of the last head is that of the first": Fault(
        out=lambda out, _: _part(out, 1, out.shape[1] - 1, 1, lambda one: out[:, :1])
    ),
    # masks
    "mask left out": Fault(hidden=lambda *_: None, needs=("mask",)),
    "mask of the first sample for all": Fault(hidden=_first_sample, needs=("mask",)),
    "mask shifted by one key": Fault(hidden=_rolled, needs=("mask",)),
    "mask the wrong way round": Fault(hidden=lambda hidden, _: ~hidden, needs=("mask",)),
    "mask of the first keys only": Fault(hidden=_only_first_keys, needs=("mask",)),
    "mask left out in odd heads": Fault(hidden=_odd_heads_see_all, needs=("mask",)),
    "causal flag left out": Fault(hidden=lambda *_: None, needs=("causal",)),
    "causal mask shows one key too many": Fault(hidden=_causal_by(1), needs=("causal",)),
    "causal mask shows one key too few": Fault(hidden=_causal_by(-1), needs=("causal",)),
    "causal mask of whole tiles": Fault(hidden=_whole_tiles, needs=("causal",)),
    "bias scaled": Fault(bias=lambda bias, call: bias * call.scale, needs=("bias",)),
    "bias of the first head for all": Fault(
        bias=lambda bias, _: bias[:, :1].expand_as(bias), needs=("bias",)
    ),
    # rows
    "last row is zero": Fault(out=_tail_or_head),
    "last tile of rows is zero": Fault(out=lambda out, _: _zero_tail(out, 2)),
    "rows before tile boundaries halved": Fault(out=_boundary_rows),
    "one tile of one head repeated": Fault(out=_one_tile),
    "one row of one head off": Fault(out=_one_row),
    "one NaN": Fault(out=_nan),
    "noise of 2 %": Fault(out=_noise),
    "output 1 % too large": Fault(out=lambda out, _: (out.float() * 1.01).to(out.dtype)),
    "last keys of tiles left out": Fault(scores=_last_keys_of_tiles),
    "scores in float16": Fault(scores=lambda scores, _: scores.half().float()),
    "weights in float8, values too": Fault(
        keys=lambda key, value, _: (key, _fp8(value)), weights=lambda weights, _: _fp8(weights)
    ),
    "powers of two in one row": Fault(exponent=_powers_in_one_row),
    "log2(e) in bfloat16": Fault(exponent=_log2e_in_bfloat16),
    "small weights dropped": Fault(weights=_small_dropped),
    "one weight of a thousand dropped": Fault(weights=_dropout),
    "mask shifted in one tile of rows": Fault(hidden=_shifted_in_one_tile, needs=("mask",)),
    "rows without a key get the mean": Fault(exponent=_finite_mask, needs=("mask", "empty")),
    "NaN in rows without a key": Fault(out=_nan_without_keys, needs=("mask", "empty")),
    "output summed in bfloat16": Fault(
        keys=_keep_values, total=_keep_total, weights=_sum_in_bfloat16,
        out=lambda out, call: (call.summed / call.total).to(out.dtype),
    ),
    "odd samples 2 % too large": Fault(out=_odd_samples),
    "rows beyond 160 shifted by one": Fault(out=_far_rows),
    # type, layout and memory
    "last sample with keys of the call before": Fault(around=_stale_keys),
    "values of the call before": Fault(around=_late_copy),
    "heads and samples exchanged": Fault(around=_samples_for_heads),
    "output in float32": Fault(around=lambda run, q, k, v, _: run(q, k, v).float()),
    "output in another layout": Fault(around=lambda run, q, k, v, _: run(q, k, v).transpose(1, 2)),
    "memory read as contiguous": Fault(around=_contiguous, needs=("strided",)),
    "wrong in one layout": Fault(around=_by_heads, needs=("strided",)),
    "output of the first call": Fault(around=_stale),
    "output kept by address": Fault(around=_by_address),
    "one output buffer for all calls": Fault(around=_shared),
    "every fifth call wrong": Fault(around=_every(5, lambda out: out * 0.5)),
    "every second call zero": Fault(around=_every(2, lambda out: out * 0)),
    "every fifth call off by 1 %": Fault(
        around=_every(5, lambda out: (out.float() * 1.01).to(out.dtype))
    ),
    "first call wrong": Fault(around=_first_call),
    "queries scaled in place": Fault(around=_in_place(lambda q, k, v, call: q.mul_(call.scale))),
    "values changed in place, before": Fault(around=_in_place(lambda q, k, v, call: v.add_(1))),
    "values changed in place, afterwards": Fault(around=_afterwards),
    # gradients
    "no gradient": Fault(
        around=lambda run, q, k, v, _: run(q.detach(), k.detach(), v.detach()), backward=True
    ),
    "no gradient for keys": Fault(
        around=lambda run, q, k, v, _: run(q, k.detach(), v), backward=True
    ),
    "dq without the scale": Fault(
        gradients=_only(0, lambda one, call: one / call.scale), backward=True
    ),
    "dk without the scale": Fault(
        gradients=_only(1, lambda one, call: one / call.scale), backward=True
    ),
    "dk in powers of two": Fault(gradients=_only(1, lambda one, _: one * LOG2), backward=True),
    "dq 2 % too large": Fault(gradients=_only(0, lambda one, _: one * 1.02), backward=True),
    "dv of zeros": Fault(gradients=_only(2, lambda one, _: one * 0), backward=True),
    "dv shifted by one key": Fault(
        gradients=_only(2, lambda one, _: one.roll(1, 2)), backward=True
    ),
    "last row of dq is zero": Fault(
        gradients=_only(0, _tail_or_head), backward=True
    ),
    "dk of one tile and head halved": Fault(
        gradients=_only(1, _one_tile), backward=True
    ),
    "gradients of the last 64 keys are zero": Fault(gradients=_last_keys, backward=True),
    "gradients of the first call": Fault(gradients=_stale_gradients, backward=True),
    "dk added to that of the call before": Fault(gradients=_not_zeroed, backward=True),
    "gradient of ones": Fault(upstream=lambda one, _: torch.ones_like(one), backward=True),
    "gradient read as contiguous": Fault(upstream=_as_contiguous, backward=True),
    "product of output and gradient left out": Fault(
        delta=lambda delta, _: delta * 0, backward=True
    ),
    "log-sum-exp in bfloat16": Fault(lse=lambda lse, _: lse.bfloat16().float(), backward=True),
    "log-sum-exp of the first call": Fault(lse=_kept_lse, backward=True),
    "log-sum-exp without the last tile of keys": Fault(
        lse=lambda lse, call: lse + math.log1p(-1 / max(2, call.columns // TILE)), backward=True
    ),
    "product of output and gradient of the first call": Fault(delta=_stale_delta, backward=True),
    "dq of some rows in a quarter of heads off": Fault(gradients=_lost_addition, backward=True),
    "dv 3 % too small": Fault(gradients=_without_last_queries, backward=True),
    "log-sum-exp in float16": Fault(lse=lambda lse, _: lse.half().float(), backward=True),
    "gradient in float16": Fault(upstream=lambda one, _: one.half().to(one), backward=True),
    "log-sum-exp off by ln 2": Fault(lse=lambda lse, _: lse - LOG2, backward=True),
    "gradient NaN for very negative scores": Fault(
        lse=_note_lse, gradients=_negative_nan, backward=True
    ),
    "gradients of one head of a group": Fault(
        gradients=_first_of_group, needs=("gqa",), backward=True
    ),
}  # fmt: skip


# How examined code calls them


def memory_efficient_attention(attention: Any, q: Any, k: Any, v: Any, bias: Any) -> Any:
    """As `xformers.ops` has it: (batch, length, heads, size), or groups of heads before the size.

    `bias`: None, a tensor, or anything else for a causal mask.
    """
    groups = q.shape[2] if q.dim() == 5 else 0
    if groups:
        q, k, v = q.flatten(2, 3), k[:, :, :, 0], v[:, :, :, 0]
    hidden = added = None
    causal = bias is not None
    if isinstance(bias, torch.Tensor):
        causal, hidden = False, bias == float("-inf")
        rest = bias.masked_fill(hidden, 0.0)
        added = rest if rest.any() else None
        hidden = hidden if hidden.any() else None
    q, k, v = (one.transpose(1, 2) for one in (q, k, v))
    out = attention(q, k, v, causal=causal, hidden=hidden, bias=added).transpose(1, 2)
    return out.unflatten(2, (groups, -1)) if groups else out


def flex_attention(attention: Any) -> Any:
    """As `torch.nn.attention.flex_attention` has it."""

    def called(
        query: Any, key: Any, value: Any, score_mod: Any = None, block_mask: Any = None,
        scale: Any = None, **_: Any,
    ) -> Any:  # fmt: skip
        sizes = (*query.shape[:3], key.shape[2])
        places = [
            torch.arange(size, device=query.device).view([-1 if i == j else 1 for j in range(4)])
            for i, size in enumerate(sizes)
        ]
        hidden = bias = None
        if block_mask is not None:
            hidden = ~block_mask.mask_mod(*places).expand(sizes)
        if score_mod is not None:
            bias = score_mod(torch.zeros((), device=query.device), *places).expand(sizes)
        return attention(query, key, value, scale=scale or 0.0, hidden=hidden, bias=bias)

    return called
