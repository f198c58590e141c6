"""The objects of a script: what is loaded into which variable, its dtype, what is compiled."""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.configs.readers.settings import Call, Reading

#: Parts of a pipeline that are not the denoising model, as a dotted name ends.
_OTHERS = (
    "vae", "decode", "encode", "text_encoder", "image_encoder", "tokenizer", "scheduler",
    "vocoder", "upsampler", "controlnet", "audio_vae", "safety_checker", "decoder", "encoder",
)  # fmt: skip


class Target(Struct, frozen=True, kw_only=True):
    """The object that a backend is chosen for."""

    classes: tuple[str, ...] = ()
    """Classes that it may be, pipelines or models; empty if the script does not say."""
    dtype: str = ""
    """Empty if the script does not say."""
    unknown_dtype: bool = False
    """The script sets a dtype that only running it would give."""
    compiled: bool | None = None
    """`torch.compile` takes it; None if something is compiled that may be it."""


def target_of(reading: Reading, on: str) -> Target:
    """What is known of the object `on`; of the script's only pipeline where `on` is unknown."""
    loaded = [one for one in reading.calls if one.what == "loaded" and _denoises(one)]
    mine = _named(loaded, on) or ([] if on and _is_other(on) else loaded)
    pipelines = [one for one in mine if "Pipeline" in one.value] or mine
    models = [one for one in loaded if one not in pipelines and "Pipeline" not in one.value]
    # A model that was loaded by itself and given to the pipeline keeps its own dtype.
    dtypes = {one.detail for one in (models or pipelines)}
    dtypes |= {one.value for one in reading.calls if one.what == "moved" and _belongs(one, mine)}
    dtypes.discard("")
    certain = len(dtypes) == 1 and "unknown" not in dtypes
    autocast = any(one.what == "autocast" for one in reading.calls)
    return Target(
        classes=tuple(dict.fromkeys(one.value for one in (pipelines or _loose(reading)))),
        dtype=next(iter(dtypes)) if certain and not autocast else "",
        unknown_dtype=autocast or (bool(dtypes) and not certain),
        compiled=_compiled(reading, on),
    )


def _named(loaded: list[Call], on: str) -> list[Call]:
    """The loads into the variable that `on` begins with."""
    return [one for one in loaded if one.on and (on == one.on or on.startswith(f"{one.on}."))]


def _belongs(call: Call, loaded: list[Call]) -> bool:
    return any(call.on in (one.on, f"{one.on}.transformer", f"{one.on}.unet") for one in loaded)


def _denoises(call: Call) -> bool:
    """The class that is loaded is a pipeline or a denoising model."""
    return any(one in call.value for one in ("Pipeline", "Transformer", "UNet", "DiT"))


def _loose(reading: Reading) -> list[Call]:
    """What is loaded without being assigned to a name, such as `return FluxPipeline.from_…`."""
    return [one for one in reading.calls if one.what == "pipeline" and "Pipeline" in one.value]


def _is_other(on: str) -> bool:
    return any(part.startswith(_OTHERS) for part in on.split(".")[1:] or [on])


def _compiled(reading: Reading, on: str) -> bool | None:
    compiles = [one.on for one in reading.calls if one.what == "compile"]
    if any(one.what == "flex compiled" for one in reading.calls):
        return True
    models = [one for one in compiles if not _is_other(one)]
    if not models:
        return False
    last = on.rpartition(".")[2]
    known = {"transformer", "unet", "dit", "model", "transformer_2", last}
    return True if any(one.rpartition(".")[2] in known for one in models) else None
