"""The stub GPU, compiled against the headers of a CUDA wheel, and programs that run on it.

No torch is needed, only the wheel `nvidia-cuda-runtime` (or `nvidia-cuda-runtime-cu12`) in this
environment, or in the one whose interpreter ATTN_DOCTOR_CUDA_TORCH_PYTHON names.
"""

from __future__ import annotations

import json
import os
import shutil
import site
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attn_doctor import processes
from attn_doctor.kernels.gpus.descriptor import Descriptor
from attn_doctor.kernels.gpus.stub import environment
from attn_doctor.kernels.gpus.stub.compile import LIBRARY, NVML, compile_into
from attn_doctor.kernels.gpus.stub.cuda_libraries import Toolkit
from attn_doctor.kernels.gpus.stub.storage import kept

PRELUDE = Path(__file__).with_name("prelude.py")

#: A GPU with round numbers, so that none can be right by accident.
GPU = Descriptor(
    name="NVIDIA Test GPU",
    major=9,
    minor=1,
    multi_processor_count=77,
    total_memory=1 << 33,
    L2_cache_size=11 << 20,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    warp_size=32,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=200_000,
    shared_memory_per_multiprocessor=210_000,
    clock_rate=1_234_000,
    memory_clock_rate=2_345_000,
    memory_bus_width=4096,
    attributes={"106": 32, "111": 1024, "40": 3},
    driver_cuda=13010,
)

Program = Callable[..., Any]


def _sites() -> list[Path]:
    """Folders of packages that may hold the wheel."""
    found = [Path(one) for one in site.getsitepackages()]
    other = os.environ.get("ATTN_DOCTOR_CUDA_TORCH_PYTHON", "")
    if other:
        found += Path(other).parent.parent.glob("lib/python3*/site-packages")
    return found


def _toolkit() -> Toolkit | None:
    for folder in _sites():
        for root in (folder / "nvidia" / "cu13", folder / "nvidia" / "cuda_runtime"):
            runtimes = sorted(root.glob("lib/libcudart.so.1*"))
            if runtimes and (root / "include" / "driver_types.h").exists():
                return Toolkit(include=str(root / "include"), libraries=(str(runtimes[0]),))
    return None


@pytest.fixture(scope="session")
def toolkit() -> Toolkit:
    """Headers and runtime of a CUDA wheel."""
    found = _toolkit()
    if found is None:
        pytest.skip("no headers of CUDA here: pip install nvidia-cuda-runtime")
    return found


@pytest.fixture(scope="session")
def compiler() -> str:
    """A C compiler."""
    found = shutil.which("gcc") or shutil.which("clang")
    if not found or sys.platform != "linux":
        pytest.skip("the stub GPU needs Linux and a C compiler")
    return found


@pytest.fixture(scope="session")
def library(toolkit: Toolkit, compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled stub GPU, one for all processes of this run."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared.resolve() / "stub-gpu" / "library"

    def fill(out: Path) -> None:
        compile_into(out, toolkit, compiler, 2)

    return kept(folder, (LIBRARY, NVML), fill) / LIBRARY


@pytest.fixture
def on_stub_gpu(library: Path, tmp_path: Path) -> Program:
    """Run Python text on stub GPUs: `on_stub_gpu("out = nvml_count()", devices=2)` gives `out`."""

    def run(body: str, devices: int = 1, gpu: Descriptor = GPU, **variables: str) -> Any:
        program = tmp_path / "program.py"
        text = PRELUDE.read_text() + textwrap.dedent(body) + "\nprint(json.dumps(out))\n"
        program.write_text(text)
        plain = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        env = environment(library, gpu, devices, plain) | variables
        ended = processes.run([sys.executable, str(program)], 60.0, env=env)
        assert ended.ok, f"{ended.status}\n{ended.err}"
        return json.loads(ended.out.splitlines()[-1])

    return run
