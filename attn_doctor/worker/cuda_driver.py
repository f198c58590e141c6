"""Asks the driver itself for its GPUs, without torch and without a context on any of them.

As a program of `launch.py` it prints one JSON line: an object for each GPU that this process may
see, in the driver's order. The list is empty without a driver; what an old driver does not know is
left out.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

#: Numbers of CUdevice_attribute; CUDA 13.0 ends at 143, and unknown ones are answered by an error.
_ATTRIBUTES = range(1, 200)
#: CUDA_ERROR_NOT_INITIALIZED, from the driver's cuda.h.
_NOT_INITIALISED = 3
#: Attributes of the one card that is asked, not of its model: its place on the bus and in memory.
_CARD = {33, 34, 50, 85, 131, 134, 139, 140}


def library() -> Any:
    """The driver's library, initialised; None if there is none or it refuses."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None


def was_initialised() -> bool:
    """`cuInit` was called in this process, according to the driver itself. Linux only."""
    try:
        # Without loading it: what is not loaded is not initialised.
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return int(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))) != _NOT_INITIALISED
    except (OSError, AttributeError):
        return False


def version(driver: Any) -> int | None:
    """The newest CUDA that the driver serves, such as 13000 for 13.0."""
    number = ctypes.c_int(0)
    return number.value if driver.cuDriverGetVersion(ctypes.byref(number)) == 0 else None


def attributes(driver: Any, index: int) -> dict[str, int] | None:
    """CUdevice_attribute's number → value, for all that hold for the GPU's model."""
    number, device = ctypes.c_int(0), ctypes.c_int(0)
    if driver.cuDeviceGet(ctypes.byref(device), index) != 0:
        return None
    found = {}
    for attribute in _ATTRIBUTES:
        answered = driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
        if answered == 0 and attribute not in _CARD:
            found[str(attribute)] = number.value
    return found


def gpus() -> list[dict[str, Any]]:
    """Name, memory in bytes, and attributes of every GPU; empty without a driver."""
    driver, count = library(), ctypes.c_int(0)
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    found = []
    for index in range(count.value):
        values = attributes(driver, index)
        name, memory = ctypes.create_string_buffer(256), ctypes.c_size_t(0)
        if (
            values is None
            or driver.cuDeviceGetName(name, len(name), index) != 0
            or driver.cuDeviceTotalMem_v2(ctypes.byref(memory), index) != 0
        ):
            return []
        found.append(
            {
                "name": name.value.decode("utf-8", "replace"),
                "total_memory": memory.value,
                "driver_cuda": version(driver),
                "attributes": values,
            }
        )
    return found


def main(_: list[str]) -> int:
    """Print the GPUs of this machine as one line of JSON."""
    sys.stdout.write(json.dumps(gpus()) + "\n")
    return 0
