"""Values that multiply: two head sizes and two masks are four specs.

What means nothing beside another value is left out there: of a window and several masks, the window
goes with sliding windows only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError
from attn_doctor.kernels.builder.spec_fields import FIELDS, RefusedValueError
from attn_doctor.record.spec import KernelSpec
from attn_doctor.suggest import hint

#: Specs that one call may ask for; more is a mistake in a list.
MOST = 4096
#: Fields whose flag has another name.
_FLAGS = {"lengths": "length", "kernel_options": "option"}
#: Fields that have a meaning only beside some values of another; in a product they go with those.
_MEANT_FOR: dict[str, tuple[str, tuple[str, ...]]] = {
    "window": ("mask", ("sliding-window",)),
    "mask_rows": ("mask", ("bool", "float")),
    "fused_width": ("layout", ("fused-qkv", "fused-v")),
}
#: Fields that only a preset sets, and sets rightly.
FIXED = ("preset", "block", "sizes")


def few(count: int, where: str) -> None:
    """Raise `AttnDoctorError` where more than `MOST` specs are asked for."""
    if count > MOST:
        raise AttnDoctorError(f"{where}: asks for {count} kernels; at most {MOST} at once")


def product(fields: Mapping[str, Any], dashes: str, where: str, own_phase: str) -> list[KernelSpec]:
    """One spec for each combination of the fields' values. `dashes` begins the names of flags."""
    start = f"{where}: " if where else ""
    values = {name: _values(name, value, dashes, start) for name, value in fields.items()}
    for name in ("heads", "head_dim", "lengths"):
        if name not in values:
            other = "; or name a model family with --preset" if dashes else ""
            raise AttnDoctorError(f"{start}{shown_as(name, dashes)} is missing{other}")
    for name, (owner, served) in _MEANT_FOR.items():
        if name in values and not any(one in served for one in values.get(owner, ())):
            names = " or ".join(served)
            shown, other = shown_as(name, dashes), shown_as(owner, dashes)
            raise AttnDoctorError(f"{start}{shown} has a meaning only with {other} {names}")
    both = {"both": ("training", "inference")}
    phases = [both.get(one, (one,)) for one in values.get("phase", [own_phase])]
    values["phase"] = list(dict.fromkeys(itertools.chain.from_iterable(phases)))
    few(math.prod(map(len, values.values())), where or "these flags")
    if "sliding-window" in values.get("mask", ()) and "window" not in values:
        mask, window = shown_as("mask", dashes), shown_as("window", dashes)
        given = f"{window} TOKENS" if dashes else f"{window} = TOKENS"
        raise AttnDoctorError(f"{start}{mask} sliding-window needs {given}: how far it looks back")
    combinations = itertools.product(*values.values())
    return [_spec(dict(zip(values, one, strict=True))) for one in combinations]


def _values(name: str, value: Any, dashes: str, start: str) -> list[Any]:
    """All values that a field is given. Raises `AttnDoctorError` naming it."""
    if name not in FIELDS:
        raise AttnDoctorError(f"{start}no field {name!r}{hint(name, FIELDS)}")
    if name in FIXED:
        return [value]
    shown = shown_as(name, dashes)
    try:
        found = [FIELDS[name](one) for one in _split(value)]
    except RefusedValueError as error:
        raise AttnDoctorError(f"{start}{shown}: {error}") from None
    if not found:
        raise AttnDoctorError(f"{start}{shown}: is empty")
    return found


def shown_as(name: str, dashes: str) -> str:
    """The name of a field, or of its flag where `dashes` begin it."""
    return dashes + _FLAGS.get(name, name).replace("_", "-") if dashes else name


def _spec(fields: dict[str, Any]) -> KernelSpec:
    """A spec of these fields, less those that mean nothing beside the others."""
    for name, (owner, served) in _MEANT_FOR.items():
        if fields.get(owner) not in served:
            fields.pop(name, None)
    spec = KernelSpec(**{name: value for name, value in fields.items() if value is not None})
    if spec.kv_heads == spec.heads:
        spec = replace(spec, kv_heads=None)
    if spec.value_dim == spec.head_dim:
        spec = replace(spec, value_dim=None)
    return spec


def _split(value: Any) -> list[Any]:
    """The alternatives in a value: items of a list, or of text with commas."""
    if isinstance(value, list):
        return value
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return [value]
