"""A build whose child needs no torch; see `fake_job.py`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from attn_doctor.facts import Cache, Facts, Python, System, Torch, Triton
from attn_doctor.kernels.builder.plan import BuildRequest
from attn_doctor.record.spec import KernelSpec

if os.name == "nt":
    collect_ignore = ["test_pool.py", "test_run.py"]


def spec(mask: str, head_dim: int = 64) -> KernelSpec:
    """A small spec that behaves as `mask` says."""
    return KernelSpec(heads=2, head_dim=head_dim, lengths=(128,), mask=mask, phase="inference")


@pytest.fixture
def request_of(serve: Path, cache: Path) -> Callable[..., BuildRequest]:
    """A request for specs with these masks, on a machine that is said to have four cores."""

    def made(*masks: str, **fields: object) -> BuildRequest:
        facts = Facts(
            system=System(os="linux", cpus=4, ram_available_mib=64_000),
            python=Python(path=sys.executable, version="3.11.7"),
            torch=Torch(installed=True, version="2.13.0+cpu", build="cpu", has_flex=True),
            triton=Triton(installed=False),
            caches=(Cache(kind="inductor", path=str(cache)),),
        )
        request = BuildRequest(
            specs=tuple(spec(mask, 16 * n) for n, mask in enumerate(masks, 1)),
            devices=("cpu",),
            facts=facts,
            folder=cache,
            environ={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)},
            limit=20.0,
        )
        from msgspec.structs import replace

        return replace(request, **fields)

    return made
