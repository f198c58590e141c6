"""Replaces `worker/kernels/job.py`: kernels that need shared memory as their settings say.

A forward and a backward kernel, and a GPU that has as much as `LIMIT` says. So the search for what
fits is tested with real processes and without torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

STAGES, TILE = 3, 64


def prepare(modules: list[str], emit: Callable[..., None]) -> None:
    """There is nothing to import."""


def describe() -> dict[str, Any]:
    """There is nothing to say."""
    return {}


def warm_up(device: str) -> None:
    """There is no device."""


def run_job(job: dict[str, Any], emit: Callable[..., None]) -> dict[str, Any]:
    """Fail as Inductor does if a kernel needs more than the limit."""
    emit("begun")
    if job["action"] == "environment":
        return {"ok": True, "environment": {"device": os.environ["GPU"], "sm": 89}}
    spec = job["spec"]
    if spec.get("mask") == "document":
        return failed("BackendCompilerFailed: ptxas died")
    if spec.get("mask") == "causal":
        os._exit(3)
    options = spec.get("kernel_options", {})
    for kernel, prefix, tile in (("", "fwd_", "BLOCK_M"), ("_backward", "bwd_", "BLOCK_M1")):
        stages = options.get(f"{prefix}num_stages", options.get("num_stages", STAGES))
        rows = options.get(f"{prefix}{tile}", options.get(tile, TILE))
        needed = spec["head_dim"] * rows * stages
        if needed > int(os.environ["LIMIT"]):
            name = f"triton_tem_fused_flex_attention{kernel}_0"
            return failed(
                "No valid triton configs. OutOfMemoryError: out of resource: "
                f"{name} Required: {needed} Hardware limit:{os.environ['LIMIT']} Reducing"
            )
    return {"ok": True}


def failed(message: str) -> dict[str, Any]:
    """As the child tells a failure."""
    return {"ok": False, "failure": {"type": "InductorError", "message": message}}
