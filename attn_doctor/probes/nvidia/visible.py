"""Which GPUs CUDA_VISIBLE_DEVICES leaves visible.

https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct


class Identity(Struct, frozen=True, kw_only=True):
    """What the variable may name a GPU by, and what decides CUDA's order."""

    uuid: str = ""
    model: str = ""
    """Name and compute capability: GPUs of one model are equally fast."""
    mig: tuple[str, ...] = ()
    """Ids of its MIG instances."""


def visible(
    value: str | None, order: str, gpus: Sequence[Identity]
) -> tuple[tuple[bool | None, ...], str]:
    """For each GPU, whether a CUDA program sees it; and why that cannot be told, if it cannot.

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
        # CUDA counts the fastest GPU first; which that is only CUDA knows.
        return (None,) * len(gpus), (
            f"CUDA_VISIBLE_DEVICES={value} counts the GPUs from the fastest, and they differ;"
            " CUDA_DEVICE_ORDER=PCI_BUS_ID would make the numbers those of nvidia-smi"
        )
    return tuple(number in named for number in range(len(gpus))), ""


def _by_number(value: str, gpus: Sequence[Identity]) -> list[int]:
    """The numbers in front of the first invalid one; none at all if one comes twice."""
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
    """The same for ids, which may be shortened as long as they fit only one GPU."""
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
