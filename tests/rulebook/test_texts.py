"""Fills texts of rules whose facts are partly unknown."""

from __future__ import annotations

import pytest

from attn_doctor.rulebook.texts import fill_known

KNOWN = {"torch.version": "2.6.0", "gpu.name": "NVIDIA T4"}


@pytest.mark.parametrize(
    ("text", "known", "unknown"),
    [
        (
            "torch {torch.version} is a CPU build",
            "torch 2.6.0 is a CPU build",
            "torch is a CPU build",
        ),
        ("It needs torch=={torch.version}", "It needs torch==2.6.0", "It needs torch"),
        ("torch is old ({torch.version})", "torch is old (2.6.0)", "torch is old"),
        ("{torch.version} is old", "2.6.0 is old", "… is old"),
        ("It is in {torch.version}", "It is in 2.6.0", "It is in …"),
        (
            "It was built for torch {gpu.sm}, this is torch {torch.version}",
            "It was built for torch …, this is torch 2.6.0",
            "It was built for torch …, this is torch …",
        ),
        ("{gpu.name} is old", "NVIDIA T4 is old", "the GPU is old"),
        ("torch is old; here is {torch.version}", "torch is old; here is 2.6.0", "torch is old"),
        (
            "It is old. This is torch {torch.version}. Get another.",
            "It is old. This is torch 2.6.0. Get another.",
            "It is old. Get another.",
        ),
        (
            "It is old, and torch {torch.version} new.",
            "It is old, and torch 2.6.0 new.",
            "It is old.",
        ),
        ("A file is damaged: {torch.version}", "A file is damaged: 2.6.0", "A file is damaged"),
        (
            "It has code for {torch.archs} and none for this GPU ({torch.version}).",
            "It has code for other GPUs and none for this GPU (2.6.0).",
            "It has code for other GPUs and none for this GPU.",
        ),
        (
            "They were built under {driver.version}. Kernels are machine code.",
            "Kernels are machine code.",
            "Kernels are machine code.",
        ),
        ("nothing to fill in", "nothing to fill in", "nothing to fill in"),
    ],
)
def test_worded(text: str, known: str, unknown: str) -> None:
    assert fill_known(text, KNOWN.get) == known
    assert fill_known(text, lambda name: None) == unknown


def test_a_glued_value_goes_with_what_it_is_glued_to() -> None:
    assert (
        fill_known("flash-attn refuses the GPU (sm_{gpu.sm})", KNOWN.get)
        == "flash-attn refuses the GPU"
    )
    assert fill_known("flash-attn refuses sm_{gpu.sm}", KNOWN.get) == "flash-attn refuses"
