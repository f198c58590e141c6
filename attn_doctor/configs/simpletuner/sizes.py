"""The sizes and batches at which a configuration of SimpleTuner calls attention."""

from __future__ import annotations

from collections.abc import Iterator

from attn_doctor.configs.dense_masks import Sized
from attn_doctor.configs.readers.settings import Reading


def largest(reading: Reading, preset: str, phase: str) -> Sized:
    """The size with the most tokens; its `tokens` are 0 if they cannot be told."""
    asked = _validation if phase == "validation" else _training
    found = max(asked(reading, preset), key=lambda one: one.tokens, default=None)
    if phase == "validation" or (found is not None and found.tokens):
        return found or Sized(preset=preset, resolution="")
    return Sized(
        preset=preset,
        resolution=reading.get("resolution", "1024"),
        resolution_type=reading.get("resolution_type", "pixel_area"),
        key="resolution",
        line=_line(reading, "resolution"),
    )


def batch_of(reading: Reading, phase: str) -> int:
    """Samples of one call: those of training, and at least one elsewhere."""
    asked = reading.get("train_batch_size", "1") if phase == "training" else "1"
    return max(1, _whole(asked))


def _training(reading: Reading, preset: str) -> Iterator[Sized]:
    """The datasets with sizes of their own."""
    for one in reading.datasets:
        yield Sized(
            preset=preset,
            resolution=one.resolution,
            resolution_type=one.resolution_type,
            frames=one.frames,
            key="data_backend_config",
            line=_line(reading, "data_backend_config"),
        )


def _validation(reading: Reading, preset: str) -> Iterator[Sized]:
    for one in reading.get("validation_resolution", "256").split(","):
        yield Sized(
            preset=preset,
            resolution=one.strip(),
            frames=_whole(reading.get("validation_num_video_frames", "0")),
            key="validation_resolution",
            line=_line(reading, "validation_resolution"),
        )


def _line(reading: Reading, key: str) -> int:
    """The line of a setting; 0 where it is not set."""
    return reading.line(key) if key in reading.settings else 0


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 7 else 0
