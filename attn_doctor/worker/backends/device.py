"""The device that is measured: its name, its free memory, and the share that may be taken."""

from __future__ import annotations

from typing import Any

import torch


def describe(name: str) -> dict[str, Any]:
    """Name and memory of a device, after it has computed something. Raises what torch raises."""
    device = open(name, 1.0)
    # A context alone shows little: something is computed and copied back.
    total = float((torch.ones(8, device=device) * 2).sum())
    if total != 16.0:
        raise ArithmeticError(f"{device} computed {total} where 16 is right")
    if device.type != "cuda":
        return {"device": str(device), "name": device.type.upper()}
    free, memory = torch.cuda.mem_get_info(device)
    major, minor = torch.cuda.get_device_capability(device)
    return {
        "device": str(device),
        "name": torch.cuda.get_device_name(device),
        "sm": 10 * major + minor,
        "free": free,
        "total": memory,
    }


def open(name: str, share: float) -> Any:
    """The device called `name`, ready for use, with at most `share` of its free memory for us.

    Empty: the first GPU that torch sees, else the processor.
    """
    if not name:
        name = "cuda:0" if torch.version.cuda or torch.version.hip else "cpu"
    device = torch.device(name)
    if device.type == "cuda":
        torch.cuda.init()
        torch.cuda.set_device(device)
        free, total = torch.cuda.mem_get_info(device)
        torch.cuda.set_per_process_memory_fraction(min(1.0, share * free / total), device)
    return device


def free_memory(device: Any, share: float) -> dict[str, int] | None:
    """Bytes `free`, `total`, and `allowed`: how many may be taken; None except on CUDA."""
    if device.type != "cuda":
        return None
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return {"free": free, "total": total, "allowed": int(free * share)}


def wait(device: Any) -> None:
    """Wait until all that was started has ended, so that an error is raised where it belongs."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def start_counting(device: Any) -> int:
    """Start to count the peak of memory; returns the bytes in use now."""
    if device.type != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats(device)
    return int(torch.cuda.memory_allocated(device))


def peak(device: Any, base: int) -> int | None:
    """Most bytes in use since `start_counting`, above `base`; None except on CUDA."""
    if device.type != "cuda":
        return None
    return int(torch.cuda.max_memory_allocated(device)) - base
