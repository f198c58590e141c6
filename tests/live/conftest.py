"""The interpreter with a real torch that these tests run in, if one was named."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def torch_python() -> str:
    python = os.environ.get("ATTN_DOCTOR_TORCH_PYTHON", "")
    if not python:
        pytest.skip("name an interpreter with torch in ATTN_DOCTOR_TORCH_PYTHON")
    return python
