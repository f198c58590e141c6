"""Asks torch and the driver for everything that a builder without this GPU has to know about it.

A program of `launch.py`, with the device as its argument, such as `cuda:0`. It prints one JSON
line: the fields of `kernels.gpus.descriptor.Descriptor`, or `{"failure": sentence}`. Nothing is
compiled. It cannot know with which variables another program on this machine will be started.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import sysconfig
import time
from typing import Any

from attn_doctor.worker import cuda_driver
from attn_doctor.worker.kernels.environment import build_environment

#: torch's properties, as `torch.cuda.get_device_properties` names them. Old releases lack some.
_PROPERTIES = (
    "multi_processor_count",
    "total_memory",
    "L2_cache_size",
    "regs_per_multiprocessor",
    "max_threads_per_multi_processor",
    "max_threads_per_block",
    "warp_size",
    "shared_memory_per_block",
    "shared_memory_per_block_optin",
    "shared_memory_per_multiprocessor",
    "clock_rate",
    "memory_clock_rate",
    "memory_bus_width",
)


def describe(device: str) -> dict[str, Any]:
    """What torch and the driver know of `device`. Raises what torch raises without a GPU."""
    import torch

    if not getattr(torch.version, "cuda", None):
        raise RuntimeError(f"torch {torch.__version__} is a build without CUDA")
    torch.cuda.init()
    index = int(device.partition(":")[2] or 0)
    if index >= torch.cuda.device_count():
        raise RuntimeError(f"torch sees {torch.cuda.device_count()} GPUs, and no {device}")
    properties = torch.cuda.get_device_properties(index)
    found: dict[str, Any] = {
        "name": properties.name,
        "major": properties.major,
        "minor": properties.minor,
    }
    found.update(
        {name: int(getattr(properties, name)) for name in _PROPERTIES if hasattr(properties, name)}
    )
    found.update(_driver(index))
    found.update(_software(torch, device))
    found["source"] = "attn-doctor describe-gpu"
    found["probed"] = time.strftime("%Y-%m-%d", time.gmtime())
    return found


def _driver(index: int) -> dict[str, Any]:
    """Answers of the driver itself: the CUDA that it serves, and its attributes of the GPU."""
    driver = cuda_driver.library()
    if driver is None:
        return {}
    answers = {
        "driver_cuda": cuda_driver.version(driver),
        "attributes": cuda_driver.attributes(driver, index),
    }
    return {name: value for name, value in answers.items() if value is not None}


def _software(torch: Any, device: str) -> dict[str, Any]:
    """What must be the same at both ends, with the variables and settings that enter keys."""
    decisive = build_environment(device)
    names = ("torch", "torch_cuda", "torch_key", "triton", "triton_key", "ptxas", "python")
    software = {name: decisive.get(name) for name in (*names, "cc", "cxx")}
    software["torch_git"] = getattr(torch.version, "git_version", None)
    software["abi"] = _abi()
    software["machine"] = platform.machine()
    # In full, although `kept` cuts long ones: a builder has to set them.
    environment = {name: os.environ[name] for name in decisive["environment"]}
    return {
        "driver": decisive.get("driver") or "",
        "environment": environment,
        "settings": decisive["settings"],
        "software": {name: text for name, text in sorted(software.items()) if text is not None},
    }


def _abi() -> str:
    """The tag of this interpreter's extension modules, such as cp312."""
    free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    return f"cp{sys.version_info[0]}{sys.version_info[1]}{free}"


def main(argv: list[str]) -> int:
    """Answer in one line, with standard output kept free of what others print."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        found = describe(argv[0] if argv else "cuda:0")
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        found = {"failure": lines[0] if lines else type(error).__name__}
    answer.write(json.dumps(found) + "\n")
    answer.flush()
    return int("failure" in found)
