"""The pipelines and models that a script loads, and the package that each is of."""

from __future__ import annotations

import re

from attn_doctor.configs.readers.settings import Reading

_MODEL = re.compile(r"UNet\w*ConditionModel|\w*Transformer[23]DModel")


def pipelines(reading: Reading) -> list[str]:
    """The pipelines that the script loads; the denoising models if it loads no pipeline."""
    others = foreign(reading)
    own = [one for one in loaded(reading) if one not in others]
    return [one for one in own if "Pipeline" in one] or [
        one for one in own if "Transformer" in one or "UNet" in one
    ]


def loaded(reading: Reading) -> list[str]:
    """All classes that the script loads something of."""
    return [one.value for one in reading.calls if one.what == "pipeline" and one.value]


def is_model(name: str) -> bool:
    """A denoising model of Diffusers by its name."""
    return _MODEL.fullmatch(name) is not None


def foreign(reading: Reading) -> dict[str, str]:
    """Pipelines and models that are not of Diffusers, with the package of each."""
    return {one.value: one.on for one in reading.calls if one.what == "foreign"}


def uses_diffusers(reading: Reading) -> bool:
    """The script imports Diffusers, loads a pipeline of it, or chooses a backend of it."""
    return (
        reading.form not in ("python", "notebook")
        or any(one.what == "import" for one in reading.calls)
        or any(one.what in ("set_attention_backend", "attention_backend") for one in reading.calls)
        or any("Pipeline" in one for one in pipelines(reading))
    )
