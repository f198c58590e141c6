"""What a person asks to be built: flags, TOML files and presets become specs, each one once.

A value may be a list, and lists multiply. Lengths that one process sees after one another belong
together, `1024+2048`, since their order decides which kernels are compiled; a comma makes two
specs, each for a process of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from attn_doctor.errors import AttnDoctorError
from attn_doctor.kernels.builder import presets
from attn_doctor.kernels.builder.items import mask_folder
from attn_doctor.kernels.builder.spec_fields import FIELDS, strange_option
from attn_doctor.kernels.builder.spec_files import from_file
from attn_doctor.kernels.builder.value_products import (
    FIXED,
    MOST,
    product,
    shown_as,
)
from attn_doctor.record.spec import KernelSpec


class SpecArgs(Struct, frozen=True, kw_only=True):
    """The flags as they were written; empty text is a flag that was not given."""

    heads: str = ""
    kv_heads: str = ""
    head_dim: str = ""
    value_dim: str = ""
    dtype: str = ""
    mask: str = ""
    window: str = ""
    mask_rows: str = ""
    per_head: str = ""
    length: Sequence[str] = ()
    kv_length: str = ""
    batch: str = ""
    phase: str = ""
    layout: str = ""
    fused_width: str = ""
    scale: str = ""
    dynamic: str = ""
    mode: str = ""
    option: Sequence[str] = ()
    preset: Sequence[str] = ()
    spec: Sequence[str] = ()
    block: bool = False
    device: str = "cuda:0"


class RequestedSpecs(Struct, frozen=True, kw_only=True):
    """What is to be built."""

    specs: tuple[KernelSpec, ...]
    sys_path: tuple[str, ...] = ()
    """Folders in which the user's mask functions are looked for."""
    notes: tuple[str, ...] = ()
    """Sentences that the user should see, such as a family that never reaches FlexAttention."""


def requested_specs(given: SpecArgs) -> RequestedSpecs:
    """All that was asked for, without doubles. Raises `AttnDoctorError` naming flag or file."""
    flags = _flags(given)
    specs: list[KernelSpec] = []
    notes: list[str] = []
    folders: list[str] = []
    own_phase = "inference" if given.device.startswith("cpu") else "training"
    for name in given.spec:
        found, told = from_file(Path(name), own_phase, given.block)
        specs += found
        notes += told
        folders.append(str(Path(name).resolve().parent))
    for text in given.preset:
        for one in filter(None, (part.strip() for part in text.split(","))):
            rows, said = presets.rows(one, given.block)
            notes += said
            for row in rows:
                specs += product({**row, **flags}, "", f"--preset {one}", own_phase)
    if not given.spec and not given.preset:
        specs += product(flags, "--", "", own_phase)
    elif flags and not given.preset:
        flag = shown_as(next(iter(flags)), "--")
        raise AttnDoctorError(f"{flag} has no meaning with --spec alone: write it in the file")
    unique = {spec.id: spec for spec in reversed(specs)}
    if len(unique) > MOST:
        raise AttnDoctorError(f"asks for {len(unique)} kernels; at most {MOST} at once")
    options = {name for spec in unique.values() for name in spec.kernel_options}
    notes += filter(None, map(strange_option, sorted(options)))
    if any(":" in spec.mask for spec in unique.values()):
        folders.append(os.getcwd())
    notes += _lost_masks(unique.values(), folders)
    return RequestedSpecs(
        specs=tuple(reversed(unique.values())),
        sys_path=tuple(dict.fromkeys(folders)),
        notes=tuple(dict.fromkeys(notes)),
    )


def _lost_masks(specs: Iterable[KernelSpec], folders: Sequence[str]) -> list[str]:
    """A remark on each mask whose file is in none of these folders."""
    own = dict.fromkeys(spec.mask for spec in specs if ":" in spec.mask)
    lost = [mask for mask in own if not mask_folder(mask, folders)]
    places = " or ".join(dict.fromkeys(folders))
    return [
        f"the file of {mask} is not in {places}: it must be in the environment" for mask in lost
    ]


def _flags(given: SpecArgs) -> dict[str, Any]:
    """The flags that describe a kernel, by the field's name."""
    found: dict[str, Any] = {}
    for name in FIELDS:
        if name in ("lengths", "kernel_options", *FIXED):
            continue
        text = getattr(given, name, "")
        if text:
            found[name] = text
    if given.length:
        found["lengths"] = ",".join(given.length)
    if given.option:
        found["kernel_options"] = "+".join(given.option)
    return found
