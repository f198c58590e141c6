"""The size at which a script calls a pipeline of Diffusers whose masks have a row for each query.

Known is what is written in the call as plain numbers. A script with pipelines of several models, or
one that takes its sizes from elsewhere, tells nothing.
"""

from __future__ import annotations

from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.configs.attention_size import (
    NATIVE,
    Sized,
    beyond,
    taking,
)
from attn_doctor.configs.backend_support import MASKS, BackendSupport
from attn_doctor.configs.findings import at_line
from attn_doctor.configs.readers.settings import Call, Reading
from attn_doctor.findings import Finding
from attn_doctor.kernels.builder import presets

#: Presets by the beginning of the names of their pipelines.
_PIPELINES = {"HunyuanVideo15": "hunyuanvideo15", "Chroma": "chroma"}


def size_of(reading: Reading) -> Sized | None:
    """The largest size with a known number of tokens, if the model makes such masks."""
    loaded = {_preset(one.value) for one in reading.calls if _loads(one)}
    preset = loaded.pop() if len(loaded) == 1 else ""
    if not preset or not _mask(preset):
        return None
    sizes = (_sized(preset, one) for one in reading.calls if one.what == "size")
    found = max(sizes, key=lambda one: one.tokens, default=None)
    return found if found is not None and found.tokens else None


def too_large(
    reading: Reading, call: Call, value: str, size: Sized, phase: str, support: BackendSupport
) -> Finding:
    """That `value`, chosen by `call`, reads beyond the mask of this size."""
    name = "flash_varlen_hub"
    answer = support.answer(name, AttentionCall(phase=phase, mask=_mask(size.preset)))
    change = f"{value} → " + ": ".join(taking(name, answer))
    takes = all(one.rule not in MASKS for one in answer.reasons)
    return beyond(
        reading,
        call.what,
        next(one.value for one in reading.calls if _loads(one)),
        value,
        size,
        phase=phase,
        fixes=(
            at_line(reading, call.line, change) if takes else None,
            at_line(reading, call.line, f"{value} → native: {NATIVE}"),
        ),
        line=call.line,
    )


def _mask(preset: str) -> str:
    """`bool` or `float` if the model gives attention a mask with a row for each query; or empty."""
    attention = presets.families().get(preset, {}).get("attention", ())
    return next((one["mask"] for one in attention if one.get("mask_rows")), "")


def _loads(call: Call) -> bool:
    return call.what == "pipeline" and "Pipeline" in call.value


def _preset(pipeline: str) -> str:
    return next((_PIPELINES[one] for one in _PIPELINES if pipeline.startswith(one)), "")


def _sized(preset: str, call: Call) -> Sized:
    width, height, frames = (*call.value.split("x"), "0")[:3]
    return Sized(
        preset=preset,
        resolution=f"{width}x{height}",
        frames=int(frames),
        key="size",
        line=call.line,
    )
