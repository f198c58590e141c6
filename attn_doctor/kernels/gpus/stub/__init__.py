"""A CUDA driver without a GPU, for child processes that build kernels for another machine's GPU.

`make` compiles it for the examined environment, `environment` is what a child has to be started
with. Only Linux with glibc can have it: it works by LD_PRELOAD.
"""

from __future__ import annotations

from attn_doctor.kernels.gpus.stub.compile import make
from attn_doctor.kernels.gpus.stub.environment import environment

__all__ = ["environment", "make"]
