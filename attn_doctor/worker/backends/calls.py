"""Calls each backend: by the library itself, or through diffusers as users' names mean it.

Every route takes tensors as diffusers has them, (batch, length, heads, head_dim), and the boolean
mask as models pass it. Library routes pass the arguments that diffusers passes. Where a library has
no argument for a part of the call, `NotOffered` is raised; nothing is silently dropped.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any

import torch

Call = Callable[..., Any]


class NotOffered(Exception):  # noqa: N818 (shown to users by this name)
    """The library has no argument for a part of the call."""


class Route:
    """A backend that can be called, with the package that its code is from."""

    def __init__(self, call: Call, package: str, module: Any, *, compiled: bool = False) -> None:
        self.call = call
        self.compiled = compiled
        self.package = package
        self.version = _version(package, module)
        self.file = str(getattr(module, "__file__", "") or "")


def find(name: str, route: str) -> Route:
    """Import what backend `name` needs on `route`. Raises whatever the import raises."""
    if route == "diffusers":
        return _through_diffusers(name)
    maker, package, module_name = _DIRECT[name]
    module = importlib.import_module(module_name)
    compiled = route == "compiled"
    return Route(maker(module, name, route), package, module, compiled=compiled)


def _version(package: str, module: Any) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return str(getattr(module, "__version__", "") or "")


def _through_diffusers(name: str) -> Route:
    module = importlib.import_module("diffusers.models.attention_dispatch")

    def call(q: Any, k: Any, v: Any, mask: Any, causal: bool, gqa: bool) -> Any:
        # The context manager checks the package's presence, as `set_attention_backend` does.
        with module.attention_backend(name):
            return module.dispatch_attention_fn(
                q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=gqa
            )

    return Route(call, "diffusers", module)


def _heads_first(call: Call) -> Call:
    """A call on (batch, heads, length, head_dim), changed to take and return lengths first."""

    @functools.wraps(call)
    def turned(q: Any, k: Any, v: Any, mask: Any, causal: bool, gqa: bool) -> Any:
        q, k, v = (one.permute(0, 2, 1, 3) for one in (q, k, v))
        return call(q, k, v, mask, causal, gqa).permute(0, 2, 1, 3)

    return turned


_SDPA = {
    "_native_cudnn": "CUDNN_ATTENTION",
    "_native_efficient": "EFFICIENT_ATTENTION",
    "_native_flash": "FLASH_ATTENTION",
    "_native_math": "MATH",
}


def _native(module: Any, name: str, _route: str) -> Call:
    sdpa = torch.nn.functional.scaled_dot_product_attention

    def call(q: Any, k: Any, v: Any, mask: Any, causal: bool, gqa: bool) -> Any:
        more = {"enable_gqa": True} if gqa else {}
        if mask is not None and causal:
            length = q.shape[-2]
            past = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
            mask = mask & past if mask.dtype == torch.bool else mask.masked_fill(~past, -math.inf)
            causal = False
        if name not in _SDPA:
            return sdpa(q, k, v, attn_mask=mask, is_causal=causal, **more)
        if mask is not None and name == "_native_flash":
            raise NotOffered("torch's flash kernel takes no mask")
        with module.sdpa_kernel(getattr(module.SDPBackend, _SDPA[name])):
            return sdpa(q, k, v, attn_mask=mask, is_causal=causal, **more)

    return _heads_first(call)


def _flex(module: Any, _name: str, route: str) -> Call:
    attention = module.flex_attention
    if route == "compiled":
        attention = torch.compile(attention)

    def call(q: Any, k: Any, v: Any, mask: Any, causal: bool, gqa: bool) -> Any:
        boolean = mask is not None and mask.dtype == torch.bool
        # A dimension of size 1 is broadcast, as other backends do.
        own = [mask is not None and size > 1 for size in (mask.shape if mask is not None else ())]

        def part(b: Any, h: Any, row: Any, column: Any) -> Any:
            index = (b, h, row, column)
            return mask[tuple(one if many else 0 for one, many in zip(index, own))]  # noqa: B905

        def visible(b: Any, h: Any, row: Any, column: Any) -> Any:
            seen = row >= column if causal else None
            if boolean:
                found = part(b, h, row, column)
                seen = found if seen is None else seen & found
            return seen

        def biased(score: Any, b: Any, h: Any, row: Any, column: Any) -> Any:
            return score + part(b, h, row, column)

        block = None
        if causal or boolean:
            heads = q.shape[1] if boolean and own[1] else None
            sizes = (q.shape[0], heads, q.shape[2], k.shape[2])
            block = module.create_block_mask(visible, *sizes, device=str(q.device))
        score = biased if mask is not None and not boolean else None
        return attention(q, k, v, score_mod=score, block_mask=block, enable_gqa=gqa)

    return _heads_first(call)


def _flash(module: Any, _name: str, _route: str) -> Call:
    def call(q: Any, k: Any, v: Any, mask: Any, causal: bool, _gqa: bool) -> Any:
        if mask is not None:
            raise NotOffered("flash_attn_func takes no mask")
        return _first(module.flash_attn_func(q, k, v, softmax_scale=None, causal=causal))

    return call


def _packed(q: Any, k: Any, v: Any, mask: Any) -> dict[str, Any]:
    """Sequences one after the other, as the variable-length functions take them.

    Keys are selected by the mask itself, so that a mask with a hole is right too.
    """
    batch, rows, keys = q.shape[0], q.shape[1], k.shape[1]
    index = {"dtype": torch.int32, "device": q.device}
    offsets = torch.arange(batch + 1, **index)
    packed = {"q": q.flatten(0, 1), "cu_seqlens_q": offsets * rows, "max_seqlen_q": rows}
    if mask is None:
        more = {"k": k.flatten(0, 1), "v": v.flatten(0, 1), "cu_seqlens_k": offsets * keys}
        return {**packed, **more, "max_seqlen_k": keys}
    if mask.dtype != torch.bool or mask.shape[1] > 1 or mask.shape[2] > 1:
        raise NotOffered("variable lengths are made of boolean masks over keys only")
    seen = mask[:, 0, 0].expand(batch, keys)
    counts = seen.sum(1, dtype=torch.int32)
    ends = torch.cat([offsets[:1], counts.cumsum(0, dtype=torch.int32)])
    more = {"k": k[seen], "v": v[seen], "cu_seqlens_k": ends}
    return {**packed, **more, "max_seqlen_k": int(counts.max())}


def _flash_varlen(module: Any, _name: str, _route: str) -> Call:
    def call(q: Any, k: Any, v: Any, mask: Any, causal: bool, _gqa: bool) -> Any:
        out = module.flash_attn_varlen_func(**_packed(q, k, v, mask), causal=causal)
        return _first(out).unflatten(0, (q.shape[0], -1))

    return call


def _sage(module: Any, name: str, _route: str) -> Call:
    function = getattr(module, _SAGE[name])

    def call(q: Any, k: Any, v: Any, mask: Any, causal: bool, _gqa: bool) -> Any:
        if mask is not None:
            raise NotOffered(f"{_SAGE[name]} is given no mask")
        return _first(function(q, k, v, tensor_layout="NHD", is_causal=causal, sm_scale=None))

    return call


def _sage_varlen(module: Any, _name: str, _route: str) -> Call:
    def call(q: Any, k: Any, v: Any, mask: Any, causal: bool, _gqa: bool) -> Any:
        out = module.sageattn_varlen(**_packed(q, k, v, mask), is_causal=causal, sm_scale=None)
        return _first(out).unflatten(0, (q.shape[0], -1))

    return call


def _xformers(module: Any, _name: str, _route: str) -> Call:
    def call(q: Any, k: Any, v: Any, mask: Any, causal: bool, gqa: bool) -> Any:
        if causal and mask is not None:
            raise NotOffered("xformers takes either a causal or a tensor mask")
        bias = module.LowerTriangularMask() if causal else None
        if mask is not None:
            full = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
            if mask.dtype == torch.bool:
                zero = torch.zeros(mask.shape, dtype=q.dtype, device=q.device)
                mask = zero.masked_fill(~mask, -math.inf)
            bias = mask.expand(full)
        if gqa:
            groups, heads = k.shape[2], q.shape[2] // k.shape[2]
            q = q.unflatten(2, (groups, -1))
            k, v = (one.unsqueeze(3).expand(-1, -1, -1, heads, -1) for one in (k, v))
        out = module.memory_efficient_attention(q, k, v, bias, 0.0, None)
        return out.flatten(2, 3) if gqa else out

    return call


def _first(out: Any) -> Any:
    """The output; some versions return more than that."""
    return out[0] if isinstance(out, tuple) else out


_SAGE = {
    "sage": "sageattn",
    "_sage_qk_int8_pv_fp8_cuda": "sageattn_qk_int8_pv_fp8_cuda",
    "_sage_qk_int8_pv_fp8_cuda_sm90": "sageattn_qk_int8_pv_fp8_cuda_sm90",
    "_sage_qk_int8_pv_fp16_cuda": "sageattn_qk_int8_pv_fp16_cuda",
    "_sage_qk_int8_pv_fp16_triton": "sageattn_qk_int8_pv_fp16_triton",
}
#: Backend → what makes the call, the distribution, the module.
_DIRECT: dict[str, tuple[Callable[[Any, str, str], Call], str, str]] = {
    **dict.fromkeys(("native", *_SDPA), (_native, "torch", "torch.nn.attention")),
    "flex": (_flex, "torch", "torch.nn.attention.flex_attention"),
    "flash": (_flash, "flash-attn", "flash_attn"),
    "flash_varlen": (_flash_varlen, "flash-attn", "flash_attn"),
    "_flash_3": (_flash, "flash-attn-3", "flash_attn_interface"),
    "_flash_varlen_3": (_flash_varlen, "flash-attn-3", "flash_attn_interface"),
    **dict.fromkeys(_SAGE, (_sage, "sageattention", "sageattention")),
    "sage_varlen": (_sage_varlen, "sageattention", "sageattention"),
    "xformers": (_xformers, "xformers", "xformers.ops"),
}
