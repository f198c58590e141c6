"""What releases import without requiring it, each seen to fail."""

from __future__ import annotations

#: Modules that releases import without requiring them: distribution → modules that import one,
#: the name, and the requirement that has it. accelerate 0.20 imports pkg_resources, which left
#: setuptools with 82. bitsandbytes up to 0.44 imports triton.ops, which left Triton with 3.2, where
#: Triton is installed; another Triton would not fit torch. Triton before 3.3 imports setuptools;
#: without it torch takes Triton for absent. `triton/needs-setuptools` reports that. diffusers 0.27
#: imports a function that huggingface-hub lost with 0.26. transformers 4.57 uses a class that
#: torchao 0.7 lacks and 0.9 has, and imports more from torchao 0.14 on; 4.51 to 4.56 import another
#: such class earlier, which all later releases of torchao have. torchao 0.17 uses a
#: function that torch 2.6 lacks; `torch/torchao-too-new` reports that.
UNDECLARED = {
    "accelerate": (("accelerate.utils.torch_xla",), "pkg_resources", "setuptools<81"),
    "bitsandbytes": (
        ("bitsandbytes.triton.int8_matmul_mixed_dequantize",),
        "triton.ops",
        "bitsandbytes>=0.45",
    ),
    "diffusers": (
        ("diffusers.utils.dynamic_modules_utils",),
        "huggingface_hub:cached_download",
        "huggingface-hub<0.26",
    ),
    "torchao": (("torchao.utils",), "torch.utils._pytree:register_constant", ""),
    "transformers": (
        ("transformers.quantizers.quantizer_torchao", "transformers.modeling_utils"),
        "torchao.quantization:Float8WeightOnlyConfig,Int4WeightOnlyConfig",
        "torchao<0.14,>=0.9",
    ),
    "triton": (("triton.runtime.build", "triton.common.build"), "setuptools", ""),
}
#: The same for names that a package imports after what is looked at here: Diffusers' pipelines,
#: and PEFT, which they import where it is installed. Each was seen to fail: Diffusers 0.33.1 beside
#: Transformers 5.17 and Diffusers 0.42.1 beside PEFT 0.14.0, PEFT 0.21.2 beside Accelerate 0.30.1
#: and PEFT 0.17.0 beside Transformers 5.17, for which PEFT itself has to be newer. Transformers
#: 4.40 lacks the last name. Diffusers 0.38.0 beside Transformers 4.46.3, Diffusers 0.34.0 beside
#: torchao 0.18.0, and 0.41.0 beside 0.9.0. AutoPipelineForText2Image of Diffusers 0.35.2 beside
#: Transformers 5.12.1; 5.0.0 lacks the name too, and Diffusers 0.37.0 imports it no more.
LATER = {
    "diffusers": (
        (
            ("diffusers.pipelines.pipeline_loading_utils",),
            "transformers.utils:FLAX_WEIGHTS_NAME",
            "transformers<5",
        ),
        (
            ("diffusers.pipelines.hunyuandit.pipeline_hunyuandit",),
            "transformers:MT5Tokenizer",
            "diffusers>=0.37",
        ),
        (
            ("diffusers.hooks.layerwise_casting",),
            "peft.helpers:disable_input_dtype_casting",
            "peft>=0.18",
        ),
        (
            ("diffusers.models.autoencoders.autoencoder_rae",),
            "transformers:Dinov2WithRegistersConfig",
            "transformers>=4.48",
        ),
        (
            ("diffusers.quantizers.torchao.torchao_quantizer",),
            "torchao.dtypes.uintx.uint4_layout",
            "torchao<0.16",
        ),
        (
            ("diffusers.quantizers.torchao.torchao_quantizer",),
            "torchao.quantization:FqnToConfig",
            "torchao>=0.15",
        ),
    ),
    "peft": (
        (
            ("peft.utils.loftq_utils",),
            "accelerate.utils.memory:clear_device_cache",
            "accelerate>=0.34",
        ),
        (("peft.peft_model",), "transformers:HybridCache", "peft>=0.18"),
        (("peft.peft_model",), "transformers:EncoderDecoderCache", "transformers>=4.46"),
    ),
}
#: What a release needs of another package where that is installed, which rules report: package, its
#: releases, the requirement (kernels/too-new-for-transformers, kernels/too-new-for-diffusers).
BOUNDS = (
    ("transformers", ">=5,<5.13", "kernels<0.15"),
    ("diffusers", "==0.36.*", "kernels<0.15"),
)
#: Names that a package lost: those that are not in the release that another package needs newer.
LOST = {
    "transformers:HybridCache": "transformers<5",
    "transformers:MT5Tokenizer": "transformers<5",
}
#: Diffusers from 0.37 on catches the error of torchao's module: its logger is there before.
CAUGHT = r"(?ms)^logger = .*^    _update_torch_safe_globals\(\)"
