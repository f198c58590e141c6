"""Settings of torch that prevent a build without the GPU, and why.

They are looked at when something compiles, since a program, or `mode=`, sets them as it runs.
"""

from __future__ import annotations

import os
import sys
from typing import Any

_TIMED = "it chooses kernels by timing them, and a GPU that is not there has no times"
#: Inductor's setting → why, and what to do. Those that are only sometimes obeyed are refused when
#: they are: see `timing.py`.
_INDUCTOR = {
    "max_autotune": f"{_TIMED}; leave it out (a mode such as max-autotune sets it), and pin "
    "FlexAttention's kernel_options instead",
    "max_autotune_gemm": f"{_TIMED}; leave it out",
    "coordinate_descent_tuning": f"{_TIMED}; leave it out",
    "incremental_autotune": f"{_TIMED}; leave it out",
    "triton.multi_kernel": f"{_TIMED}; leave it out",
    "freezing": "it computes constants with the GPU's kernels while compiling; leave it out",
    "fx_graph_remote_cache": "a shared cache would get kernels that were not verified on a real "
    "GPU; set TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE=0",
    "autotune_remote_cache": "a shared cache would get choices that no GPU has made; set "
    "TORCHINDUCTOR_AUTOTUNE_REMOTE_CACHE=0",
    "bundled_autotune_remote_cache": "a shared cache would get choices that no GPU has made; set "
    "TORCHINDUCTOR_BUNDLED_AUTOTUNE_REMOTE_CACHE=0",
}
_FUNCTORCH = {
    "enable_remote_autograd_cache": "a shared cache would get graphs that were not verified on a "
    "real GPU; set TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE=0",
    "fake_tensor_propagate_real_tensors": "it runs every kernel while compiling; leave it out",
}


def forbidden(cache: str) -> list[str]:
    """Sentences on settings that must not be set. `cache`: the folder of the kernels."""
    found = _set("torch._inductor.config", _INDUCTOR)
    found += _set("torch._functorch.config", _FUNCTORCH)
    now = _cache_folder()
    if cache and now and os.path.realpath(now) != os.path.realpath(cache):
        found.append(
            f"the program has moved torch's cache from {cache} to {now}: kernels that were never "
            "verified would stay there unseen; leave TORCHINDUCTOR_CACHE_DIR as it is"
        )
    return found


def _set(module: str, names: dict[str, str]) -> list[str]:
    config = sys.modules.get(module)
    found = []
    for name, why in names.items():
        value: Any = config
        for part in name.split("."):
            value = getattr(value, part, None)  # an older torch has not all of them
        if value:
            found.append(f"{module}.{name} is {value!r}: {why}")
    return found


def _cache_folder() -> str:
    try:
        from torch._inductor.runtime.cache_dir_utils import cache_dir
    except ImportError:
        from torch._inductor.codecache import cache_dir
    return str(cache_dir())
