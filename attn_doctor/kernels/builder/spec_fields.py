"""The fields of a spec as a person writes them: one reader for each, for flags and files alike.

A reader takes one value, text from a command line or data from a TOML file, and returns what the
spec holds. What it refuses, it says in words that follow the field's name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attn_doctor import suggest
from attn_doctor.record.spec import LAYOUTS, MASKS

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
        if isinstance(value, str) and value.strip().isascii() and len(value) < 20:
            value = value.strip()
            value = int(value) if value.isdigit() else value
        if not isinstance(value, int) or isinstance(value, bool):
            raise RefusedValueError(f"{_shown(value)} is not a whole number")
        if not least <= value <= most:
            raise RefusedValueError(f"{value} is not between {least} and {most}")
        return value

    return read


def _lengths(value: Any) -> tuple[int, ...]:
    one = _whole(1, 1 << 24)
    parts = value.split("+") if isinstance(value, str) else value
    parts = parts if isinstance(parts, list) else [parts]
    if len(parts) > 1 and any(isinstance(part, str) and not part.strip() for part in parts):
        raise RefusedValueError(f"{_shown(value)} has a + with no length beside it")
    found = tuple(length for length in map(one, parts) if length is not None)
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
            raise RefusedValueError(f"no {_shown(value)}{also}{near or f'; one of {names}'}")
        return found

    return read


def _mask(value: Any) -> str:
    if isinstance(value, str) and ":" in value:
        module, _, function = value.partition(":")
        if all(part.isidentifier() for part in [*module.split("."), *function.split(".")]):
            return value
        raise RefusedValueError(f"{_shown(value)} is not module:function")
    return _one_of(MASKS, " (your own is given as module:function)")(value)


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


def strange_option(name: str) -> str:
    """A remark on a kernel option that torch is not known to read; "" for one that it reads.

    torch passes on whatever it is given, so a slip would go unnoticed.
    """
    if name.removeprefix("fwd_").removeprefix("bwd_") in _OPTIONS:
        return ""
    near = " or ".join(suggest.nearest(name, _OPTIONS, 3))
    hint = f" (nearest: {near})" if near else ""
    return f"{name} is no kernel option of torch up to 2.13{hint}; it is passed on as it is"


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
