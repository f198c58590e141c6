"""Masks that have a row for each query, at sizes where FlexAttention's kernel reads beyond them.

Such a mask has tokens × tokens elements for each sample. That a model makes one is known from its
code; its size follows from the configuration, and where that does not tell, nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt

from msgspec import Struct

from attn_doctor.backends.readiness import Answer, Readiness
from attn_doctor.configs.expected_cost import tokens_of
from attn_doctor.configs.findings import tell
from attn_doctor.configs.readers.settings import Reading
from attn_doctor.findings import Because, Finding, Fix, Safety
from attn_doctor.kernels.builder import presets
from attn_doctor.kernels.builder.refusals import REACH

#: The catalogue's demand on the size of a mask.
DEMAND = "flex-mask-reach"
#: Measured on an H200 with torch 2.11: cuDNN's and the efficient kernel, a bool mask of 48,000 by
#: 48,000, which torch makes a float one of; rows before and beyond 2**31 elements were within 0.003
#: of float64, gradients of the queries too.
NATIVE = "torch's own attention is right at this size"


class Sized(Struct, frozen=True, kw_only=True):
    """A size that a configuration names, for the model of a preset."""

    preset: str
    resolution: str
    """Pixels, as `848x480`, or megapixels."""
    resolution_type: str = ""
    frames: int = 0
    """0 for images."""
    key: str = ""
    """The setting that names it."""
    line: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of one sample, text included; 0 if they cannot be told."""
        return tokens_of(self.preset, self.resolution, self.resolution_type, self.frames)

    @property
    def text(self) -> str:
        """As a reader writes it."""
        return self.resolution + (f", {self.frames} frames" if self.frames else "")

    def frames_within(self, tokens: int) -> int:
        """How many frames of this resolution have at most so many tokens; 0 if not even one."""
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
    """Tokens of each sample up to which the kernel reaches all elements."""
    return isqrt(REACH // batch)


def most_samples(tokens: int) -> int:
    """Samples of one batch up to which it does; 0 if not even one."""
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
    """That `backend` would read beyond the mask of `model`. `fixes` come before a smaller size."""
    tokens, most = size.tokens, most_tokens(batch)
    samples, each = (f" × {batch} samples", " a sample") if batch > 1 else ("", "")
    count = elements(tokens, batch)
    return tell(
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
    """The name of a backend that takes padding as lengths, and what is to be said of it."""
    lacks = answer.state is Readiness.NOT_READY and answer.reasons
    return name, "takes this mask as lengths" + (f" ({answer.reasons[0].text})" if lacks else "")


def _smaller(reading: Reading, size: Sized, most: int, batch: int) -> Fix:
    frames = size.frames_within(most)
    where = f"{reading.file}, line {size.line}: " if size.line else ""
    told = f"up to {frames} frames of {size.resolution}" if frames else "a smaller size"
    each = " a sample" if batch > 1 else ""
    limit = f"at most {most:,} tokens{each}, text included"
    return Fix(title=f"{where}{size.key}: take {told}: {limit}", safety=Safety.MANUAL)
