"""Turns the answers of NVML or nvidia-smi about each GPU into facts, and missing ones into gaps.

`visible` applies CUDA_VISIBLE_DEVICES as CUDA does:
https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from attn_doctor.facts import Gpu
from attn_doctor.numbers import natural
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.nvidia.answers import Smi, short


class Identity(Struct, frozen=True, kw_only=True):
    """By what the variable may name a GPU, and what decides CUDA's order."""

    uuid: str = ""
    model: str = ""
    """Name and compute capability: GPUs of one model are equally fast."""
    mig: tuple[str, ...] = ()
    """Ids of its MIG instances."""


def visible(
    value: str | None, order: str, gpus: Sequence[Identity]
) -> tuple[tuple[bool | None, ...], str]:
    """Return for each GPU whether CUDA programs see it, and why that is unknown, if it is.

    `value` is CUDA_VISIBLE_DEVICES (None if it is not set), `order` is CUDA_DEVICE_ORDER.
    """
    if value is None:
        return (True,) * len(gpus), ""
    named = _by_id(value, gpus) if value.startswith(("GPU-", "MIG-")) else _by_number(value, gpus)
    if named is None:
        return (None,) * len(gpus), "the ids of the GPUs could not be read"
    if not named or len(named) == len(gpus):
        return (bool(named),) * len(gpus), ""
    by_number = not value.startswith(("GPU-", "MIG-"))
    if by_number and order != "PCI_BUS_ID" and len({one.model for one in gpus}) > 1:
        # CUDA counts the fastest GPU first, and only CUDA knows which one that is.
        return (None,) * len(gpus), (
            f"CUDA_VISIBLE_DEVICES={value} counts the GPUs from the fastest, and they differ;"
            " CUDA_DEVICE_ORDER=PCI_BUS_ID would make the numbers those of nvidia-smi"
        )
    return tuple(number in named for number in range(len(gpus))), ""


def _by_number(value: str, gpus: Sequence[Identity]) -> list[int]:
    """Return the numbers before the first invalid one; none if a number occurs twice."""
    named: list[int] = []
    for part in value.split(","):
        # CUDA reads as many digits as there are: `1gpu` is 1.
        match = re.match(r"\s*\+?(\d+)", part)
        if match is None or int(match[1]) >= len(gpus):
            break
        if int(match[1]) in named:
            return []
        named.append(int(match[1]))
    return named


def _by_id(value: str, gpus: Sequence[Identity]) -> list[int] | None:
    """Return the same for ids, which may be shortened while they match only one GPU."""
    if not all(one.uuid for one in gpus) or ("MIG-" in value and not any(o.mig for o in gpus)):
        return None
    named: list[int] = []
    seen: set[str] = set()
    for part in (one.strip() for one in value.split(",")):
        if part in seen:
            return []
        seen.add(part)
        if part.startswith("MIG-"):
            fits = [n for n, one in enumerate(gpus) for own in one.mig if own.startswith(part)]
            # MIG-GPU-<id of the GPU>/<instance>/<instance> is how drivers before 470 wrote it.
            parent = part.removeprefix("MIG-").partition("/")[0]
            fits = fits or [n for n, one in enumerate(gpus) if one.uuid == parent]
        elif part.startswith("GPU-"):
            fits = [n for n, one in enumerate(gpus) if one.uuid.startswith(part)]
        else:
            fits = []
        if len(fits) != 1:
            break
        if fits[0] in named and not part.startswith("MIG-"):
            return []
        named.append(fits[0])
    return list(dict.fromkeys(named))


NOT_SUPPORTED = 3
FUNCTION_NOT_FOUND = 13
MIB = 1 << 20
#: nvmlComputeMode_t
_COMPUTE_MODES = ("default", "exclusive-thread", "prohibited", "exclusive-process")
#: NVML's answers that each fact needs.
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


#: More GPUs than any machine has.
_MOST = 1024


def from_nvml(
    answer: Mapping[str, Any], unanswered: str, environ: Mapping[str, str], gaps: Gaps
) -> tuple[Gpu, ...]:
    """Return the GPUs of NVML's answer; `unanswered` is the reason for missing answers."""
    found = list(answer.get("gpus", ()))
    # A library that is not NVIDIA's, or a recording, may count any number.
    count = min(answer.get("count") or 0, _MOST)
    found += [{"index": index, "errors": {}} for index in range(len(found), count)]
    gpus = tuple(_gpu(one, unanswered, gaps) for one in found)
    mig = [tuple(one.get("mig_uuids") or ()) for one in found]
    return _with_visibility(gpus, mig, environ, gaps)


#: Facts that do not come from the driver.
_DERIVED = ("visible", "in_torch_archs", "torch_code", "min_nvcc")


def from_smi(smi: Smi, environ: Mapping[str, str], gaps: Gaps) -> tuple[Gpu, ...]:
    """Return the GPUs that nvidia-smi listed."""
    gpus = tuple(_smi_gpu(number, one) for number, one in enumerate(smi.gpus))
    for gpu in gpus:
        for field in msgspec.structs.fields(Gpu):
            if getattr(gpu, field.name) is None and field.name not in _DERIVED:
                gaps.add(f"gpus[{gpu.index}].{field.name}", "NVML could not be asked for it")
    return _with_visibility(gpus, [()] * len(gpus), environ, gaps)


def address(bus_id: str) -> str:
    """Return NVML's `00000000:01:00.0` as the kernel writes it: `0000:01:00.0`."""
    domain, colon, rest = short(bus_id, 32).lower().partition(":")
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
        return f"NVML answered: {short(str(error.get('text')), 200)}"
    return unanswered or "NVML gave no usable answer"


#: Conversion of each of NVML's answers to facts.
_CONVERT: dict[str, Callable[[Any], dict[str, Any]]] = {
    "name": lambda value: {"name": short(value)},
    "compute_capability": _capability,
    "uuid": lambda value: {"uuid": short(value)},
    "pci_bus_id": lambda value: {"pci_bus_id": address(value)},
    "memory": _memory,
    "compute_mode": _compute_mode,
    "persistence": lambda value: {"persistence": bool(value)},
    "processes": lambda value: {"processes": value},
}


def _smi_gpu(number: int, one: Mapping[str, str]) -> Gpu:
    capability = one.get("compute_cap", "")
    major, minor = map(natural, capability.partition(".")[::2])
    mig = one.get("mig.mode.current", "").lower()
    return Gpu(
        index=number,
        name=short(one["name"]) if one.get("name") else None,
        sm=None if major is None or minor is None else major * 10 + minor,
        compute_capability=capability or None,
        memory_total_mib=natural(one.get("memory.total")),
        memory_free_mib=natural(one.get("memory.free")),
        mig="enabled" if mig == "enabled" else "disabled" if mig == "disabled" else "unsupported",
        mig_devices=None if mig == "enabled" else 0,
        # Exclusive_Process
        compute_mode=one["compute_mode"].lower().replace("_", "-")
        if "compute_mode" in one
        else None,
        persistence={"Enabled": True, "Disabled": False}.get(one.get("persistence_mode", "")),
        uuid=short(one["uuid"]) if one.get("uuid") else None,
        pci_bus_id=address(one["pci.bus_id"]) if one.get("pci.bus_id") else None,
    )


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
