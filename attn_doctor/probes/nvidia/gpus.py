"""Turns what NVML or nvidia-smi said of each GPU into facts, and what they left out into gaps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from attn_doctor.facts import Gpu
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.nvidia.smi import Smi
from attn_doctor.probes.nvidia.visible import Identity, visible

NOT_SUPPORTED = 3
FUNCTION_NOT_FOUND = 13
MIB = 1 << 20
#: nvmlComputeMode_t
_COMPUTE_MODES = ("default", "exclusive-thread", "prohibited", "exclusive-process")
#: NVML's answers that each fact hangs on.
_SOURCES = {
    "name": ("name",),
    "sm": ("compute_capability",),
    "compute_capability": ("compute_capability",),
    "memory_total_mib": ("memory",),
    "memory_free_mib": ("memory",),
    "mig": ("mig_mode",),
    "mig_devices": ("mig_uuids", "mig_mode"),
    "compute_mode": ("compute_mode",),
    "persistence": ("persistence",),
    "processes": ("processes",),
    "uuid": ("uuid",),
    "pci_bus_id": ("pci_bus_id",),
}


def from_nvml(
    answer: Mapping[str, Any], unanswered: str, environ: Mapping[str, str], gaps: Gaps
) -> tuple[Gpu, ...]:
    """The GPUs of NVML's answer; `unanswered` says why it may have stopped half-way."""
    found = list(answer.get("gpus", ()))
    while len(found) < (answer.get("count") or 0):
        found.append({"index": len(found), "errors": {}})
    gpus = tuple(_gpu(one, unanswered, gaps) for one in found)
    mig = [tuple(one.get("mig_uuids") or ()) for one in found]
    return _with_visibility(gpus, mig, environ, gaps)


#: What does not come from the driver.
_WORKED_OUT = ("visible", "in_torch_archs", "torch_code")


def from_smi(smi: Smi, environ: Mapping[str, str], gaps: Gaps) -> tuple[Gpu, ...]:
    """The GPUs that nvidia-smi listed."""
    gpus = tuple(_smi_gpu(number, one) for number, one in enumerate(smi.gpus))
    for gpu in gpus:
        for field in msgspec.structs.fields(Gpu):
            if getattr(gpu, field.name) is None and field.name not in _WORKED_OUT:
                gaps.add(f"gpus[{gpu.index}].{field.name}", "NVML could not be asked for it")
    return _with_visibility(gpus, [()] * len(gpus), environ, gaps)


def clean(text: str, length: int = 96) -> str:
    """Text of a driver, fit to be shown: no control characters, no more than NVML's own limit."""
    return "".join(one if one.isprintable() else "?" for one in text)[:length]


def address(bus_id: str) -> str:
    """NVML's `00000000:01:00.0` as the kernel writes it: `0000:01:00.0`."""
    domain, colon, rest = clean(bus_id, 32).lower().partition(":")
    try:
        return f"{int(domain, 16):04x}{colon}{rest}"
    except ValueError:
        return domain + colon + rest


def _gpu(one: Mapping[str, Any], unanswered: str, gaps: Gaps) -> Gpu:
    number, errors = one["index"], one["errors"]
    if not one.get("handle"):
        gaps.add(f"gpus[{number}]", _reason(errors.get("handle"), unanswered))
        return Gpu(index=number)
    known = _mig(one)
    for key, convert in _CONVERT.items():
        if one.get(key) is not None:
            known.update(convert(one[key]))
    if _code(errors, "persistence") == NOT_SUPPORTED:
        known["persistence"] = False  # only Linux has it
    for field, keys in _SOURCES.items():
        if known.get(field) is None:
            error = next((errors[key] for key in keys if key in errors), None)
            gaps.add(f"gpus[{number}].{field}", _reason(error, unanswered))
    return Gpu(index=number, **known)


def _mig(one: Mapping[str, Any]) -> dict[str, Any]:
    if _code(one["errors"], "mig_mode") in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
        return {"mig": "unsupported", "mig_devices": 0}
    if one.get("mig_mode") == 0:
        return {"mig": "disabled", "mig_devices": 0}
    if one.get("mig_mode") is None:
        return {}
    uuids = one.get("mig_uuids")
    return {"mig": "enabled", "mig_devices": None if uuids is None else len(uuids)}


def _capability(value: list[int]) -> dict[str, Any]:
    major, minor = value
    return {"sm": major * 10 + minor, "compute_capability": f"{major}.{minor}"}


def _memory(value: Mapping[str, int]) -> dict[str, Any]:
    return {"memory_total_mib": value["total"] // MIB, "memory_free_mib": value["free"] // MIB}


def _compute_mode(value: int) -> dict[str, Any]:
    return {"compute_mode": dict(enumerate(_COMPUTE_MODES)).get(value)}


def _code(errors: Mapping[str, Any], key: str) -> int | None:
    code: int | None = errors.get(key, {}).get("code")
    return code


def _reason(error: Mapping[str, Any] | None, unanswered: str) -> str:
    if error is not None:
        return f"NVML answered: {clean(str(error.get('text')), 200)}"
    return unanswered or "NVML gave no usable answer"


#: How each of NVML's answers becomes facts.
_CONVERT: dict[str, Callable[[Any], dict[str, Any]]] = {
    "name": lambda value: {"name": clean(value)},
    "compute_capability": _capability,
    "uuid": lambda value: {"uuid": clean(value)},
    "pci_bus_id": lambda value: {"pci_bus_id": address(value)},
    "memory": _memory,
    "compute_mode": _compute_mode,
    "persistence": lambda value: {"persistence": bool(value)},
    "processes": lambda value: {"processes": value},
}


def _smi_gpu(number: int, one: Mapping[str, str]) -> Gpu:
    capability = one.get("compute_cap", "")
    major, _, minor = capability.partition(".")
    mig = one.get("mig.mode.current", "").lower()
    return Gpu(
        index=number,
        name=clean(one["name"]) if one.get("name") else None,
        sm=int(major) * 10 + int(minor) if major.isdigit() and minor.isdigit() else None,
        compute_capability=capability or None,
        memory_total_mib=_whole(one.get("memory.total")),
        memory_free_mib=_whole(one.get("memory.free")),
        mig="enabled" if mig == "enabled" else "disabled" if mig == "disabled" else "unsupported",
        mig_devices=None if mig == "enabled" else 0,
        # Exclusive_Process
        compute_mode=one["compute_mode"].lower().replace("_", "-")
        if "compute_mode" in one
        else None,
        persistence={"Enabled": True, "Disabled": False}.get(one.get("persistence_mode", "")),
        uuid=clean(one["uuid"]) if one.get("uuid") else None,
        pci_bus_id=address(one["pci.bus_id"]) if one.get("pci.bus_id") else None,
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _with_visibility(
    gpus: tuple[Gpu, ...], mig: list[tuple[str, ...]], environ: Mapping[str, str], gaps: Gaps
) -> tuple[Gpu, ...]:
    """`gpus` with `visible` filled; CUDA's view needs all of them at once."""
    identities = [
        Identity(uuid=gpu.uuid or "", model=f"{gpu.name} {gpu.sm}", mig=own)
        for gpu, own in zip(gpus, mig, strict=True)
    ]
    value, order = environ.get("CUDA_VISIBLE_DEVICES"), environ.get("CUDA_DEVICE_ORDER", "")
    seen, reason = visible(value, order, identities)
    for gpu in gpus:
        if reason:
            gaps.add(f"gpus[{gpu.index}].visible", reason)
    return tuple(
        msgspec.structs.replace(gpu, visible=one) for gpu, one in zip(gpus, seen, strict=True)
    )
