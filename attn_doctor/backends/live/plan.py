"""Plan what to run: names and a workload become attempts, those with the least memory first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from attn_doctor.backends.live.outcome import Shape

#: Every backend that can be run, with the module that it needs.
NAMES: dict[str, str] = {
    "native": "torch",
    "_native_cudnn": "torch",
    "_native_efficient": "torch",
    "_native_flash": "torch",
    "_native_math": "torch",
    "flex": "torch",
    "flash": "flash_attn",
    "flash_varlen": "flash_attn",
    "flash_hub": "kernels",
    "flash_varlen_hub": "kernels",
    "_flash_3": "flash_attn_interface",
    "_flash_varlen_3": "flash_attn_interface",
    "_flash_3_hub": "kernels",
    "_flash_3_varlen_hub": "kernels",
    "flash_4_hub": "kernels",
    "sage": "sageattention",
    "sage_varlen": "sageattention",
    "sage_hub": "kernels",
    "sage_blackwell_hub": "kernels",
    "_sage_qk_int8_pv_fp8_cuda": "sageattention",
    "_sage_qk_int8_pv_fp8_cuda_sm90": "sageattention",
    "_sage_qk_int8_pv_fp16_cuda": "sageattention",
    "_sage_qk_int8_pv_fp16_triton": "sageattention",
    "xformers": "xformers",
}
#: Modules that are imported on their own, with the distribution they belong to.
PACKAGES: dict[str, str] = {
    "triton": "triton",
    "flash_attn": "flash-attn",
    "flash_attn_interface": "flash-attn-3",
    "sageattention": "sageattention",
    "xformers.ops": "xformers",
    "kernels": "kernels",
}
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


class Workload(Struct, frozen=True, kw_only=True):
    """The attention that is measured."""

    phase: str = ""
    """`inference`, `training`, or empty for both, inference deciding."""
    mask: str = "none"
    """`none`; `varlen`: boolean over keys, valid ones first; `bool`: padding anywhere."""
    causal: bool = False
    gqa: bool = False
    dtype: str = "bf16"
    """`bf16`, `fp16` or `fp32`."""
    head_dim: int | None = None
    """None: as usual for each shape."""
    seq: int | None = None
    """Tokens of the realistic shape; None: as usual."""

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases to run, in order."""
        return (self.phase,) if self.phase else ("inference", "training")

    @property
    def torch_dtype(self) -> str:
        """The dtype as torch calls it."""
        return _DTYPES[self.dtype]


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of one job."""

    seconds: float = 180.0
    """For one backend, compiling included."""
    import_seconds: float = 120.0
    share: float = 0.8
    """Of the GPU memory that is free."""
    memory_mib: int | None = None
    """Of the machine's memory, for one job; None: 60 % of what is available."""
    timing_seconds: float = 0.4
    """How long to repeat a call for its time."""
    network: bool = False
    """Kernels that are not on this machine may be downloaded."""


class Attempt(Struct, frozen=True, kw_only=True):
    """One backend to run on one route."""

    name: str
    route: str
    score_bytes: dict[str, float]
    """Bytes that it holds for each score, by phase."""


def attempts(
    names: Iterable[str], found: Mapping[str, bool], workload: Workload, table: Mapping[str, Any]
) -> list[Attempt]:
    """The attempts for `names`; `found` says which modules are installed."""
    planned = [
        Attempt(name=name, route=route, score_bytes=score_bytes(name, route, workload, table))
        for name in names
        for route in _routes(name, found)
    ]
    # What takes little memory goes first: on a GPU that others use, it may be all that fits.
    return sorted(planned, key=lambda one: max(one.score_bytes.values()))


def _routes(name: str, found: Mapping[str, bool]) -> Sequence[str]:
    module = NAMES[name]
    if not found.get(module):
        return ()
    if module == "kernels":
        return ("diffusers",) if found.get("diffusers") else ()
    if name == "flex":
        return ("diffusers", "compiled") if found.get("diffusers") else ("direct", "compiled")
    if not found.get("diffusers"):
        return ("direct",)
    # diffusers does nothing but call torch; of other packages it hides why they do not import.
    return ("diffusers",) if module == "torch" else ("diffusers", "direct")


def score_bytes(
    name: str, route: str, workload: Workload, table: Mapping[str, Any]
) -> dict[str, float]:
    """Bytes that a backend holds for each score, by phase."""
    for row in table["scores"]:
        if row["backend"] == name and route in row.get("route", (route,)):
            masked = row.get("masked", 0.0) if workload.mask != "none" or workload.causal else 0.0
            return {phase: max(row[phase], masked) for phase in ("inference", "training")}
    return {"inference": 0.0, "training": 0.0}


def shapes(workload: Workload, device: str, table: Mapping[str, Any]) -> tuple[Shape, ...]:
    """The shapes for a device (`cuda…` or anything else), as the workload changes them."""
    kind = "cuda" if device.startswith("cuda") else "cpu"
    found = []
    for row in table["shape"]:
        # A causal mask means different things for unequal lengths.
        if row["device"] != kind or (workload.causal and row.get("kv_length")):
            continue
        realistic = row["name"] == "realistic"
        found.append(
            Shape(
                name=row["name"],
                batch=row["batch"],
                heads=row["heads"],
                kv_heads=row["heads"] // 2 if workload.gqa else row["heads"],
                length=workload.seq if workload.seq and realistic else row["length"],
                head_dim=workload.head_dim or row["head_dim"],
                kv_length=row.get("kv_length", 0),
                fused=row.get("fused", False),
                model=""
                if workload.seq or workload.head_dim or workload.gqa
                else row.get("model", ""),
            )
        )
    return tuple(found)


def job(
    attempt: Attempt, workload: Workload, limits: Limits, device: str, table: Mapping[str, Any]
) -> dict[str, Any]:
    """What the worker is to do for an attempt."""
    return {
        "action": "attend",
        "name": attempt.name,
        "route": attempt.route,
        "device": device,
        "share": limits.share,
        "phases": workload.phases,
        "shapes": [msgspec.structs.asdict(one) for one in shapes(workload, device, table)],
        "dtype": workload.torch_dtype,
        "mask": workload.mask,
        "causal": workload.causal,
        "rounding": _rounding(attempt, table),
        "score_bytes": attempt.score_bytes,
        "timing_seconds": limits.timing_seconds,
    }


def _rounding(attempt: Attempt, table: Mapping[str, Any]) -> str:
    """What a backend rounds, by its kind in `worker/proof/rounding.py`."""
    for row in table["rounding"]:
        if attempt.name in row["backends"] and attempt.route in row.get("route", (attempt.route,)):
            return str(row["kind"])
    return "fused"
