"""Compute capabilities of GPUs by the names that drivers report."""

from __future__ import annotations

import pytest

from attn_doctor.gpu_names import capability
from attn_doctor.rulebook import library


@pytest.mark.parametrize(
    ("name", "sm"),
    [
        ("NVIDIA H100 80GB HBM3", 90),
        ("NVIDIA H100 NVL", 90),
        ("NVIDIA H20-3e", 90),
        ("NVIDIA GH200 480GB", 90),
        ("NVIDIA B300 SXM6 AC", 103),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 80),
        ("GRID A100-10C", 80),
        ("NVIDIA A100 80GB PCIe", 80),
        ("NVIDIA A16", 86),
        ("NVIDIA A10G", 86),
        ("NVIDIA A2", 86),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 120),
        ("NVIDIA GeForce RTX 5060 Laptop GPU", 120),
        ("NVIDIA GeForce RTX 4090 D", 89),
        ("Quadro RTX 8000", 75),
        ("Tesla V100-SXM2-16GB", 70),
        ("NVIDIA GB10", 121),
        ("Orin", 87),
        ("NVIDIA Thor", 110),
        ("RTX 5000", None),
        ("NVIDIA Graphics Device", None),
        ("AMD Radeon RX 7900 XTX", None),
        ("", None),
    ],
)
def test_capability(name: str, sm: int | None) -> None:
    assert capability(name, library.tables()) == sm
