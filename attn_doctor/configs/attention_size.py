"""The size of an attention call at the configured resolution: tokens, memory, and dense masks.

Tokens follow from the presets. The figures for memory are those of one layer on an H200 with torch
2.11 in bf16, 24 heads of 128, 4608 tokens. They scale with the tokens, or with their square where
the scores are stored. Other GPUs and releases differ by some percent: the order of magnitude is
what counts.

A dense mask has a row for each query: tokens × tokens elements for each sample. FlexAttention's
kernel reads beyond it at large sizes. A model's code shows that it makes such a mask; the size
follows from the configuration. Where the size is unknown, there is no finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import isqrt

from msgspec import Struct

from attn_doctor.backends.readiness import Answer, Readiness
from attn_doctor.configs.findings import config_finding
from attn_doctor.configs.readers.settings import Reading
from attn_doctor.errors import AttnDoctorError
from attn_doctor.findings import Because, Finding, Fix, Safety
from attn_doctor.kernels.builder import presets
from attn_doctor.kernels.builder.spec_refusals import REACH

_TOKENS, _WIDTH, _HEADS = 4608, 24 * 128, 24
#: MiB of fused kernels, forward and with gradients.
_FUSED = {"inference": 55, "training": 420}
#: MiB where the scores are stored: unfused FlexAttention, and the math kernel.
_SCORES = {
    "flex": {"inference": 6433, "training": 13312},
    "_native_math": {"inference": 4617},
}
_PIXELS = re.compile(r"(\d{2,5})(?:x(\d{2,5}))?$")


def head_shape(preset: str) -> tuple[int, int] | None:
    """Number of heads and their size for a preset, or None."""
    known = presets.families().get(preset)
    return (known["heads"], known["head_dim"]) if known else None


def tokens_of(preset: str, resolution: str, resolution_type: str = "", frames: int = 0) -> int:
    """Tokens of one sample, text included; 0 if unknown.

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
    """Approximate MiB of one attention layer; None if nothing similar was measured."""
    if not tokens or shape is None:
        return None
    heads, head_dim = shape
    if fused:
        return round(_FUSED[phase] * batch * tokens / _TOKENS * heads * head_dim / _WIDTH)
    scores = _SCORES.get(backend, {}).get(phase)
    if scores is None:
        return None
    return round(scores * batch * (tokens / _TOKENS) ** 2 * heads / _HEADS)


#: The catalogue's requirement on the size of a mask.
DEMAND = "flex-mask-reach"
#: Measured on an H200 with torch 2.11: cuDNN's and the efficient kernel, a bool mask of 48,000 by
#: 48,000, which torch makes a float one of; rows before and beyond 2**31 elements were within 0.003
#: of float64, gradients of the queries too.
NATIVE = "torch's own attention is right at this size"


class Sized(Struct, frozen=True, kw_only=True):
    """A size from a configuration, for the model of a preset."""

    preset: str
    resolution: str
    """Pixels, as `848x480`, or megapixels."""
    resolution_type: str = ""
    frames: int = 0
    """0 for images."""
    key: str = ""
    """The setting with the size."""
    line: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of one sample, text included; 0 if unknown."""
        return tokens_of(self.preset, self.resolution, self.resolution_type, self.frames)

    @property
    def text(self) -> str:
        """The size as readers write it."""
        return self.resolution + (f", {self.frames} frames" if self.frames else "")

    def frames_within(self, tokens: int) -> int:
        """The number of frames of this resolution that fit into `tokens`; 0 if none fits."""
        step = presets.families().get(self.preset, {}).get("temporal", 0)
        if not step:
            return 0
        kind = self.resolution_type
        one, two = (tokens_of(self.preset, self.resolution, kind, n) for n in (1, 1 + step))
        return (tokens - one) // (two - one) * step + 1 if 0 < one <= tokens else 0


def elements(tokens: int, batch: int = 1) -> int:
    """Elements of the mask of a batch."""
    return tokens * tokens * batch


def most_tokens(batch: int = 1) -> int:
    """The most tokens of a sample at which the kernel reaches all elements."""
    return isqrt(REACH // batch)


def most_samples(tokens: int) -> int:
    """The most samples of a batch at which it does; 0 if not even one."""
    return REACH // (tokens * tokens)


def beyond(
    reading: Reading,
    key: str,
    model: str,
    backend: str,
    size: Sized,
    *,
    phase: str,
    batch: int = 1,
    fixes: Iterable[Fix | None] = (),
    line: int = 0,
) -> Finding:
    """The finding that `backend` reads beyond the mask of `model`; `fixes` come first."""
    tokens, most = size.tokens, most_tokens(batch)
    samples, each = (f" × {batch} samples", " a sample") if batch > 1 else ("", "")
    count = elements(tokens, batch)
    return config_finding(
        "flex/mask-beyond-32-bits",
        reading,
        key,
        f"{backend} computes wrong results in {phase}, without an error: the mask of {model} is too"
        f" large at {size.text}",
        seen=(
            Because(
                fact=f"config.{size.key}",
                seen=f"{size.text}: {tokens:,} tokens{samples}, a mask of {count:,} elements",
                wanted=f"at most {REACH:,} elements, {most:,} tokens{each}",
                truth=True,
            ),
        ),
        fixes=(*fixes, _smaller(reading, size, most, batch)),
        line=line,
    )


def taking(name: str, answer: Answer) -> tuple[str, str]:
    """The name of a backend that takes padding as lengths, and a remark for a reader."""
    lacks = answer.state is Readiness.NOT_READY and answer.reasons
    return name, "takes this mask as lengths" + (f" ({answer.reasons[0].text})" if lacks else "")


def _smaller(reading: Reading, size: Sized, most: int, batch: int) -> Fix:
    frames = size.frames_within(most)
    where = f"{reading.file}, line {size.line}: " if size.line else ""
    text = f"up to {frames} frames of {size.resolution}" if frames else "a smaller size"
    each = " a sample" if batch > 1 else ""
    limit = f"at most {most:,} tokens{each}, text included"
    return Fix(title=f"{where}{size.key}: take {text}: {limit}", safety=Safety.MANUAL)
