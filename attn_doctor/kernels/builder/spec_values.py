"""The values of a spec's fields as a person writes them, and the specs that their lists make.

Each field has one reader, for flags and files alike. It takes one value, text from a command line
or data from a TOML file, and returns what the spec holds. Lists multiply: two head sizes and two
masks are four specs. A field that has no meaning beside another value is left out there: of a
window and several masks, the window goes with sliding windows only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from attn_doctor import suggest
from attn_doctor.errors import AttnDoctorError
from attn_doctor.numbers import natural
from attn_doctor.record.spec import LAYOUTS, MASKS, KernelSpec

#: Specs that one call may ask for; more is a mistake in a list.
MOST = 4096
_DTYPES = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float32": "float32",
    "float": "float32",
}
_PHASES = ("training", "inference", "both")
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class RefusedValueError(Exception):
    """A value that a field cannot have; the message follows the field's name."""


def _whole(least: int, most: int) -> Callable[[Any], int | None]:
    def read(value: Any) -> int | None:
        number = natural(value.strip()) if isinstance(value, str) else None
        value = value if number is None else number
        if not isinstance(value, int) or isinstance(value, bool):
            raise RefusedValueError(f"{_shown(value)} is not a whole number")
        if not least <= value <= most:
            raise RefusedValueError(f"{value} is not between {least} and {most}")
        return value

    return read


def _lengths(value: Any) -> tuple[int, ...]:
    read = _whole(1, 1 << 24)
    parts = value.split("+") if isinstance(value, str) else value
    parts = parts if isinstance(parts, list) else [parts]
    if len(parts) > 1 and any(isinstance(part, str) and not part.strip() for part in parts):
        raise RefusedValueError(f"{_shown(value)} has a + with no length beside it")
    found = tuple(length for length in map(read, parts) if length is not None)
    if not found:
        raise RefusedValueError("names no length")
    if len(found) > 64:
        raise RefusedValueError(f"{len(found)} lengths in one process; at most 64")
    return found


def _one_of(choices: Mapping[str, str] | Iterable[str], also: str = "") -> Callable[[Any], str]:
    known = dict(choices) if isinstance(choices, Mapping) else {one: one for one in choices}

    def read(value: Any) -> str:
        found = known.get(value) if isinstance(value, str) else None
        if found is None:
            names = ", ".join(dict.fromkeys(known.values()))
            near = suggest.hint(value, known) if isinstance(value, str) else ""
            raise RefusedValueError(
                f"{_shown(value)} is unknown{also}{near or f'; use one of {names}'}"
            )
        return found

    return read


def _mask(value: Any) -> str:
    if isinstance(value, str) and ":" in value:
        module, _, function = value.partition(":")
        if all(part.isidentifier() for part in [*module.split("."), *function.split(".")]):
            return value
        raise RefusedValueError(f"{_shown(value)} is not module:function")
    return _one_of(MASKS, " (write your own as module:function)")(value)


def _truth(value: Any) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    found = value if isinstance(value, bool) else words.get(str(value).lower())
    if found is None:
        raise RefusedValueError(f"{_shown(value)} is neither true nor false")
    return found


def _dynamic(value: Any) -> bool | None:
    return None if value in ("auto", "default") else _truth(value)


def _scale(value: Any) -> float:
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise RefusedValueError(f"{_shown(value)} is not a positive number")
    return number


def _options(value: Any) -> dict[str, bool | int | float | str]:
    """`BLOCK_M=64+BLOCK_N=32`, or a table."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split("+") if part]
        if any(not sign or not name for name, sign, _ in pairs):
            raise RefusedValueError(f"{_shown(value)} is not NAME=VALUE")
        return {name.strip(): _scalar(text.strip()) for name, _, text in pairs}
    if not isinstance(value, dict):
        raise RefusedValueError(f"{_shown(value)} is not a table of options")
    for name, one in value.items():
        if not isinstance(one, (bool, int, float, str)):
            raise RefusedValueError(f"{name}: {_shown(one)} is not a plain value")
    return dict(value)


def _scalar(text: str) -> bool | int | float | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _mode(value: Any) -> str | None:
    found = _one_of(_MODES)(value)
    return None if found == "default" else found


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


#: Names that FlexAttention reads: `FlexKernelOptions` of torch 2.9 to 2.13, and what its lowering
#: asks for besides (`torch/_inductor/kernel/flex`).
_OPTIONS = (
    "BLOCK_M", "BLOCK_N", "BLOCK_M1", "BLOCK_N1", "BLOCK_M2", "BLOCK_N2", "num_warps", "num_stages",
    "PRESCALE_QK", "ROWS_GUARANTEED_SAFE", "BLOCKS_ARE_CONTIGUOUS", "WRITE_DQ", "USE_TMA",
    "FORCE_USE_FLEX_ATTENTION", "BACKEND", "kpack", "matrix_instr_nonkdim", "waves_per_eu",
    "SPLIT_KV", "FLOAT32_PRECISION", "PARTITION_SIZE", "num_consumer_groups",
)  # fmt: skip


def unknown_option(name: str) -> str:
    """A remark on a kernel option that torch does not read; "" for one that it reads.

    torch passes on whatever it is given, so a misspelt name would go unnoticed.
    """
    if name.removeprefix("fwd_").removeprefix("bwd_") in _OPTIONS:
        return ""
    near = " or ".join(suggest.nearest(name, _OPTIONS, 3))
    hint = f" (nearest: {near})" if near else ""
    return f"torch up to 2.13 reads no kernel option {name}{hint}; it is passed on unchanged"


#: Fields of a spec → what reads one value of them.
FIELDS: dict[str, Callable[[Any], Any]] = {
    "heads": _whole(1, 1024),
    "kv_heads": _whole(1, 1024),
    "head_dim": _whole(1, 4096),
    "value_dim": _whole(1, 4096),
    "lengths": _lengths,
    "kv_length": _whole(1, 1 << 24),
    "batch": _whole(1, 65536),
    "dtype": _one_of(_DTYPES),
    "mask": _mask,
    "window": _whole(0, 1 << 24),
    "mask_rows": _truth,
    "per_head": _truth,
    "phase": _one_of(_PHASES),
    "layout": _one_of(LAYOUTS),
    "fused_width": _whole(1, 1 << 24),
    "scale": _scale,
    "dynamic": _dynamic,
    "mode": _mode,
    "kernel_options": _options,
    "preset": str,
    "block": str,
    "sizes": dict,
}


# Lists of values

#: Fields whose names for people differ from those of `KernelSpec`, in files and as options.
_WRITTEN = {"lengths": "seq_len", "kv_length": "kv_seq_len", "phase": "for"}
#: Fields that have a meaning only beside some values of another; in a product they go with those.
_MEANT_FOR: dict[str, tuple[str, tuple[str, ...]]] = {
    "window": ("mask", ("sliding-window",)),
    "mask_rows": ("mask", ("bool", "float")),
    "fused_width": ("layout", ("fused-qkv", "fused-v")),
}
#: Fields that only a preset sets.
PRESET_ONLY = ("preset", "block", "sizes")


def written(name: str, dashes: str = "") -> str:
    """The name of a field in a file, or of its option where `dashes` begin it."""
    text = _WRITTEN.get(name, name)
    if not dashes:
        return text
    return dashes + ("option" if name == "kernel_options" else text.replace("_", "-"))


def fields_of(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of a table of a file. Raises `AttnDoctorError` for an unknown name."""
    by_name = {written(name): name for name in FIELDS if name not in PRESET_ONLY}
    for name in table:
        if name not in by_name:
            near = suggest.hint(name, by_name)
            raise AttnDoctorError(f"{where}: unknown field {name!r}{near}")
    return {by_name[name]: value for name, value in table.items()}


def few(count: int, where: str) -> None:
    """Raise `AttnDoctorError` if more than `MOST` specs are asked for."""
    if count > MOST:
        raise AttnDoctorError(f"{where}: asks for {count} kernels; at most {MOST} at once")


def product(fields: Mapping[str, Any], dashes: str, where: str, phase: str) -> list[KernelSpec]:
    """One spec for each combination of the fields' values.

    `dashes` begin the names of options in messages, and `phase` is the default. Raises
    `AttnDoctorError` naming the field.
    """
    start = f"{where}: " if where else ""
    values = {name: _values(name, value, dashes, start) for name, value in fields.items()}
    for name in ("heads", "head_dim", "lengths"):
        if name not in values:
            other = "; or name a model family with --preset" if dashes else ""
            raise AttnDoctorError(f"{start}{written(name, dashes)} is missing{other}")
    for name, (owner, served) in _MEANT_FOR.items():
        if name in values and not any(value in served for value in values.get(owner, ())):
            names = " or ".join(served)
            shown, other = written(name, dashes), written(owner, dashes)
            raise AttnDoctorError(f"{start}{shown} has a meaning only with {other} {names}")
    both = {"both": ("training", "inference")}
    phases = [both.get(value, (value,)) for value in values.get("phase", [phase])]
    values["phase"] = list(dict.fromkeys(itertools.chain.from_iterable(phases)))
    few(math.prod(map(len, values.values())), where or "these options")
    if "sliding-window" in values.get("mask", ()) and "window" not in values:
        mask, window = written("mask", dashes), written("window", dashes)
        needed = f"{window} TOKENS" if dashes else f"{window} = TOKENS"
        raise AttnDoctorError(f"{start}{mask} sliding-window needs {needed}: how far it looks back")
    combinations = itertools.product(*values.values())
    return [_spec(dict(zip(values, chosen, strict=True))) for chosen in combinations]


def _values(name: str, value: Any, dashes: str, start: str) -> list[Any]:
    """All values of a field: items of a list, or of text with commas."""
    if name in PRESET_ONLY:
        return [value]
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    shown = written(name, dashes)
    try:
        values = [FIELDS[name](one) for one in (value if isinstance(value, list) else [value])]
    except RefusedValueError as error:
        raise AttnDoctorError(f"{start}{shown}: {error}") from None
    if not values:
        raise AttnDoctorError(f"{start}{shown}: is empty")
    return values


def _spec(fields: dict[str, Any]) -> KernelSpec:
    """A spec of these fields, without those that have no meaning beside the others."""
    for name, (owner, served) in _MEANT_FOR.items():
        if fields.get(owner) not in served:
            fields.pop(name, None)
    spec = KernelSpec(**{name: value for name, value in fields.items() if value is not None})
    if spec.kv_heads == spec.heads:
        spec = replace(spec, kv_heads=None)
    if spec.value_dim == spec.head_dim:
        spec = replace(spec, value_dim=None)
    return spec
