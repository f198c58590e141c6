"""Specs that FlexAttention itself refuses, by version of torch and device, before compiling.

Each sentence says which value, which limit and which torch; sources are torch's own checks
(`torch/nn/attention/flex_attention.py` and the lowering in `torch/_inductor/kernel`). What depends
on the GPU, such as its shared memory, is left to the build.
"""

from __future__ import annotations

from attn_doctor.record.spec import KernelSpec

#: Elements that a signed 32-bit offset reaches.
REACH = 2**31


def refusal(spec: KernelSpec, torch: str, device: str, sm: int | None = None) -> str:
    """Why this torch cannot build `spec` on `device` ("cuda:0", "cpu"); "" if it may.

    `torch` is the version, such as 2.11.0+cu130; `sm` the compute capability times ten, None if
    not known.
    """
    release = _minor(torch)
    if release is None:
        return ""
    name = f"torch {release[0]}.{release[1]}"
    if release < (2, 5):
        return f"{name} has no FlexAttention, which came with torch 2.5"
    cpu = device.startswith("cpu")
    return (
        _heads(spec)
        or _sizes(spec, release, name, cpu)
        or _device(spec, release, name, cpu, sm)
        or ("" if cpu or release >= (2, 14) else _mask(spec))
    )


def _minor(torch: str) -> tuple[int, int] | None:
    parts = torch.split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (ValueError, IndexError):
        return None


def _heads(spec: KernelSpec) -> str:
    if spec.kv_heads and spec.heads % spec.kv_heads:
        return (
            f"{spec.heads} query heads are not a multiple of {spec.kv_heads} key heads, as "
            "grouped-query attention needs"
        )
    return ""


def _mask(spec: KernelSpec) -> str:
    """A dense mask whose end the kernel cannot reach.

    Up to torch 2.13. Seen with torch 2.11 on an H200: the generated kernel computes
    `51275*row + column` in 32 bits, and the output was 0.042 from float64, without an error.
    """
    if spec.mask not in ("bool", "float") or not spec.mask_rows:
        return ""
    longest = max(spec.lengths)
    heads = spec.heads if spec.mask == "float" else 1
    elements = spec.batch * heads * longest * (spec.kv_length or longest)
    if elements <= REACH:
        return ""
    return (
        f"its {spec.mask} mask has {elements:,} elements, and torch's kernel reaches no more than "
        f"{REACH:,}: it would read other memory and compute wrong results without an error; use "
        "shorter sequences, or a mask function in place of a tensor"
    )


def _sizes(spec: KernelSpec, release: tuple[int, int], name: str, cpu: bool) -> str:
    for size in dict.fromkeys((spec.head_dim, spec.value_dim or spec.head_dim)):
        if release < (2, 8) and size & (size - 1):
            return f"{name} takes only powers of two as head size; {size} needs torch 2.8 or newer"
        if not cpu and size < 16 and release >= (2, 7):
            return f"head size {size} is below 16, the smallest that {name} compiles for a GPU"
    if release == (2, 5) and (spec.value_dim or 0) > spec.head_dim:
        return (
            f"{name} takes no value heads ({spec.value_dim}) larger than the query heads "
            f"({spec.head_dim}); torch 2.6 takes them"
        )
    return ""


def _device(
    spec: KernelSpec, release: tuple[int, int], name: str, cpu: bool, sm: int | None
) -> str:
    if cpu:
        if release < (2, 6):
            return f"{name} has no FlexAttention kernel for CPUs; torch 2.6 has one"
        if spec.phase == "training":
            return "FlexAttention has no backward on CPUs: only inference can be built there"
        if release == (2, 6) and spec.dtype == "float16":
            return f"{name} has no float16 FlexAttention for CPUs; torch 2.7 has it"
        return ""
    if sm is not None and sm < 70:
        return f"Triton needs compute capability 7.0; this GPU has {sm // 10}.{sm % 10}"
    if sm is not None and sm < 80 and spec.dtype == "bfloat16":
        return (
            f"this GPU (compute capability {sm // 10}.{sm % 10}) has no bfloat16: torch would run "
            "attention unfused without an error; use float16"
        )
    return ""
