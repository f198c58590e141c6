"""What attention costs at the configured size: tokens by the presets, memory by measurement.

The figures are those of one layer on an H200 with torch 2.11 in bf16, 24 heads of 128, 4608 tokens;
they scale with the tokens, or with their square where scores lie in memory. Other GPUs and
releases differ by some percent; the order of magnitude is what counts.
"""

from __future__ import annotations

import re

from attn_doctor.errors import AttnDoctorError
from attn_doctor.kernels.builder import presets

_TOKENS, _WIDTH, _HEADS = 4608, 24 * 128, 24
#: MiB of fused kernels, forward and with gradients.
_FUSED = {"inference": 55, "training": 420}
#: MiB where the scores are made: unfused FlexAttention, and the math kernel.
_SCORES = {
    "flex": {"inference": 6433, "training": 13312},
    "_native_math": {"inference": 4617},
}
_PIXELS = re.compile(r"(\d{2,5})(?:x(\d{2,5}))?$")


def head_shape(preset: str) -> tuple[int, int] | None:
    """Heads and their size of a preset, or None."""
    known = presets.families().get(preset)
    return (known["heads"], known["head_dim"]) if known else None


def tokens_of(preset: str, resolution: str, resolution_type: str = "", frames: int = 0) -> int:
    """Tokens of one sample, text included; 0 if they cannot be told.

    `resolution` is pixels (`1024`, `832x480`), or megapixels where `resolution_type` is `area`.
    """
    family = presets.families().get(preset)
    if family is None or "spatial" not in family:
        return 0
    if family.get("temporal") and not frames:
        return 0
    size = _pixels(resolution, resolution_type)
    if size is None:
        return 0
    side = family["spatial"]
    width, height = (one // side * side for one in size)
    try:
        found = presets.tokens(family, width, height, frames or 1)
    except AttnDoctorError:
        return 0
    return found.tokens + found.text


def _pixels(resolution: str, resolution_type: str) -> tuple[int, int] | None:
    match = _PIXELS.match(resolution)
    if match is None or resolution_type == "area":
        try:
            mega = float(resolution)
        except ValueError:
            return None
        if not 0.01 <= mega <= 64:
            return None
        edge = round((mega * (1 << 20)) ** 0.5)
        return edge, edge
    width = int(match[1])
    return width, int(match[2] or width)


def memory(
    backend: str, phase: str, shape: tuple[int, int] | None, tokens: int, batch: int, *, fused: bool
) -> int | None:
    """MiB of one attention layer, about; None where nothing like it was measured."""
    if not tokens or shape is None:
        return None
    heads, head_dim = shape
    if fused:
        return round(_FUSED[phase] * batch * tokens / _TOKENS * heads * head_dim / _WIDTH)
    scores = _SCORES.get(backend, {}).get(phase)
    if scores is None:
        return None
    return round(scores * batch * (tokens / _TOKENS) ** 2 * heads / _HEADS)
