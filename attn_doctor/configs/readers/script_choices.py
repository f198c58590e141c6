"""Names by which a script chooses attention: functions, classes, packages, variables, arguments.

`script.py` reads a script by them.
"""

from __future__ import annotations

import re

#: Names of a guide that no torch has.
HELPERS = ("build_flex_attention_kernels", "kernel_root")
#: What is called to choose a backend, and what that is called here.
CHOICES = {
    "set_attention_backend": "set_attention_backend",
    "attention_backend": "attention_backend",
    "attention_provider": "attention_provider",
    "set_attn_implementation": "attn_implementation",
}
ARGUMENTS = ("backend", "provider", "attention_backend", "attn_implementation")
#: Keywords and attributes with the name of a backend of Transformers.
IMPLEMENTATION = (
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_internal",
)
#: Switches of torch's own kernels.
SWITCHES = {
    "enable_flash_sdp": "_native_flash",
    "enable_mem_efficient_sdp": "_native_efficient",
    "enable_math_sdp": "_native_math",
    "enable_cudnn_sdp": "_native_cudnn",
}
KERNELS = {
    "FLASH_ATTENTION": "_native_flash",
    "EFFICIENT_ATTENTION": "_native_efficient",
    "MATH": "_native_math",
    "CUDNN_ATTENTION": "_native_cudnn",
}
#: Arguments of `torch.backends.cuda.sdp_kernel` in their order; each is True by default.
ENABLES = {
    "enable_flash": "_native_flash",
    "enable_math": "_native_math",
    "enable_mem_efficient": "_native_efficient",
    "enable_cudnn": "_native_cudnn",
}
#: Processors of Diffusers, by a part of their names, and the backend that they call.
PROCESSORS = (
    ("XFormers", "xformers"),
    ("NPU", "_native_npu"),
    ("XLA", "_native_xla"),
    ("SlicedAttn", "_native_math"),
)
PLAIN = (
    "AttnProcessor", "AttnAddedKVProcessor", "CustomDiffusionAttnProcessor", "LoRAAttnProcessor",
)  # fmt: skip
#: Objects whose attention is not that of the denoising model.
PARTS = re.compile(r"(?:^|\.)(?:vae|\w*decoder|\w*encoder)$")
#: Variables that choose a backend by themselves.
VARIABLES = (
    "DIFFUSERS_ATTN_BACKEND",
    "FINETRAINERS_ATTN_PROVIDER",
    "VLLM_ATTENTION_BACKEND",
    "SGLANG_ATTENTION_BACKEND",
)
#: Classes and functions with the settings of a server.
SERVERS = ("LLM", "EngineArgs", "AsyncEngineArgs", "Engine", "ServerArgs")
#: Packages that replace the attention of a model that is handed to them.
ACCELERATE = (
    "sageattention", "sageattn3", "spas_sage_attn", "flash_attn", "flash_attn_interface",
    "para_attn", "xfuser", "yunchang", "onediff", "onediffx", "nexfort", "sfast", "tgate",
    "nunchaku", "cache_dit", "tensorrt", "torch_tensorrt", "openvino", "hidet",
    "radial_attn", "svg", "block_sparse_attn", "lightx2v", "unsloth",
)  # fmt: skip
#: Packages whose functions leave the attention of a model as it is.
HARMLESS = (
    "torch", "diffusers", "transformers", "accelerate", "peft", "torchao", "bitsandbytes", "quanto",
    "compel", "gradio", "safetensors", "huggingface_hub", "numpy", "PIL", "tqdm", "copy", "types",
    "inspect", "functools", "threading", "concurrent", "asyncio", "logging", "json", "gc", "time",
    "streamlit", "modal", "cv2", "imageio", "optimum", "typing", "dataclasses", "contextlib",
)  # fmt: skip
#: Arguments with which code comes, or a choice.
BRINGS = {
    *IMPLEMENTATION, "use_flash_attention_2", "trust_remote_code", "custom_pipeline", "config",
    "unet", "transformer", "transformer_2",
}  # fmt: skip
#: Modules of a model that compute attention.
ATTENTION = re.compile(r"(?:Attention|Attn|self_attn|\.attn\d?)(?:$|\.)")
#: Functions of the user that put attention of their own into models.
PATCHES = re.compile(
    r"(?i)(?!.*mask)(?=.*(?:attn|attention|flash|sdpa|xformers|sage))"
    r".*(?:replace|patch|swap|inject|hijack|monkey|apply|convert|register|enable|use_)"
)
#: Classes of Unsloth, which replaces the attention of the models that it loads.
UNSLOTH = re.compile(r"Fast(?:\w*Model)$")
#: Classes of Transformers with a language model.
LANGUAGE = re.compile(
    r"^Auto(?:Liger)?Model(?:For\w+)?$|For(?:CausalLM|ConditionalGeneration|SequenceClassification)$"
)
#: Classes that compute attention by code of their own where they are not of Diffusers.
MODELS = re.compile(r"Pipeline$|Transformer\w*Model$|UNet\w*Model$")
