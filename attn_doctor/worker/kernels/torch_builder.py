"""A torch that can build FlexAttention kernels itself. No official release has the function.

Guides name `build_flex_attention_kernels`; a patched build may have it, with whatever arguments. It
is asked by the names of its parameters, and what it built is run and compared like anything else.
"""

from __future__ import annotations

import inspect
from typing import Any


def ask(torch: Any, spec: dict[str, Any], device: str) -> tuple[bool, str]:
    """Let torch build the kernels of a spec: whether it did, and a limit to tell if not."""
    from torch.nn.attention import flex_attention as module

    build = getattr(module, "build_flex_attention_kernels", None)
    if not callable(build):
        return False, ""
    arguments = fitting(build, _known(torch, spec, device))
    if arguments is None:
        return False, (
            "this torch has build_flex_attention_kernels, but it asks for arguments that are not "
            "known here; torch.compile was used"
        )
    build(**arguments)
    return True, ""


def fitting(function: Any, known: dict[str, Any]) -> dict[str, Any] | None:
    """Arguments for a function by the names it asks for; None if it needs one that is not known."""
    try:
        wanted = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    given = {}
    for one in wanted:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        if one.kind is one.POSITIONAL_ONLY or one.name not in known:
            if one.default is one.empty:
                return None
            continue
        given[one.name] = known[one.name]
    return given


def _known(torch: Any, spec: dict[str, Any], device: str) -> dict[str, Any]:
    dtype = getattr(torch, spec.get("dtype", "bfloat16"))
    heads, length = spec["heads"], spec["lengths"][0]
    kv_heads = spec.get("kv_heads") or heads
    singular = {
        "head_dim": spec["head_dim"],
        "dtype": dtype,
        "device": torch.device(device),
        "num_heads": heads,
        "heads": heads,
        "num_kv_heads": kv_heads,
        "kv_heads": kv_heads,
        "seq_len": length,
        "seqlen": length,
        "batch_size": spec.get("batch", 1),
        "batch": spec.get("batch", 1),
    }
    plural = {f"{name}s": [singular[name]] for name in ("head_dim", "dtype", "seq_len")}
    return {**singular, **plural}
