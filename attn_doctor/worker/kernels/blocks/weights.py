"""Weights of a model that is built for its blocks, and the attention in and outside those blocks.

They are random. It knows no family: a class of diffusers says which modules are repeated blocks,
and which stay in float32.
"""

from __future__ import annotations

from typing import Any


def cast(torch: Any, model: Any, dtype: Any) -> None:
    """Give the weights the dtypes that `from_pretrained(torch_dtype=…)` gives them.

    It keeps the modules that a class names in float32, and does not touch buffers that are in no
    file, such as tables of rotations; `model.to(dtype)` would cast both. In float64, which no
    checkpoint has, all weights are that, and each layer casts what it is given.
    """
    exact = dtype == torch.float64
    kept = set(() if exact else getattr(model, "_keep_in_fp32_modules", None) or ())
    for name, one in model.state_dict(keep_vars=True).items():
        if one.is_floating_point():
            one.data = one.data.to(dtype if kept.isdisjoint(name.split(".")) else torch.float32)
    for one in model.modules() if exact else ():
        if isinstance(one, torch.nn.Linear):
            one.register_forward_pre_hook(_cast_input)


def _cast_input(layer: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Cast the input of a layer: some code computes in float32 by name, such as of a timestep."""
    return (given[0].to(layer.weight.dtype), *given[1:])


def attentions(model: Any, *, inside: bool) -> list[Any]:
    """The modules of attention in the repeated blocks of a model, or those outside."""
    within = {
        id(one)
        for block in model.modules()
        if type(block).__name__ in model._repeated_blocks
        for one in block.modules()
    }
    return [
        one
        for one in model.modules()
        if hasattr(getattr(one, "processor", None), "_attention_backend")
        and (id(one) in within) is inside
    ]


def plain_outside(model: Any) -> int:
    """Set torch's own attention outside repeated blocks, where nothing compiles; how many."""
    found = attentions(model, inside=False)
    for one in found:
        processor = one.processor
        processor._attention_backend = type(processor._attention_backend)("native")
    return len(found)


def awaken(torch: Any, model: Any) -> None:
    """Change the weights so that the output shows whether attention is right.

    Some start as zeros, which would keep a block from the output. Others make scores so much alike
    that the mean of all values comes out, which is next to nothing.
    """
    generator = torch.Generator(device="cpu").manual_seed(2)
    with torch.no_grad():
        for one in model.parameters():
            if not one.any():
                one.copy_(0.02 * torch.randn(one.shape, generator=generator))
        for attention in attentions(model, inside=True):
            for name, one in attention.named_parameters():
                if name.endswith("weight"):
                    one.mul_(2)
