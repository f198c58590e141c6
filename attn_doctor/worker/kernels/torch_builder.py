"""Uses a torch that can build FlexAttention kernels itself. No official release can.

A patched build may have `build_flex_attention_kernels`, with unknown parameters. It is called by
the names of its parameters, and what it built is run and compared like any other kernel.
"""

from __future__ import annotations

import inspect
from typing import Any


def ask(torch: Any, spec: dict[str, Any], device: str) -> tuple[bool, str]:
    """Let torch build the kernels of a spec: whether it did, and a limit to report if not."""
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
    """Arguments for a function by their names; None if it requires one that is not known."""
    try:
        wanted = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    given = {}
    for parameter in wanted:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY or parameter.name not in known:
            if parameter.default is parameter.empty:
                return None
            continue
        given[parameter.name] = known[parameter.name]
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
