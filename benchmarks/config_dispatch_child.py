"""Lets Transformers or ComfyUI choose its attention, with stubs for kernels that need a GPU.

Started by `config_dispatch.py`; prints `RAN NAME`, the kernel or ComfyUI's function that was taken.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any


def module(name: str, **members: object) -> types.ModuleType:
    """A module of our own, in place of a package."""
    made = types.ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None)
    made.__dict__.update(members)
    sys.modules[name] = made
    return made


def stub_gpu() -> None:
    """The properties of a GPU, without memory and without kernels."""
    torch: Any = importlib.import_module("torch")
    cuda = torch.cuda
    torch.version.cuda = "13.0"
    known = types.SimpleNamespace(
        name="stub", major=8, minor=9, total_memory=24 << 30, gcnArchName=""
    )
    cuda.is_available = lambda: True
    cuda.current_device = lambda: "cuda:0"
    cuda.device_count = lambda: 1
    cuda.get_device_properties = lambda *_: known
    cuda.get_device_name = lambda *_: "stub"
    cuda.get_device_capability = lambda *_: (8, 9)
    cuda.mem_get_info = lambda *_: (20 << 30, 24 << 30)
    cuda.memory_stats = lambda *_: {
        "active_bytes.all.current": 0,
        "reserved_bytes.all.current": 0,
    }
    cuda.is_bf16_supported = lambda *_, **__: True
    cuda.get_allocator_backend = lambda: "native"


def comfyui(folder: str, options: Sequence[str], packages: Sequence[str]) -> str:
    """The function that ComfyUI's ladder ends at."""

    def kernel(q: Any, *_: Any, **__: Any) -> Any:
        return q

    sys.modules["sageattn3"] = None  # type: ignore[assignment]
    for name in ("sageattention", "flash_attn", "xformers"):
        sys.modules[name] = None  # type: ignore[assignment]
    if "sageattention" in packages:
        module("sageattention", sageattn=kernel)
    if "flash_attn" in packages:
        module("flash_attn", flash_attn_func=kernel)
    if "xformers" in packages:
        ops = module("xformers.ops", memory_efficient_attention=kernel)
        version = types.SimpleNamespace(__version__="0.0.35")
        module("xformers", ops=ops, version=version, __version__="0.0.35", _has_cpp_library=True)
    stub_gpu()
    sys.path.insert(0, folder)
    sys.argv = ["main.py", *options]
    importlib.import_module("comfy.options").enable_args_parsing()
    attention = importlib.import_module("comfy.ldm.modules.attention")
    return str(attention.optimized_attention.__name__)


def transformers(implementation: str) -> str:
    """The kernel that a small model calls, forward and backward."""
    torch: Any = importlib.import_module("torch")
    functional: Any = torch.nn.functional
    called: list[str] = []
    own = functional.scaled_dot_product_attention

    def recorded(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            called.append(name)
            return kernel(*arguments, **named)

        return run

    def flash(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> Any:
        parts = [one.transpose(1, 2) for one in (q, k, v)]
        return own(*parts, enable_gqa=True, is_causal=True).transpose(1, 2)

    members = ("flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache")
    kernels: dict[str, Any] = {one: recorded("flash", flash) for one in members}
    module("flash_attn", **kernels)
    module("flash_attn.bert_padding", pad_input=None, unpad_input=None, index_first_axis=None)
    functional.scaled_dot_product_attention = recorded("native", own)
    load = importlib.import_module
    utils: Any = load("transformers.modeling_flash_attention_utils")
    llama: Any = load("transformers.models.llama.modeling_llama")
    library: Any = load("transformers")

    for name in ("is_flash_attn_2_available", "is_torch_cuda_available"):
        setattr(utils, name, lambda *_, **__: True)
    # The one answer of a machine with flash-attn and a GPU; the rest is Transformers' own.
    matrix = utils.FLASH_ATTENTION_COMPATIBILITY_MATRIX[2]
    matrix["general_availability_check"] = lambda *_, **__: True
    matrix["supported_devices"] = ((lambda: True, "cuda"),)
    llama.eager_attention_forward = recorded("eager", llama.eager_attention_forward)
    config = library.LlamaConfig(
        hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=32, dtype="bfloat16",
    )  # fmt: skip
    given = {"attn_implementation": implementation} if implementation else {}
    model = library.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, **given)
    tokens = torch.arange(8)[None]
    model(input_ids=tokens, labels=tokens).loss.backward()
    names = sorted({*called})
    return names[0] if len(names) == 1 else ", ".join(names) or "no kernel was called"


if __name__ == "__main__":
    what, folder, options, packages = json.loads(sys.argv[1])
    found = comfyui(folder, options, packages) if what == "comfyui" else transformers(options[0])
    sys.stdout.write(f"RAN {found}\n")
