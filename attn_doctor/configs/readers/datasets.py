"""SimpleTuner's `data_backend_config`: at which sizes the datasets are trained.

A dataset's own `resolution` counts before the configuration's. Whatever cannot be read is left out:
the sizes only serve an estimate, and SimpleTuner says itself what is wrong with the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attn_doctor.configs.readers.files import text_of
from attn_doctor.configs.readers.settings import ConfigError, Dataset
from attn_doctor.files import is_file
from attn_doctor.json_files import JsonError, decode


def datasets(config: Path, named: str) -> tuple[Dataset, ...]:
    """The datasets with sizes of their own in the file that a configuration names."""
    if not named:
        return ()
    # SimpleTuner is started in the folder that holds `config/`.
    for folder in (Path(), config.parent, config.parent.parent, config.parent.parent.parent):
        path = folder / named
        if is_file(path):
            return tuple(_sizes(path))
    return ()


def _sizes(path: Path) -> Iterator[Dataset]:
    try:
        data = decode(text_of(path))
    except (ConfigError, JsonError):
        return
    for dataset in data if isinstance(data, list) else ():
        if not isinstance(dataset, dict) or dataset.get("disabled") or "resolution" not in dataset:
            continue
        if str(dataset.get("dataset_type", "image")) not in ("image", "video"):
            continue
        yield Dataset(
            resolution=str(dataset["resolution"]),
            resolution_type=str(dataset.get("resolution_type", "pixel_area")),
            frames=_frames(dataset),
        )


def _frames(one: dict[str, Any]) -> int:
    video = one.get("video")
    frames = video.get("num_frames", 0) if isinstance(video, dict) else 0
    return frames if isinstance(frames, int) and 0 <= frames < 1 << 20 else 0
