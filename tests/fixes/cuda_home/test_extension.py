"""A real CUDA extension of torch, built with what `fix --cuda-home` says. Takes minutes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PYTHON = os.environ.get("ATTN_DOCTOR_TORCH_PYTHON", "")
SOURCE = """#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
__global__ void twice(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += x[i];
}
void hello(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda(), "x must be on a GPU");
  twice<<<(x.numel() + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), x.numel());
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("hello", &hello); }
"""
SETUP = """from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension
setup(name="hello", ext_modules=[CUDAExtension("hello", ["hello.cu"])],
      cmdclass={"build_ext": BuildExtension})
"""
TRY = """import torch, hello
if torch.cuda.is_available():
    x = torch.ones(3, device="cuda"); hello.hello(x); assert x.sum().item() == 6
else:
    try: hello.hello(torch.ones(3))
    except RuntimeError as error: assert "x must be on a GPU" in str(error)
print("fine")
"""


@pytest.mark.gpu
@pytest.mark.torch
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "dash"])
def test_an_extension_builds_after_eval(tmp_path: Path, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "hello.cu").write_text(SOURCE)
    (tmp_path / "setup.py").write_text(SETUP)
    unwanted = ("CUDA_HOME", "CUDA_PATH")
    environ = {name: value for name, value in os.environ.items() if name not in unwanted}
    environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")
    doctor = f"'{sys.executable}' -m attn_doctor fix --cuda-home --python '{PYTHON}'"
    script = f'eval "$({doctor})"; {PYTHON} setup.py build_ext --inplace'
    built = subprocess.run(
        [program, "-c", script], cwd=tmp_path, env=environ, capture_output=True, text=True,
        timeout=1800, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
    tried = subprocess.run(
        [PYTHON, "-c", TRY], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert tried.stdout.strip().endswith("fine"), tried.stderr
