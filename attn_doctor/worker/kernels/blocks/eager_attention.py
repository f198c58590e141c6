"""Attention without compiling, for the comparison of a block: exact, torch's own, or none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def replaced(torch: Any, attention: Any) -> Iterator[None]:
    """Replace torch's own attention by `attention`."""
    functional = torch.nn.functional
    before = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = attention
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = before


def nothing(query: Any, key: Any, value: Any, **options: Any) -> Any:  # noqa: ARG001
    """Attention without effect: zeros, in the shape of its output."""
    return query.new_zeros(*query.shape[:-1], value.shape[-1])


def open_rows(attention: Any, torch: Any) -> Any:
    """`attention`, with zeros for rows whose keys are all masked, as torch returns them."""

    def safe(query: Any, key: Any, value: Any, attn_mask: Any = None, **options: Any) -> Any:
        if attn_mask is None or attn_mask.dtype != torch.bool:
            return attention(query, key, value, attn_mask=attn_mask, **options)
        open_to_some = attn_mask.any(-1, keepdim=True)
        out = attention(query, key, value, attn_mask=attn_mask | ~open_to_some, **options)
        return out.masked_fill(~open_to_some, 0.0)

    return safe


@contextlib.contextmanager
def without_cudnn(torch: Any) -> Iterator[None]:
    """Disable the attention of cuDNN, which torch prefers on Hopper: some sizes fail in backward.

    Seen with torch 2.11 on an H200: "Expected mha_graph.execute(…).is_good()".
    """
    cuda = torch.backends.cuda
    if not hasattr(cuda, "enable_cudnn_sdp"):  # before torch 2.5
        yield
        return
    before = cuda.cudnn_sdp_enabled()
    cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        cuda.enable_cudnn_sdp(before)
