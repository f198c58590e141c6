"""Whole logs of failures that were caused on purpose, so that the cause of each is known.

A small model trained on the CPU for some hundred steps and then met one failure, or pip built
flash-attn. torch was a CPU build without Triton. Some cases had transformers 5.23, diffusers 0.42
and xformers 0.0.35 beside it. Lines about the processor and local package indexes were removed,
and paths were renamed.
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
    "diffusers-flash-3-absent": (
        "package-not-installed",
        "Flash Attention 3 backend '_flash_3' is not usable",
    ),
    "diffusers-kernels-absent": ("package-not-installed", "`kernels` package isn't available"),
    "diffusers-name-unknown": ("framework-backend-wiring", "must be one of the following"),
    "diffusers-sage-absent": (
        "package-not-installed",
        "Sage Attention backend 'sage' is not usable",
    ),
    "flash-attn-absent": ("package-not-installed", "No module named 'flash_attn'"),
    "flex-backward-cpu": ("flex-device-unsupported", "does not support backward on CPU"),
    "flex-mask-function": ("flex-upstream-bug", "vmap: It looks like"),
    "flex-uneven-heads": ("flex-input-unsupported", "Hq=4 and Hkv=2"),
    "kernels-absent": ("package-not-installed", "No module named 'kernels'"),
    "mask-item": ("flex-upstream-bug", "calling .item() on a Tensor"),
    "pip-isolated": ("build-isolation-no-torch", "No module named 'torch'"),
    "pip-without-isolation": ("torch-cpu-only", "2.13.0+cpu"),
    "sage-absent": ("package-not-installed", "No module named 'sageattention'"),
    "sage-without-triton": ("triton-missing", "No module named 'triton'"),
    "sdpa-cudnn-cpu": ("sdpa-no-available-kernel", "No viable backend"),
    "sdpa-efficient-only-cpu": ("sdpa-no-available-kernel", "No viable backend"),
    "sdpa-mask-type": ("attn-mask-unsupported", "Expected attn_mask dtype"),
    "torch-cpu-cuda": ("torch-cpu-only", "Torch not compiled with CUDA enabled"),
    "torchrun-four-ranks": ("package-not-installed", "No module named 'flash_attn'"),
    "transformers-flash-3-absent": ("package-not-installed", "FlashAttention3 has been toggled on"),
    "transformers-flash-absent": ("package-not-installed", "FlashAttention2 has been toggled on"),
}


@pytest.fixture(scope="module")
def rules() -> tuple[Rule, ...]:
    return library.load()


@pytest.mark.parametrize("name", _CAUSES)
def test_a_whole_log_has_its_cause(name: str, rules: tuple[Rule, ...]) -> None:
    log = _FOLDER / f"{name}.log"
    cause, words = _CAUSES[name]
    first = explain([str(log)], rules).matches[0]
    lines = log.read_text(encoding="utf-8").splitlines()
    assert len(lines) > 200
    assert first.cause == cause
    assert words in lines[first.line - 1]


def test_each_log_is_listed() -> None:
    assert {log.stem for log in _FOLDER.glob("*.log")} == set(_CAUSES)
