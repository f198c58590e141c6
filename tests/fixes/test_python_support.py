"""Releases that do not exist for the examined Python."""

from __future__ import annotations

import pytest

from attn_doctor.facts import Facts, Python, System
from attn_doctor.fixes.pip_arguments import pip_call
from attn_doctor.fixes.python_support import obstacle


def why(python: str, *words: str) -> str:
    call = pip_call(("pip", *words))
    assert call is not None
    return obstacle(call, Facts(python=Python(version=python), system=System(os="linux")))


@pytest.mark.parametrize(
    ("python", "wanted", "limit"),
    [
        ("3.8.18", "torch>=2.5", "torch>=2.5 needs Python 3.9 or newer, and this is Python 3.8"),
        ("3.9.1", "torch>=2.5", ""),
        ("3.8.18", "torch", ""),
        ("3.13.0", "torch==2.4.*", "torch==2.4.* needs Python 3.12 or older, and this is"),
        ("3.13.0", "torch<2.5", "torch<2.5 needs Python 3.12 or older"),
        ("3.13.0", "torch<=2.5", ""),
        ("3.8.18", "flash-attn>=2.8.3", "flash-attn>=2.8.3 needs Python 3.9 or newer"),
        ("3.8.18", "flash-attn==2.7.0.post2", ""),
        ("3.8.18", "flash-attn~=2.8.1", "flash-attn~=2.8.1 needs Python 3.9 or newer"),
        ("3.8.18", "xformers>=0.0.28,<=0.0.28.post1", ""),
        ("3.8.18", "xformers>=0.0.28.post2", "xformers>=0.0.28.post2 needs Python 3.9"),
        ("3.9.18", "diffusers>=0.37", "diffusers>=0.37 needs Python 3.10 or newer"),
        ("3.9.18", "diffusers>=0.36", ""),
        ("3.8.18", "git+https://github.com/thu-ml/SageAttention", "sageattention needs Python 3.9"),
        ("3.8.18", "https://example.org/flash_attn-2.8.3-cp38-cp38-linux_x86_64.whl", ""),
        ("3.8.18", "unheard-of>=7", ""),
    ],
)
def test_a_release_needs_its_python(python: str, wanted: str, limit: str) -> None:
    found = why(python, "install", wanted)
    assert found.startswith(limit)
    assert bool(found) == bool(limit)


def test_only_an_installation_needs_a_release() -> None:
    assert why("3.8.18", "uninstall", "-y", "torch>=2.5") == ""
