"""A build whose child needs no torch; see `standin_work.py`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from attn_doctor.builder.run import Request
from attn_doctor.builder.spec import KernelSpec
from attn_doctor.facts import Cache, Facts, Python, System, Torch, Triton

if os.name == "nt":
    collect_ignore = ["test_pool.py", "test_run.py"]


@pytest.fixture
def serve(child_with: Callable[[Path], Path]) -> Path:
    """The real `serve.py` beside a stand-in for `work.py`."""
    return child_with(Path(__file__).parent / "standin_work.py")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache folder."""
    folder = Path(os.path.realpath(tmp_path)) / "cache"
    folder.mkdir()
    return folder


def spec(mask: str, head_dim: int = 64) -> KernelSpec:
    """A small spec that behaves as `mask` says."""
    return KernelSpec(heads=2, head_dim=head_dim, lengths=(128,), mask=mask, phase="inference")


@pytest.fixture
def request_of(serve: Path, cache: Path) -> Callable[..., Request]:
    """A request for specs with these masks, on a machine that is said to have four cores."""

    def made(*masks: str, **fields: object) -> Request:
        facts = Facts(
            system=System(os="linux", cpus=4, ram_available_mib=64_000),
            python=Python(path=sys.executable, version="3.11.7"),
            torch=Torch(installed=True, version="2.13.0+cpu", build="cpu", has_flex=True),
            triton=Triton(installed=False),
            caches=(Cache(kind="inductor", path=str(cache)),),
        )
        request = Request(
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
