"""The lines of a script that choose a backend, those that another replaces left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from attn_doctor.configs.readers.script_tree import otherwise
from attn_doctor.configs.readers.settings import Branch, Call, Reading

#: What chooses a backend of Diffusers' dispatcher.
DISPATCHER = ("set_attention_backend", "attention_backend", "DIFFUSERS_ATTN_BACKEND")
#: Everything that was looked for.
_CHOICES = (
    *DISPATCHER, "attention_provider", "attn_implementation", "xformers", "set_attn_processor",
    "sdpa_kernel", "sdpa switch", "sdpa replaced", "vllm", "variable", "unparsed",
)  # fmt: skip
#: What has to hold where the pipeline is not known, so that slices have an effect.
_UNET = Branch("other", "the model is a U-Net", 0)
#: Words of functions that replace torch's own, and the backend behind them.
_REPLACEMENTS = {
    "sage": "sage",
    "flash_attn": "flash",
    "flash3": "_flash_3",
    "xformers": "xformers",
}


def choices(reading: Reading, sliced: bool | None = True) -> Iterator[Call]:
    """Everything that chooses a backend: the variable first, then calls in their order.

    `sliced`: the models can compute attention in slices; None if that is not known.
    """
    found = [*_written(reading)]
    for at, call in enumerate(found):
        left = _left(call, found[at + 1 :], sliced) if _sets(call) else call
        if left is not None:
            yield left


def _sets(call: Call) -> bool:
    """The call replaces all attention processors of a model."""
    return call.what in ("xformers", "set_attn_processor")


def _left(call: Call, later: Sequence[Call], sliced: bool | None) -> Call | None:
    """A call with the conditions that later ones on its object leave it; None for none."""
    when = call.when
    for one in later:
        same = one.on.partition(".")[0] == call.on.partition(".")[0]
        further = tuple(each for each in one.when if each not in when)
        idle = one.detail == "sliced" and sliced is False
        # Which of two functions is called last, and whether, is not known.
        if idle or not (_sets(one) and same) or any(each.kind == "called" for each in further):
            continue
        if one.detail == "sliced" and sliced is None:
            further = (*further, _UNET)
        if not further:
            return None
        alike = (one.value, one.detail) == (call.value, call.detail)
        if not alike and not any(each.opposite() in when for each in further):
            when = (*when, *otherwise(further))
    return replace(call, when=when)


def _written(reading: Reading) -> Iterator[Call]:
    """Every line that chooses, also those that a later one replaces."""
    variable = reading.variables.get("DIFFUSERS_ATTN_BACKEND")
    if variable is not None and variable.text:
        yield Call("DIFFUSERS_ATTN_BACKEND", variable.text, "", variable.line)
    set_here = [one for one in reading.calls if one.what == "variable"]
    for call in set_here:
        if call.on == "DIFFUSERS_ATTN_BACKEND" and not late(reading, call):
            yield replace(call, what="DIFFUSERS_ATTN_BACKEND", on="")
        elif call.on == "FINETRAINERS_ATTN_PROVIDER":
            yield replace(call, what="attention_provider", on="")
        elif call.on in ("VLLM_ATTENTION_BACKEND", "SGLANG_ATTENTION_BACKEND"):
            yield replace(call, what="vllm", on=call.on)
    for call in reading.calls:
        ignored = call.what == "variable" or (call.what == "sdpa switch" and call.on == "True")
        if call.what in _CHOICES and not ignored:
            yield call


def late(reading: Reading, call: Call) -> bool:
    """The script sets the variable after it imported Diffusers, which reads it at import."""
    first = next((one.line for one in reading.calls if one.what == "import"), 0)
    return bool(first and first < call.line)


def outside(call: Call) -> dict[str, object]:
    """What lines outside Diffusers' dispatcher and Transformers choose."""
    what, value = call.what, call.value
    if what.startswith("sdpa"):
        return _torch(call)
    if what == "xformers":
        return {"backend": "xformers", "masks": (), "key": "xformers' attention processor"}
    if what == "vllm" and value:
        return {"key": call.on or "attention_backend", "shown": f"{value} of vLLM or SGLang"}
    if value and call.detail != "sliced":
        return {"backend": value, "masks": ()}
    if what == "set_attn_processor" and call.detail == "sliced":
        shown = "sliced attention of Diffusers, not fused"
        return {"backend": "_native_math", "shown": shown, "key": "attention slicing"}
    if what == "set_attn_processor":
        return {"undecided": "this attention processor is not a known one"}
    return {"undecided": "the name is not written here, so it cannot be read"}


def _torch(call: Call) -> dict[str, object]:
    """What lines that change torch's own attention choose."""
    value = call.value
    if call.what == "sdpa switch":
        shown = f"native (torch's own) without {value}"
        return {"backend": "native", "value": f"no {value}", "shown": shown, "key": "switched off"}
    if call.what == "sdpa replaced":
        backend = next((one for word, one in _REPLACEMENTS.items() if word in value), "")
        key = "torch's scaled_dot_product_attention is replaced"
        if not backend:
            return {"key": key, "undecided": f"{value or 'what replaces it'} is not known"}
        return {"key": key, "backend": backend, "masks": (), "instead": "torch's own function"}
    if not value:
        return {"undecided": "the kernels are not written here"}
    if " " in value:
        return {"backend": "native", "shown": f"native, held to {value.replace(' ', ', ')}"}
    return {"backend": value, "masks": ()}
