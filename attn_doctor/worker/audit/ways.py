"""Ways to call a backend, and the plain definition of each backend, as lines of torch.

The lines of `WAYS` change a function `attention(q, k, v, mask)`. The worker runs them around the
backend that it examines, a program around the definition in `BACKENDS`.
"""

from __future__ import annotations

from typing import NamedTuple


class Way(NamedTuple):
    """One way to call a backend."""

    code: str
    why: str
    device: str = ""
    """The only kind of device that it is for; empty: all."""
    same_heads: bool = False
    """Queries, keys and values need the same shape."""


#: Each changes `attention(q, k, v, mask)`.
WAYS = {
    "call": Way("", "the plainest way"),
    "compiled": Way("attention = torch.compile(attention)", "torch.compile replaces the call"),
    "in a compiled model": Way(
        """\
attend = attention
def model(q, k, v, mask):
    q, k, v = torch.stack([q / 2, k / 2, v]).unbind(0)
    return attend(q * 2, k * 2, v, mask)
attention = torch.compile(model)""",
        "a value that is a slice inside of a graph, beside computed queries and keys",
        same_heads=True,
    ),
    "checkpoint": Way(
        """\
import torch.utils.checkpoint
attend = attention
def attention(*given):
    return torch.utils.checkpoint.checkpoint(attend, *given, use_reentrant=False)""",
        "the forward runs again in the backward",
    ),
    "CUDA graph": Way(
        """\
attend = attention
def attention(q, k, v, mask):
    numbers = [x.clone() for x in (q, k, v)]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        attend(q, k, v, mask)
    torch.cuda.current_stream().wait_stream(side)
    for x in (q, k, v):
        x.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attend(q, k, v, mask)
    for x, own in zip((q, k, v), numbers):
        x.copy_(own)
    graph.replay()
    return out.clone()""",
        "numbers that are taken when the graph is made, not when it runs",
        device="cuda",
    ),
    "two streams": Way(
        """\
attend = attention
def attention(q, k, v, mask):
    current, streams = torch.cuda.current_stream(), [torch.cuda.Stream() for _ in range(2)]
    for stream in streams:
        stream.wait_stream(current)
    with torch.cuda.stream(streams[0]):
        out = attend(q, k, v, mask)
    with torch.cuda.stream(streams[1]):
        attend(k, q, v, mask)
    for stream in streams:
        current.wait_stream(stream)
    return out""",
        "memory that two calls share which run at the same time",
        device="cuda",
        same_heads=True,
    ),
}

_SDPA = """\
def attention(q, k, v, mask):
    more = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
"""
_CALL = (
    "torch.nn.functional.scaled_dot_product_attention(\n"
    "{indent}    q, k, v, attn_mask=mask, is_causal=causal, **more)"
)
_WITH = (
    "from torch.nn.attention import SDPBackend, sdpa_kernel\n"
    + _SDPA
    + "    with sdpa_kernel(SDPBackend.{kernel}):\n"
    + "        return "
    + _CALL.replace("{indent}", "        ")
)
_FLEX_ALONE = """\
from torch.nn.attention.flex_attention import flex_attention
run = {run}
def attention(q, k, v, mask):
    return run(q, k, v, enable_gqa=heads != kv_heads)"""
_FLEX = """\
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
run = {run}
def attention(q, k, v, mask):
    def part(b, h, row, column):
        full = mask.expand(batch, heads, length, keys)
        return full[b, h, row, column]
    def seen(b, h, row, column):
        found = row >= column if causal else row >= 0
        return found & part(b, h, row, column) if hides else found
    def biased(score, b, h, row, column):
        return score + part(b, h, row, column)
    hides = mask is not None and mask.dtype == torch.bool
    block = create_block_mask(seen, batch, heads, length, keys, device=device)
    return run(q, k, v, score_mod=biased if mask is not None and not hides else None,
               block_mask=block if causal or hides else None, enable_gqa=heads != kv_heads)"""
_FLASH = """\
from {module} import flash_attn_func
def attention(q, k, v, mask):
    assert mask is None
    out = flash_attn_func(*(x.transpose(1, 2) for x in (q, k, v)), causal=causal)
    return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)"""
_VARLEN = """\
from {module} import {function}
def attention(q, k, v, mask):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    seen = torch.ones(batch, keys, dtype=torch.bool, device=device)
    seen = seen if mask is None else mask[:, 0, 0]
    counts = torch.cat([torch.zeros(1, device=device), seen.sum(1).cumsum(0)]).int()
    rows = torch.arange(batch + 1, device=device, dtype=torch.int32) * length
    out = {function}(
        q.flatten(0, 1), k[seen], v[seen], cu_seqlens_q=rows, cu_seqlens_k=counts,
        max_seqlen_q=length, max_seqlen_k=int(seen.sum(1).max()), {causal}=causal)
    out = out[0] if isinstance(out, tuple) else out
    return out.unflatten(0, (batch, length)).transpose(1, 2)"""
_SAGE = """\
from sageattention import {function} as run
def attention(q, k, v, mask):
    assert mask is None
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return run(q, k, v, tensor_layout="NHD", is_causal=causal).transpose(1, 2)"""
_XFORMERS = """\
from xformers.ops import LowerTriangularMask, memory_efficient_attention
def attention(q, k, v, mask):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    bias = LowerTriangularMask() if causal else None
    if mask is not None:
        if mask.dtype == torch.bool:
            zeros = torch.zeros(mask.shape, dtype=dtype, device=device)
            mask = zeros.masked_fill(~mask, -torch.inf)
        bias = mask.expand(batch, heads, length, keys)
    if heads != kv_heads:
        q = q.unflatten(2, (kv_heads, -1))
        k, v = (x.unsqueeze(3).expand(-1, -1, -1, heads // kv_heads, -1) for x in (k, v))
    out = memory_efficient_attention(q, k, v, bias, 0.0, None)
    return (out.flatten(2, 3) if heads != kv_heads else out).transpose(1, 2)"""
_DIFFUSERS = """\
from diffusers.models.attention_dispatch import attention_backend, dispatch_attention_fn
def attention(q, k, v, mask):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    with attention_backend("{name}"):
        out = dispatch_attention_fn(
            q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=heads != kv_heads)
    return out.transpose(1, 2)"""
_KERNELS = {
    "_native_cudnn": "CUDNN_ATTENTION",
    "_native_efficient": "EFFICIENT_ATTENTION",
    "_native_flash": "FLASH_ATTENTION",
    "_native_math": "MATH",
}


def definition(name: str, route: str, *, hides: bool = True) -> str:
    """The lines that define `attention(q, k, v, mask)` with a backend; `causal` is a flag.

    Without `hides`, no call has a mask or is causal.
    """
    if route == "diffusers":
        return _DIFFUSERS.format(name=name)
    if name in _KERNELS:
        return _WITH.replace("{kernel}", _KERNELS[name])
    if name == "flex":
        run = "torch.compile(flex_attention)" if route == "compiled" else "flex_attention"
        return (_FLEX if hides else _FLEX_ALONE).format(run=run)
    if name in ("flash", "_flash_3"):
        return _FLASH.format(module="flash_attn" if name == "flash" else "flash_attn_interface")
    if name in ("flash_varlen", "_flash_varlen_3"):
        module = "flash_attn" if name == "flash_varlen" else "flash_attn_interface"
        return _VARLEN.format(module=module, function="flash_attn_varlen_func", causal="causal")
    if name == "sage_varlen":
        return _VARLEN.format(
            module="sageattention", function="sageattn_varlen", causal="is_causal"
        )
    if name.startswith(("sage", "_sage")):
        function = "sageattn" if name == "sage" else f"sageattn{name.removeprefix('_sage')}"
        return _SAGE.format(function=function)
    if name == "xformers":
        return _XFORMERS
    return _SDPA + "    return " + _CALL.replace("{indent}", "    ")
