"""Runs small models of Diffusers with random weights on the CPU: which attention each one calls.

    PYTHON benchmarks/diffusers_dispatch.py

PYTHON has torch for the CPU and diffusers. One line for each model: the backends of the dispatcher
that were called, the calls of torch's own function, and the layers that take a backend. Exit code 1
if a model called anything but torch's own attention.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import diffusers
import torch
from diffusers.models import attention_dispatch

#: Class, what makes it small, and the shapes of its inputs; `1` is one time step.
_ROTARY = {"axes_dims_rope": [4, 4, 8], "attention_head_dim": 16, "num_attention_heads": 2}
_TWO = {"num_layers": 1, "num_single_layers": 1}
_MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "FluxTransformer2DModel": (
        {"patch_size": 1, "in_channels": 4, "joint_attention_dim": 32, **_ROTARY, **_TWO,
         "pooled_projection_dim": 32},
        {"hidden_states": (1, 16, 4), "encoder_hidden_states": (1, 8, 32), "timestep": 1,
         "pooled_projections": (1, 32), "img_ids": (16, 3), "txt_ids": (8, 3)},
    ),
    "Flux2Transformer2DModel": (
        {"patch_size": 1, "in_channels": 4, "joint_attention_dim": 32, **_ROTARY, **_TWO,
         "axes_dims_rope": [4, 4, 4, 4]},
        {"hidden_states": (1, 16, 4), "encoder_hidden_states": (1, 8, 32), "timestep": 1,
         "img_ids": (1, 16, 4), "txt_ids": (1, 8, 4), "guidance": 1},
    ),
    "ChromaTransformer2DModel": (
        {"patch_size": 1, "in_channels": 4, "joint_attention_dim": 32, **_ROTARY, **_TWO,
         "approximator_num_channels": 8, "approximator_hidden_dim": 16, "approximator_layers": 1},
        {"hidden_states": (1, 16, 4), "encoder_hidden_states": (1, 8, 32), "timestep": 1,
         "img_ids": (16, 3), "txt_ids": (8, 3)},
    ),
    "WanTransformer3DModel": (
        {"num_attention_heads": 2, "attention_head_dim": 12, "text_dim": 16, "ffn_dim": 32,
         "num_layers": 1, "rope_max_seq_len": 32},
        {"hidden_states": (1, 16, 2, 8, 8), "encoder_hidden_states": (1, 8, 16), "timestep": 1},
    ),
    "LTXVideoTransformer3DModel": (
        {"in_channels": 8, "out_channels": 8, "num_attention_heads": 2, "attention_head_dim": 16,
         "cross_attention_dim": 32, "num_layers": 1, "caption_channels": 32},
        {"hidden_states": (1, 32, 8), "encoder_hidden_states": (1, 8, 32), "timestep": 1,
         "encoder_attention_mask": torch.ones(1, 8).bool(), "num_frames": 2, "height": 4,
         "width": 4},
    ),
    "HunyuanVideoTransformer3DModel": (
        {"in_channels": 4, "out_channels": 4, "num_attention_heads": 2, "attention_head_dim": 10,
         "num_refiner_layers": 1, "patch_size": 1, "text_embed_dim": 16, **_TWO,
         "pooled_projection_dim": 8, "rope_axes_dim": (2, 4, 4)},
        {"hidden_states": (1, 4, 1, 8, 8), "encoder_hidden_states": (1, 8, 16), "timestep": 1,
         "pooled_projections": (1, 8), "guidance": 1, "encoder_attention_mask": torch.ones(1, 8)},
    ),
    "CogVideoXTransformer3DModel": (
        {"num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 4, "out_channels": 4,
         "time_embed_dim": 2, "text_embed_dim": 8, "num_layers": 1, "sample_width": 8,
         "sample_height": 8, "sample_frames": 8, "max_text_seq_length": 8},
        {"hidden_states": (1, 1, 4, 8, 8), "encoder_hidden_states": (1, 8, 8), "timestep": 1},
    ),
    "QwenImageTransformer2DModel": (
        {"in_channels": 16, "out_channels": 4, "num_layers": 1, "joint_attention_dim": 16,
         **_ROTARY},
        {"hidden_states": (1, 16, 16), "encoder_hidden_states": (1, 7, 16), "timestep": 1,
         "encoder_hidden_states_mask": torch.ones(1, 7).long(), "img_shapes": [(1, 4, 4)]},
    ),
    "AuraFlowTransformer2DModel": (
        {"sample_size": 32, "num_mmdit_layers": 1, "num_single_dit_layers": 1,
         "attention_head_dim": 8, "num_attention_heads": 4, "caption_projection_dim": 32,
         "joint_attention_dim": 32, "pos_embed_max_size": 256},
        {"hidden_states": (1, 4, 32, 32), "encoder_hidden_states": (1, 256, 32), "timestep": 1},
    ),
    "HiDreamImageTransformer2DModel": (
        {"patch_size": 2, "in_channels": 4, "out_channels": 4, "attention_head_dim": 8, **_TWO,
         "num_attention_heads": 4, "caption_channels": [32, 16], "text_emb_dim": 64,
         "axes_dims_rope": (4, 2, 2), "max_resolution": (32, 32), "llama_layers": (0, 1),
         "force_inference_output": True},
        {"hidden_states": (1, 4, 32, 32), "encoder_hidden_states_t5": (1, 8, 32), "timesteps": 1,
         "encoder_hidden_states_llama3": (2, 1, 8, 16), "pooled_embeds": (1, 64)},
    ),
    "PixArtTransformer2DModel": (
        {"sample_size": 8, "num_layers": 1, "attention_head_dim": 8, "num_attention_heads": 3,
         "caption_channels": 32, "cross_attention_dim": 24, "use_additional_conditions": False},
        {"hidden_states": (1, 4, 8, 8), "encoder_hidden_states": (1, 8, 32), "timestep": 1,
         "added_cond_kwargs": {"resolution": None, "aspect_ratio": None}},
    ),
    "UNet2DConditionModel": (
        {"block_out_channels": (4, 8), "layers_per_block": 1, "norm_num_groups": 2,
         "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"), "attention_head_dim": 2,
         "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"), "cross_attention_dim": 8},
        {"sample": (1, 4, 16, 16), "encoder_hidden_states": (1, 4, 8), "timestep": 1},
    ),
}  # fmt: skip


def _input(value: Any) -> Any:
    if isinstance(value, tuple):
        return torch.randn(value)
    return torch.ones(1) if isinstance(value, int) and value == 1 else value


def run(name: str, own: Callable[..., Any]) -> tuple[set[str], int, int]:
    """Backends that were called, calls of torch's function, and layers that take a backend."""
    options, inputs = _MODELS[name]
    model = getattr(diffusers, name)(**options).eval()
    called: list[str] = []
    counted: list[int] = []

    def counting(*args: Any, **kwargs: Any) -> Any:
        counted.append(1)
        return own(*args, **kwargs)

    def noting(backend: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*args: Any, **kwargs: Any) -> Any:
            called.append(str(backend.value))
            return function(*args, **kwargs)

        return inner

    known = attention_dispatch._AttentionBackendRegistry._backends
    before = dict(known)
    known.update({backend: noting(backend, function) for backend, function in before.items()})
    torch.nn.functional.scaled_dot_product_attention = counting
    with torch.no_grad():
        model(**{key: _input(value) for key, value in inputs.items()})
    known.update(before)
    takes = sum(
        hasattr(getattr(one, "processor", None), "_attention_backend") for one in model.modules()
    )
    return {*called}, len(counted), takes


def main() -> int:
    """Run all models, and print a line for each."""
    own = torch.nn.functional.scaled_dot_product_attention
    wrong = 0
    for name in _MODELS:
        called, counted, takes = run(name, own)
        wrong += not (called <= {"native"} and counted)
        print(name, ", ".join(sorted(called)) or "-", counted, takes, sep="\t")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
