"""How exactly each kind of kernel computes, as the typical size of its roundings.

All figures are root mean squares, relative to the number that is rounded. A number with b bits
behind the first is rounded by at most half a step of 2**-b, uniformly, so by 2**-(b+1)/sqrt(3) of
its power of two; over all mantissas that is 0.425 * 2**-(b+1) of the number itself.

The model explains what was measured on an H200 with normal inputs, 24 heads of 128, 4608 tokens:

- bfloat16 (b = 7) rounds weights and output: sqrt(2) * 0.425 * 2**-8 = 2.35e-3; native has 2.3e-3.
- int8 queries and keys: steps of max/127 give 1.2e-2 to 1.4e-2; SageAttention with fp16 products
  has 1.2e-2 to 1.3e-2.
- fp8 e4m3 (b = 3) weights and values besides: sqrt(2) * 0.425 * 2**-4 = 3.75e-2, together 4.0e-2;
  SageAttention with fp8 products has 3.8e-2.
"""

from __future__ import annotations

from typing import NamedTuple

#: Bits behind the first of a mantissa.
_BITS = {"bfloat16": 7, "float16": 10, "tf32": 10, "fp8": 3, "fp4": 1, "float32": 23}
#: float32 sums of many terms, and exponential functions that are off by some units in the last
#: place, as CPU kernels have them, cost about five bits.
_LOST = 5


class Rounding(NamedTuple):
    """What a kernel rounds."""

    out: float
    """The output and the gradients, when they are written."""
    weights: float
    """Weights before their product with values, and what corresponds to them in the backward."""
    values: float = 0.0
    """Values, for that product."""
    inputs: float = 0.0
    """Queries and keys, for the scores, each relative to itself (TF32)."""
    scores: float = 0.0
    """Scores, relative to themselves, where they are written in a narrow type."""
    steps: float = 0.0
    """Queries and keys, in steps of this share of the largest element of a head."""
    tiny: float = 0.0
    """Weights that are smaller than this lose all their digits (float16)."""
    partial: bool = False
    """Gradients are rounded after each block of queries (`query_block`) and of 512 keys."""


#: Keys after which the flash kernel of CPUs rounds the gradient of the queries.
KEY_BLOCK = 512


def query_block(length: int) -> int:
    """Queries after which torch's flash kernel of CPUs rounds the gradients of keys and values.

    Source: `flash_attention_backward_kernel_impl` of ATen's `native/cpu/FlashAttentionKernel.cpp`.
    """
    return 256 if length >= 768 else 64 if length >= 192 else 32


def _relative(kind: str) -> float:
    return float(0.425 * 2.0 ** -(_BITS[kind] + 1))


def rounding(kind: str, dtype: str, device: str) -> Rounding:
    """The roundings of a kind of kernel for a dtype on a device such as `cuda:0` or `cpu`.

    Kinds: `fused`: scores stay in float32; `unfused`: scores are written in the dtype of the
    inputs; `int8-fp8`, `int8-fp16`: int8 queries and keys, and products of weights and values in
    fp8 or float16; `fp4`: all products in fp4.
    """
    out = _relative(dtype)
    tiny = 2.0**-25 if dtype == "float16" or kind == "int8-fp16" else 0.0
    if kind == "int8-fp8":
        fp8 = _relative("fp8")
        # Smallest fp8 of weights that are scaled to 448: 2**-10 of that.
        return Rounding(out, fp8, fp8, steps=1 / 127, tiny=2.0**-10 / 448)
    if kind == "int8-fp16":
        half = _relative("float16")
        # Sums in float16 add some roundings of their own.
        return Rounding(out, 4 * half, half, steps=1 / 127, tiny=tiny)
    if kind == "fp4":
        fp4 = _relative("fp4")
        return Rounding(out, fp4, fp4, inputs=fp4, tiny=tiny)
    if dtype == "float32":
        if device.startswith("cuda"):
            # TF32 may be used; tensor cores cut off what they do not hold, which doubles the error.
            tf32 = 2 * _relative("tf32")
            return Rounding(tf32, tf32, tf32, inputs=tf32, scores=out * 2**_LOST)
        lost = out * 2**_LOST
        return Rounding(lost, lost, scores=lost)
    if kind == "unfused":
        return Rounding(out, out, scores=out, tiny=tiny)
    return Rounding(out, out, tiny=tiny, partial=not device.startswith("cuda"))
