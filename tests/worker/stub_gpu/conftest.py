"""A stub GPU for the CUDA build of torch whose interpreter ATTN_DOCTOR_CUDA_TORCH_PYTHON names."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
PYTHON = os.environ.get("ATTN_DOCTOR_CUDA_TORCH_PYTHON", "")

#: Runs a program of `programs/` on a stub H200: (argv, extra variables) → (ended, reports' folder).
Run = Callable[..., tuple[subprocess.CompletedProcess[str], Path]]


@pytest.fixture(scope="session")
def stub_gpu() -> dict[str, str]:
    """The environment of a process on a stub H200."""
    if not PYTHON:
        pytest.skip("needs a CUDA build of torch: ATTN_DOCTOR_CUDA_TORCH_PYTHON")
    from attn_doctor.examination import examine
    from attn_doctor.host.local import LocalHost
    from attn_doctor.kernels.gpus import known, stub

    library = stub.make(examine(LocalHost(), PYTHON, 60.0))
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TORCH", "TRITON", "PYTHON", "COV"))
    }
    return stub.environment(library, known.find("h200"), 1, environ)


@pytest.fixture
def run(stub_gpu: dict[str, str], tmp_path: Path) -> Run:
    """Programs on a stub GPU, guarded as a user's own program is."""
    from attn_doctor.worker.stub_gpu import program_environment

    def ran(*argv: str, **variables: str) -> tuple[subprocess.CompletedProcess[str], Path]:
        reports, cache = tmp_path / "reports", tmp_path / "cache"
        reports.mkdir(exist_ok=True)
        cache.mkdir(exist_ok=True)
        environ = stub_gpu | {
            "TORCHINDUCTOR_CACHE_DIR": str(cache),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            # Else torch's first question after GPUs would spoil every fork.
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            **variables,
        }
        ended = subprocess.run(
            [PYTHON, *argv],
            env=program_environment.environment(environ, str(reports)),
            capture_output=True,
            text=True,
            timeout=580,
            check=False,
        )
        return ended, reports

    return ran
