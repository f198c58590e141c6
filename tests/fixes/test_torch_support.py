"""Releases that fit the installed torch, and what other packages require."""

from __future__ import annotations

import pytest

from attn_doctor.facts import Facts, Package, Torch, UnmetRequirement
from attn_doctor.fixes.pip_arguments import pip_call
from attn_doctor.fixes.torch_support import bounded


@pytest.mark.parametrize(
    ("together", "wanted"),
    [
        ("", "transformers<5.14"),
        ("transformers<5,>=4.46", "transformers<5,>=4.46"),
        ("transformers>=6", "transformers<5.14"),
        ("peft<1", "transformers<5.14"),
    ],
)
def test_one_command_serves_torch_and_other_packages(together: str, wanted: str) -> None:
    call = pip_call(("pip", "install", "transformers<5.14"))
    assert call is not None
    facts = Facts(
        torch=Torch(installed=True, version="2.4.1"),
        transformers=Package(installed=True, version="5.24.0", expected="<5.14"),
        unmet_requirements=(UnmetRequirement(package="diffusers", together=together),),
    )
    assert bounded(call, facts).argv == ("pip", "install", wanted)
