"""Collects what decides reuse besides the spec: versions, device, compilers, settings.

torch itself is asked, since only it knows what enters its keys. No key holds the driver's version.
None means unknown; empty text means that there is none.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from typing import Any

from attn_doctor.worker.env_vars import kept
from attn_doctor.worker.files import TEXT, read_text


def build_environment(device: str) -> dict[str, Any]:
    """The fields of `manifest.BuildEnvironment` for a device such as `cuda:0` or `cpu`."""
    import torch

    found: dict[str, Any] = {
        "torch": torch.__version__,
        "torch_cuda": getattr(torch.version, "cuda", None) or "",
        "torch_key": _torch_key(),
        "triton": _triton_version(),
        "triton_key": _triton_key(),
        "python": platform.python_version(),
        "cc": _compiler(_cc()),
        "cxx": _compiler(_cxx()),
        "environment": kept(os.environ, _triton_names()),
        "settings": _settings(torch),
    }
    if device.startswith("cuda"):
        # Not `set_device`: since CUDA 12 it makes a context, for which builds would have to wait.
        major, minor = torch.cuda.get_device_capability(device)
        found["device"] = torch.cuda.get_device_name(device)
        found["sm"] = major * 10 + minor
        found["ptxas"] = _ptxas(found["sm"])
        found["driver"] = _driver()
    else:
        found["device"] = "cpu"
        found["cpu"] = _vector_instructions()
    return found


def _torch_key() -> str | None:
    try:
        from torch._inductor.codecache import torch_key

        key = torch_key()
    except Exception:
        return None
    return key.hex() if isinstance(key, bytes) else str(key)


def _triton_version() -> str:
    try:
        import triton
    except Exception:
        return ""
    return str(triton.__version__)


def _triton_key() -> str | None:
    """Digest of Triton's own key, which is long; "" without Triton."""
    for module in ("triton.runtime.cache", "triton.compiler.compiler", "triton.compiler"):
        try:
            key = __import__(module, fromlist=["triton_key"]).triton_key()
        except Exception:  # noqa: S112 - it has moved between releases
            continue
        return hashlib.sha256(str(key).encode()).hexdigest()
    return None if _triton_version() else ""


def _ptxas(sm: int) -> str | None:
    """Version of the ptxas that Triton runs for this GPU, such as 12.8."""
    try:
        from triton.backends.nvidia import compiler
    except Exception:
        return None
    try:
        if hasattr(compiler, "get_ptxas_version"):
            try:
                version = compiler.get_ptxas_version(sm)
            except TypeError:
                version = compiler.get_ptxas_version()
            text = str(version)
        else:
            text = str(compiler._path_to_binary("ptxas")[1])
    except Exception:
        return None
    match = re.search(r"V(\d+(\.\d+)+)", text) or re.search(r"(\d+(\.\d+)+)", text)
    return match.group(1) if match else text[:80]


def _driver() -> str | None:
    for path, pattern in (
        ("/sys/module/nvidia/version", r"([\d.]+)"),
        ("/proc/driver/nvidia/version", r"Kernel Module(?: for \S+)?\s+([\d.]+)"),
    ):
        try:
            match = re.search(pattern, read_text(path, TEXT))
        except OSError:
            continue
        if match:
            return match.group(1)
    return None


def _cc() -> str:
    """The C compiler that Triton uses: CC, else gcc, else clang."""
    return os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang") or ""


def _cxx() -> str:
    """The C++ compiler that Inductor uses."""
    try:
        from torch._inductor.cpp_builder import get_cpp_compiler

        return str(get_cpp_compiler())
    except Exception:
        return os.environ.get("CXX") or shutil.which("g++") or ""


def _compiler(path: str) -> str | None:
    if not path:
        return ""
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            stdin=subprocess.DEVNULL,
            errors="replace",
        )
    except FileNotFoundError:
        return ""
    except (OSError, subprocess.SubprocessError):
        return None
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0].strip() if lines else None


def _vector_instructions() -> str | None:
    for module in ("torch._inductor.cpu_vec_isa", "torch._inductor.codecache"):
        try:
            return str(__import__(module, fromlist=["pick_vec_isa"]).pick_vec_isa())
        except Exception:  # noqa: S112 - it has moved between releases
            continue
    return None


def _triton_names() -> set[str]:
    """Variables that invalidate the cache if they are set, according to Triton itself."""
    try:
        from triton._C.libtriton import get_cache_invalidating_env_vars

        return set(get_cache_invalidating_env_vars())
    except Exception:
        return set()


def _settings(torch: Any) -> dict[str, str]:
    found = {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
    }
    try:
        found["inductor"] = _digest(torch._inductor.config.save_config_portable())
    except Exception:
        found["inductor"] = ""
    try:
        found["functorch"] = _digest(torch._functorch.config.save_config_portable())
    except Exception:
        found["functorch"] = ""
    return found


def _digest(config: dict[str, Any]) -> str:
    # The text of an object holds its address, which differs between processes.
    text = json.dumps(
        config, sort_keys=True, default=lambda one: re.sub(r" at 0x\w+", "", repr(one))
    )
    return hashlib.sha256(text.encode()).hexdigest()[:32]
