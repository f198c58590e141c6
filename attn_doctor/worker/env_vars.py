"""The environment variables that decide the reuse of kernels.

A worker records those of a build, and attn-doctor compares them with today's. Only the standard
library is used: the examined interpreter runs this too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: Variables that enter keys or generated code, besides those that begin with one of `_PREFIXES`.
_NAMES = (
    "CC",
    "CXX",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "ATEN_CPU_CAPABILITY",
    "DISABLE_PTXAS_OPT",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_CACHING_PRECOMPILE",
    "TORCH_COMPILE_DISABLE",
)
_PREFIXES = ("TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE_", "TRITON_", "ENABLE_AOT_AUTOGRAD")
#: Of those, what decides only where and how many. The path of libcuda is not in Triton's keys.
_NO_MATTER = (
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCHINDUCTOR_COMPILE_THREADS",
    "TRITON_CACHE_DIR",
    "TRITON_HOME",
    "TRITON_LIBCUDA_PATH",
)


def kept(environ: Mapping[str, str], also: Iterable[str]) -> dict[str, str]:
    """The variables that matter and are set, and those of `also` that are set."""
    names = {
        name
        for name in environ
        if name in _NAMES or (name.startswith(_PREFIXES) and name not in _NO_MATTER)
    }
    names |= {name for name in also if name in environ}
    return {name: environ[name][:200] for name in sorted(names)}
