"""Whole logs of failures that were caused on purpose, so that the cause of each is known.

A small model trained or served on the CPU for some hundred steps and then met one failure, or pip
built or fetched a package. torch was a CPU build without Triton, for `cuda-without-driver`,
`triton-without-gpu` and the logs of pip a CUDA build of 2.15 on a machine without a GPU. Some
cases had transformers 5.23, diffusers 0.42 and xformers 0.0.35 beside it. The nvcc of one log is a
script that prints an old release. Lines about the processor were removed, paths were renamed, and
some logs carry the prefixes that Compose and Kubernetes put before lines.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_doctor.explain.engine import explain
from attn_doctor.rulebook import library
from attn_doctor.rulebook.rule import Rule

_FOLDER = Path(__file__).parent / "whole"
#: The cause of each log, and words of the line that shows it.
_CAUSES = {
    "block-mask-lengths": ("flex-blockmask-shape", "block_mask was created for"),
    "compile-cache-noexec": ("flex-device-unsupported", "assert issubclass(vec_isa"),
    "compile-cache-read-only": ("jit-cache-not-writable", "Operation not permitted: '/sys/kernel"),
    "compile-plain-noexec": ("jit-cache-bad-filesystem", "failed to map segment"),
    "compile-without-compiler": ("c-compiler-missing", "No working C++ compiler"),
    "cuda-without-driver": ("driver-missing", "Found no NVIDIA driver"),
    "diffusers-aiter-absent": ("framework-backend-wiring", "must be one of the following"),
    "diffusers-environment-name": (
        "framework-backend-wiring",
        "is not a valid AttentionBackendName",
    ),
    "diffusers-flash-3-absent": (
        "package-not-installed",
        "Flash Attention 3 backend '_flash_3' is not usable",
    ),
    "diffusers-flash-hub": ("package-not-installed", "'flash_hub' is not usable"),
    "diffusers-flash-varlen-3": ("package-not-installed", "'_flash_varlen_3' is not usable"),
    "diffusers-flash-varlen-absent": ("package-not-installed", "'flash_varlen' is not usable"),
    "diffusers-kernels-absent": ("package-not-installed", "`kernels` package isn't available"),
    "diffusers-name-unknown": ("framework-backend-wiring", "must be one of the following"),
    "diffusers-sage-absent": (
        "package-not-installed",
        "Sage Attention backend 'sage' is not usable",
    ),
    "diffusers-sage-hub": ("package-not-installed", "'sage_hub' is not usable"),
    "diffusers-sage-varlen-absent": ("package-not-installed", "'sage_varlen' is not usable"),
    "diffusers-xformers-on-cpu": ("torch-cpu-only", "you have 2.13.0+cpu"),
    "flash-3-module-absent": ("package-not-installed", "No module named 'flash_attn_interface'"),
    "flash-attn-absent": ("package-not-installed", "No module named 'flash_attn'"),
    "flash-attn-shadowed": ("python-environment-mixed", "cannot import name 'flash_attn_func'"),
    "flex-backward-cpu": ("flex-device-unsupported", "does not support backward on CPU"),
    "flex-embedding-dimension": ("flex-input-unsupported", "to have the same embedding dimension"),
    "flex-lengths-compiled": ("flex-blockmask-shape", "block_mask was created"),
    "flex-mask-function": ("flex-upstream-bug", "vmap: It looks like"),
    "flex-mask-with-if": ("flex-upstream-bug", "vmap: It looks like"),
    "flex-not-compiled": ("flex-not-compiled", "UserWarning: flex_attention ca"),
    "flex-recompiled-too-often": ("dynamo-recompile-limit", "Dynamo recompile limit exceeded"),
    "flex-three-dimensions": ("flex-input-unsupported", "must be 4D tensors"),
    "flex-uneven-heads": ("flex-input-unsupported", "Hq=4 and Hkv=2"),
    "mask-item": ("flex-upstream-bug", "calling .item() on a Tensor"),
    "pip-flash-3-absent": ("no-matching-wheel", "flash-attn-3==9.9"),
    "pip-isolated": ("build-isolation-no-torch", "No module named 'torch'"),
    "pip-nvcc-too-old": ("nvcc-too-old", "only supported on CUDA 11.7 and above"),
    "pip-packaging-absent": ("build-dep-missing", "No module named 'psutil'"),
    "pip-psutil-not-fetched": ("build-dep-missing", "'--quiet', 'psutil']"),
    "pip-sage-isolated": ("build-isolation-no-torch", "No module named 'torch'"),
    "pip-sage-release-absent": ("no-matching-wheel", "found for sageattention==2.2.0"),
    "pip-sage-without-gpu": ("extension-lacks-gpu-arch", "No target compute capabilities"),
    "pip-wheel-of-other-python": ("no-matching-wheel", "is not a supported wheel"),
    "pip-without-isolation": ("torch-cpu-only", "CUDA_HOME environment variable is not set"),
    "pip-xformers-release-absent": ("no-matching-wheel", "xformers==0.0.12"),
    "sage-absent": ("package-not-installed", "No module named 'sageattention'"),
    "sage-absent-in-server": ("package-not-installed", "No module named 'sageattention'"),
    "sage-without-triton": ("triton-missing", "No module named 'triton'"),
    "sdpa-cudnn-cpu": ("sdpa-no-available-kernel", "No viable backend"),
    "sdpa-efficient-only-cpu": ("sdpa-no-available-kernel", "No viable backend"),
    "sdpa-flash-only": ("sdpa-no-available-kernel", "No available kernel"),
    "sdpa-mask-and-causal": ("attn-mask-unsupported", "Explicit attn_mask"),
    "sdpa-mask-int": ("attn-mask-unsupported", "Expected attn_mask dtype"),
    "sdpa-mask-type": ("attn-mask-unsupported", "Expected attn_mask dtype"),
    "sdpa-mixed-types": ("dtype-not-half", "to have the same dtype"),
    "sdpa-second-derivative": ("sdpa-no-available-kernel", "derivative for aten::"),
    "torch-cpu-cuda": ("torch-cpu-only", "Torch not compiled with CUDA enabled"),
    "torchrun-four-ranks": ("package-not-installed", "No module named 'flash_attn'"),
    "transformers-attentions-wanted": ("framework-backend-wiring", "`output_attentions` attribute"),
    "transformers-flash-3-absent": ("package-not-installed", "FlashAttention3 has been toggled on"),
    "transformers-flash-4-absent": ("package-not-installed", "FlashAttention4 has been toggled on"),
    "transformers-flash-absent": ("package-not-installed", "FlashAttention2 has been toggled on"),
    "transformers-flex-dropout": ("framework-backend-wiring", "does not support `dropout`"),
    "transformers-hub-kernel": ("package-not-installed", "`kernels` is either not installed"),
    "transformers-model-without-flash": (
        "framework-backend-wiring",
        "does not support Flash Attention 2 yet",
    ),
    "transformers-model-without-flex": (
        "framework-backend-wiring",
        "through torch's flex_attention",
    ),
    "transformers-model-without-sdpa": (
        "framework-backend-wiring",
        "does not support an attention implementation through torch.nn.func",
    ),
    "transformers-name-unknown": (
        "framework-backend-wiring",
        '`attn_implementation="flash_attn_2"`',
    ),
    "transformers-paged-without-cache": (
        "framework-backend-wiring",
        "without a paged attention cache",
    ),
    "triton-without-gpu": ("triton-missing", "0 active drivers"),
    "xformers-absent": ("package-not-installed", "No module named 'xformers'"),
    "xformers-on-cpu": ("torch-cpu-only", "you have 2.13.0+cpu"),
}
#: Logs that no rule explains, and why.
_MISSED = {"kernels-absent": "a module `kernels` of the program itself prints the same lines"}


@pytest.fixture(scope="module")
def rules() -> tuple[Rule, ...]:
    return library.load()


@pytest.mark.parametrize("name", _CAUSES)
def test_a_whole_log_has_its_cause(name: str, rules: tuple[Rule, ...]) -> None:
    log = _FOLDER / f"{name}.log"
    cause, words = _CAUSES[name]
    found = explain([str(log)], rules)
    # The limit of effort is for hostile logs, also on a slow machine.
    assert not found.logs[0].skipped
    first = found.matches[0]
    lines = log.read_text(encoding="utf-8").splitlines()
    assert len(lines) > 200
    assert first.cause == cause
    assert words in lines[first.line - 1]


@pytest.mark.parametrize("name", _MISSED)
def test_a_missed_log_gets_no_wrong_cause(name: str, rules: tuple[Rule, ...]) -> None:
    assert explain([str(_FOLDER / f"{name}.log")], rules).matches == ()


def test_each_log_is_listed() -> None:
    assert {log.stem for log in _FOLDER.glob("*.log")} == {*_CAUSES, *_MISSED}
