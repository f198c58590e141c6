"""What the advisories say of calls: each row was decided from its thread before it was run.

Changed since: the thread of the masks begins with torch 2.9, and the wheel of 2.8 has the fault.
#193893 is about decoding, one query at a time, which a call does not say. Blocks without a function
lose keys from torch 2.5 on. SageAttention 2 leaves CUDA graphs on each GPU.
"""

from __future__ import annotations

from typing import Any

import pytest

from attn_doctor.backends.advisories import concerns
from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.findings import Verdict
from attn_doctor.rulebook import library
from attn_doctor.rulebook.evaluate import evaluate_rules
from attn_doctor.rulebook.rule_files import example_facts

RULES = tuple(rule for rule in library.load() if rule.advisory is not None)


def nested(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts by group, as a rule's example has them."""
    found: dict[str, Any] = {}
    for name, value in facts.items():
        group, _, field = name.partition(".")
        found.setdefault(group, {})[field] = value
    return found


def torch(version: str, build: str = "cuda", sm: int = 0) -> dict[str, Any]:
    found = {"torch.installed": True, "torch.version": version, "torch.build": build}
    if build == "cuda":
        found["torch.cuda"] = "12.8"
    if build == "cpu":
        found |= {"system.os": "linux", "system.arch": "x86_64"}
    return {**found, "driver.best_sm": sm} if sm else found


def package(name: str, version: str) -> dict[str, Any]:
    return {f"{name}.installed": True, f"{name}.version": version}


def sage(version: str, sm: int) -> dict[str, Any]:
    return {**package("sageattention", version), "driver.best_sm": sm}


def flash(version: str, sm: int) -> dict[str, Any]:
    return {**package("flash_attn", version), "driver.best_sm": sm}


H28, H210, H211 = torch("2.8.0", sm=90), torch("2.10.0", sm=90), torch("2.11.0", sm=90)
H213, H214, H215 = torch("2.13.0", sm=90), torch("2.14.0", sm=90), torch("2.15.0", sm=90)
A211, ADA, B28, B213 = (
    torch("2.11.0", sm=80), torch("2.13.0", sm=89), torch("2.8.0", sm=100), torch("2.13.0", sm=100)
)  # fmt: skip
MAC210, MAC211, MAC213 = (torch(one, "mps") for one in ("2.10.0", "2.11.0", "2.13.0"))
CPU28, CPU210, CPU213 = (torch(one, "cpu") for one in ("2.8.0", "2.10.0", "2.13.0"))
AMD211, AMD212 = ({**torch(one, "rocm"), "torch.hip": "7.14.60850"} for one in ("2.11.0", "2.12.0"))
CUDNN, EFFICIENT, FLASH, MATH = (
    "_native_cudnn", "_native_efficient", "_native_flash", "_native_math"
)  # fmt: skip


def call(seq_len: int = 1024, training: bool = False, **more: Any) -> AttentionCall:
    return AttentionCall(seq_len=seq_len, phase="training" if training else "inference", **more)


def train(seq_len: int, **more: Any) -> AttentionCall:
    return call(seq_len, True, **more)


#: Machine, backend, call, and `wrong`, `except` (some of these calls are) or `clear`.
ROWS: tuple[tuple[dict[str, Any], str, AttentionCall, str], ...] = (
    # pytorch #196678: NaN gradients of cuDNN at 64 over a multiple of 128; layouts of gradients
    (H211, "native", train(704), "wrong"),
    (H211, CUDNN, train(832), "wrong"),
    (H211, CUDNN, train(4160), "wrong"),
    (H211, CUDNN, train(640), "except"),
    (H211, CUDNN, train(768), "except"),
    (H211, EFFICIENT, train(704), "clear"),
    (H211, FLASH, train(704), "clear"),
    (H211, MATH, train(704), "clear"),
    (H211, "native", call(704), "except"),  # memory that is not aligned
    (H211, CUDNN, train(704, dtype="fp32"), "clear"),
    (H211, "native", train(704, dtype="fp16"), "wrong"),
    (H211, "native", train(192, mask="bool"), "wrong"),
    (H214, "native", train(704), "wrong"),
    (H215, "native", train(704), "clear"),
    (H210, "native", train(704), "clear"),
    (A211, "native", train(704), "clear"),
    (ADA, "native", train(704), "clear"),
    (B213, "native", train(704), "clear"),
    # pytorch #193893: B200 with fewer than eight heads of keys
    (B213, "native", call(gqa=True, kv_heads=4), "except"),
    (B213, "native", call(gqa=True, kv_heads=8), "except"),
    (B213, CUDNN, call(gqa=True, kv_heads=1), "except"),
    (B213, "native", call(gqa=True), "except"),
    (B213, "native", call(gqa=True, kv_heads=4, dtype="fp32"), "clear"),
    (B28, "native", call(gqa=True, kv_heads=4), "clear"),
    (torch("2.10.0", sm=100), "native", call(gqa=True, kv_heads=4), "clear"),
    # pytorch #177868 and #191612: bool and float32 masks of cuDNN
    (H211, "native", call(mask="bool"), "except"),
    (H211, CUDNN, call(mask="varlen"), "except"),
    (A211, CUDNN, train(1024, mask="bool"), "except"),
    (H211, EFFICIENT, call(mask="bool"), "clear"),
    (H213, CUDNN, call(mask="bool"), "clear"),
    (H211, "native", call(mask="float"), "except"),
    (H213, CUDNN, call(mask="float"), "except"),
    (H215, CUDNN, call(mask="float"), "clear"),
    (H211, CUDNN, call(mask="float", dtype="fp32"), "clear"),
    (B213, FLASH, call(gqa=True, kv_heads=4), "clear"),
    (H211, "native", call(gqa=True, kv_heads=4), "except"),  # memory that is not aligned
    # pytorch #187227: masks with rows beyond 65536 tokens
    (H211, EFFICIENT, call(70000, mask="bool"), "except"),
    (H211, EFFICIENT, call(65536, mask="bool"), "clear"),
    (H211, EFFICIENT, call(70000), "clear"),
    (H211, "native", call(73728, mask="float"), "except"),
    (H214, EFFICIENT, call(70000, mask="bool"), "clear"),
    (H210, EFFICIENT, call(70000, mask="bool"), "except"),
    (H28, EFFICIENT, call(70000, mask="bool"), "except"),
    (CPU213, "native", call(70000, mask="bool"), "clear"),
    # FlexAttention: pytorch #188322, #181645, slices on the CPU, blocks without a function
    (H213, "flex", call(mask="bool"), "except"),
    (H213, "flex", call(), "clear"),
    (H211, "flex", call(), "clear"),
    (H211, "flex", call(compiled=True), "except"),
    (H213, "flex", call(mask="bool", compiled=True), "except"),
    (H210, "flex", call(mask="bool"), "except"),
    (torch("2.9.0", sm=90), "flex", call(), "clear"),
    (CPU213, "flex", call(compiled=True), "except"),
    (CPU213, "flex", call(), "clear"),
    (CPU213, "flex", call(mask="bool"), "except"),
    (CPU213, "flex", train(1024, compiled=True), "clear"),
    (CPU210, "flex", call(compiled=True), "except"),
    (CPU28, "flex", call(compiled=True), "except"),
    (H213, "flex", call(compiled=True), "clear"),
    # Apple: pytorch #195910, #174861, ComfyUI #14837
    (MAC210, "native", call(64, causal=True), "except"),
    (MAC210, "native", call(64, causal=True, dtype="fp32"), "clear"),
    (MAC210, "native", call(64), "except"),
    (MAC211, "native", call(64, causal=True), "except"),
    (MAC213, "native", call(64, causal=True), "clear"),
    (MAC211, "native", call(16384), "except"),
    (MAC211, "native", call(512), "clear"),
    # ROCm: pytorch #194498
    (AMD212, "native", call(), "except"),
    (AMD212, MATH, call(), "clear"),
    (AMD211, "native", call(), "clear"),
    (AMD212, "native", call(dtype="fp32"), "except"),
    (H213, "native", call(), "clear"),
    # packages: diffusers #14397 and #14338, SageAttention 1.0.6, xformers #719
    (package("diffusers", "0.39.0"), "_native_npu", call(mask="float"), "wrong"),
    (package("diffusers", "0.39.0"), "_native_npu", call(mask="bool"), "clear"),
    (package("diffusers", "0.43.0"), "_native_npu", call(mask="float"), "clear"),
    (package("diffusers", "0.39.0"), CUDNN, train(1024), "except"),
    (package("diffusers", "0.40.0"), CUDNN, train(1024), "clear"),
    (package("sageattention", "1.0.6"), "sage", call(), "except"),
    (package("sageattention", "1.0.6"), "sage", call(dtype="fp16"), "except"),
    (package("sageattention", "2.2.0"), "sage", call(), "except"),
    # flash-attn without a backward kernel for wide heads with dropout
    (flash("2.8.3", 89), "flash", train(1024, head_dim=256), "except"),
    (flash("2.8.3", 120), "flash_varlen", train(1024, head_dim=200), "except"),
    (flash("2.8.3", 89), "flash", train(1024, head_dim=192), "clear"),
    (flash("2.8.3", 89), "flash", call(head_dim=256), "clear"),
    (flash("2.8.3", 80), "flash", train(1024, head_dim=256), "clear"),
    (flash("2.7.2.post1", 89), "flash", train(1024, head_dim=256), "clear"),
    # diffusers #14342, SageAttention #388, #392, #386 and #320
    ({**package("diffusers", "0.41.0"), **torch("2.13.0")}, CUDNN, call(mask="bool"), "except"),
    ({**package("diffusers", "0.41.0"), **torch("2.14.0")}, CUDNN, call(mask="bool"), "clear"),
    (package("diffusers", "0.41.0"), CUDNN, call(mask="float"), "clear"),
    (package("diffusers", "0.35.2"), CUDNN, call(mask="bool"), "clear"),
    (sage("2.2.0", 120), "sage", call(160000), "except"),
    (sage("2.2.0", 120), "_sage_qk_int8_pv_fp16_cuda", call(50000), "except"),
    (sage("2.2.0", 120), "sage", train(1024), "clear"),
    (sage("2.2.0", 120), "sage", call(1024), "except"),
    (sage("2.2.0", 89), "sage", call(99866), "except"),
    (sage("2.2.0", 89), "sage", call(1024), "except"),
    (sage("2.2.0", 90), "_sage_qk_int8_pv_fp8_cuda_sm90", call(), "except"),
    (sage("2.2.0", 90), "_sage_qk_int8_pv_fp16_cuda", call(), "except"),
    (package("xformers", "0.0.18"), "xformers", call(33728), "except"),
    (package("xformers", "0.0.18"), "xformers", call(32768), "except"),
    (package("xformers", "0.0.18"), "xformers", call(32767), "clear"),
    (package("xformers", "0.0.19"), "xformers", call(33728), "clear"),
)


@pytest.mark.parametrize(
    ("facts", "backend", "asked", "expected"),
    ROWS,
    ids=[str(number) for number in range(len(ROWS))],
)
def test_what_the_advisories_say(
    facts: dict[str, Any], backend: str, asked: AttentionCall, expected: str
) -> None:
    found = {True: False, False: False, None: False}
    for one in evaluate_rules(example_facts("row", nested(facts)), RULES):
        if one.verdict is Verdict.PROBLEM and one.advisory and backend in one.backends:
            found[concerns(one.advisory, asked)] = True
    assert ("wrong" if found[True] else "except" if found[None] else "clear") == expected
