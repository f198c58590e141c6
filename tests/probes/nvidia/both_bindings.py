"""Prints what NVML answers to attn-doctor and to nvidia-ml-py, as two lists of the same length.

A program of its own, since a library is found by LD_LIBRARY_PATH only when a process starts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pynvml

from attn_doctor.host.nvml_process import Nvml, NvmlError

Questions = list[Callable[[], Any]]
NUMBERS = (
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetMaxMigDeviceCount",
)
PAIRS = ("nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetMigMode")
TEXTS = ("nvmlDeviceGetName", "nvmlDeviceGetUUID")
PROCESSES = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3")


def ours(nvml: Nvml, index: int) -> Questions:
    gpu = nvml.handle("nvmlDeviceGetHandleByIndex_v2", index)
    return [
        *(lambda name=name: nvml.text(name, gpu) for name in TEXTS),
        *(lambda name=name: nvml.number(name, gpu) for name in NUMBERS),
        *(lambda name=name: nvml.numbers(name, gpu) for name in PAIRS),
        *(lambda name=name: sorted(nvml.pids(name, gpu)) for name in PROCESSES),
        lambda: nvml.pci_bus_id(gpu),
        lambda: list(nvml.memory(gpu).values()),
    ]


def theirs(index: int) -> Questions:
    gpu = pynvml.nvmlDeviceGetHandleByIndex(index)

    def pids(found: list[Any]) -> list[int]:
        return sorted(one.pid for one in found)

    def memory() -> list[int]:
        found = pynvml.nvmlDeviceGetMemoryInfo(gpu)
        return [found.total, found.free]

    return [
        *(lambda name=name: getattr(pynvml, name)(gpu) for name in (*TEXTS, *NUMBERS)),
        *(lambda name=name: list(getattr(pynvml, name)(gpu)) for name in PAIRS),
        *(
            lambda name=name: sorted(o.pid for o in getattr(pynvml, name)(gpu))
            for name in PROCESSES
        ),
        lambda: pynvml.nvmlDeviceGetPciInfo(gpu).busId,
        memory,
    ]


def said(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except NvmlError as error:
        return f"error {error.code}"
    except pynvml.NVMLError as error:
        return f"error {error.value}"


def main() -> None:
    nvml = Nvml()
    nvml.init()
    pynvml.nvmlInit()
    mine: Questions = [
        lambda: nvml.text("nvmlSystemGetNVMLVersion"),
        lambda: nvml.text("nvmlSystemGetDriverVersion"),
        lambda: nvml.number("nvmlSystemGetCudaDriverVersion_v2"),
        lambda: nvml.number("nvmlDeviceGetCount_v2"),
    ]
    other: Questions = [
        pynvml.nvmlSystemGetNVMLVersion,
        pynvml.nvmlSystemGetDriverVersion,
        pynvml.nvmlSystemGetCudaDriverVersion_v2,
        pynvml.nvmlDeviceGetCount,
    ]
    for index in range(4):
        mine += ours(nvml, index)
        other += theirs(index)
    print(json.dumps([list(map(said, mine)), list(map(said, other))], default=bytes.decode))


if __name__ == "__main__":
    main()
