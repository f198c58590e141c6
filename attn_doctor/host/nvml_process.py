"""Asks NVML about the driver and its GPUs, in a process of its own.

A hanging driver hangs every process that asks it, so `LocalHost` runs this file as a child with a
time limit. Every answer is printed at once as one JSON line: answers before a hang or a crash are
kept, and the last line shows where NVML stopped. `fold` combines the lines in the parent.

The child needs nothing but the standard library and nvidia-ml-py, whose folder is its argument.
NVML knows the hardware and the driver; it does not know what CUDA_VISIBLE_DEVICES hides.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

#: More than any machine has; a line with a larger number is not ours.
_MOST_GPUS = 1024


def fold(text: str) -> dict[str, Any]:
    """Combine the child's lines to one object: answers, `gpus`, `errors`, `last`, `complete`.

    `last` is the last question that was answered, such as `count` or `gpus.2.name`; it is empty if
    the child did not reach NVML. `complete` is true if all questions were answered.
    """
    answer: dict[str, Any] = {"gpus": [], "errors": {}, "last": "", "complete": False}
    for line in text.splitlines():
        try:
            one = json.loads(line)
            key, number = str(one["key"]), one.get("gpu")
            if number is not None and not 0 <= number < _MOST_GPUS:
                continue
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue  # a library printed something of its own, or the last line was cut
        if key == "done":
            answer["complete"] = True
            continue
        place = answer
        if number is not None:
            while len(answer["gpus"]) <= number:
                answer["gpus"].append({"index": len(answer["gpus"]), "errors": {}})
            place = answer["gpus"][number]
        if "error" in one:
            place["errors"][key] = one["error"]
        else:
            place[key] = one.get("value")
        answer["last"] = key if number is None else f"gpus.{number}.{key}"
    return answer


def _ask(nvml: Any, key: str, question: Callable[[], Any], gpu: int | None = None) -> Any:
    """Print the answer to one question, or its error; return the answer, or None."""
    line: dict[str, Any] = {"key": key} if gpu is None else {"key": key, "gpu": gpu}
    try:
        line["value"] = question()
    except Exception as error:
        line["error"] = _describe(nvml, error)
    _say(line)
    return line.get("value")


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)  # noqa: T201 — standard output is how a child answers


def _describe(nvml: Any, error: Exception) -> dict[str, Any]:
    """Return an error's number, name and NVML's own text."""
    code = getattr(error, "value", None)
    if nvml is None or not isinstance(code, int):
        return {"code": None, "name": type(error).__name__, "text": str(error)}
    names = [name for name in dir(nvml) if name.startswith("NVML_ERROR_")]
    name = next((name for name in names if getattr(nvml, name) == code), f"NVML error {code}")
    try:
        # nvidia-smi prints the library's own text, and users search for it; the binding has
        # another one ("RM has detected an NVML/RM version mismatch.").
        text = str(nvml.nvmlErrorString(code))
    except Exception:
        text = str(error)
    return {"code": code, "name": name, "text": text}


def _mig_uuids(nvml: Any, device: Any) -> list[str]:
    """Return the ids of the MIG instances on a GPU. Their indices may have gaps."""
    found = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(device)):
        try:
            instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index)
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_NOT_FOUND:
                continue
            raise
        found.append(nvml.nvmlDeviceGetUUID(instance))
    return found


def _processes(nvml: Any, device: Any) -> int:
    """Return the number of processes that use a GPU, for computing, drawing or both."""
    pids = {one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(device)}
    try:
        pids |= {one.pid for one in nvml.nvmlDeviceGetGraphicsRunningProcesses(device)}
    except nvml.NVMLError as error:
        if error.value != nvml.NVML_ERROR_NOT_SUPPORTED:
            raise
    return len(pids)


def _memory(nvml: Any, device: Any) -> dict[str, int]:
    memory = nvml.nvmlDeviceGetMemoryInfo(device)
    return {"total": memory.total, "free": memory.free}


def _gpu(nvml: Any, number: int) -> None:
    """Print all answers about one GPU. Questions that rarely hang come first."""
    device: Any = None

    def handle() -> bool:
        # This wakes the GPU, which takes 1 to 3 seconds without persistence mode:
        # https://docs.nvidia.com/deploy/driver-persistence/overview.html
        nonlocal device
        device = nvml.nvmlDeviceGetHandleByIndex(number)
        return True

    if not _ask(nvml, "handle", handle, number):
        return
    questions: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("name", lambda: nvml.nvmlDeviceGetName(device)),
        ("compute_capability", lambda: nvml.nvmlDeviceGetCudaComputeCapability(device)),
        ("uuid", lambda: nvml.nvmlDeviceGetUUID(device)),
        ("pci_bus_id", lambda: _text(nvml.nvmlDeviceGetPciInfo(device).busId)),
        ("memory", lambda: _memory(nvml, device)),
        ("compute_mode", lambda: nvml.nvmlDeviceGetComputeMode(device)),
        ("persistence", lambda: nvml.nvmlDeviceGetPersistenceMode(device)),
    )
    for key, question in questions:
        _ask(nvml, key, question, number)
    if _ask(nvml, "mig_mode", lambda: nvml.nvmlDeviceGetMigMode(device)[0], number):
        _ask(nvml, "mig_uuids", lambda: _mig_uuids(nvml, device), number)
    _ask(nvml, "processes", lambda: _processes(nvml, device), number)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _cuda(nvml: Any) -> int:
    """Return the CUDA version of the driver from libcuda, 13000 for 13.0."""
    try:
        return int(nvml.nvmlSystemGetCudaDriverVersion_v2())
    except nvml.NVMLError:
        # There is no libcuda, or this NVML is older: this is the driver's own version.
        return int(nvml.nvmlSystemGetCudaDriverVersion())


def _import(folder: str) -> Any:
    # At the end: a json.py or ctypes.py in that folder must not replace Python's own.
    sys.path.append(folder)
    import pynvml

    return pynvml


def _main(folder: str) -> None:
    try:
        nvml = _import(folder)
    except Exception as error:  # no ctypes in this Python, a damaged file, …
        _say({"key": "import", "error": _describe(None, error)})
        return
    _say({"key": "start", "value": True})
    ready = _ask(nvml, "init", lambda: nvml.nvmlInit() is None)
    # These two answer even if nvmlInit failed, as long as the library could be loaded.
    _ask(nvml, "library_version", nvml.nvmlSystemGetNVMLVersion)
    _ask(nvml, "cuda", lambda: _cuda(nvml))
    if ready:
        _ask(nvml, "driver_version", nvml.nvmlSystemGetDriverVersion)
        for number in range(_ask(nvml, "count", nvml.nvmlDeviceGetCount) or 0):
            _gpu(nvml, number)
    _say({"key": "done"})


if __name__ == "__main__":
    _main(sys.argv[1])
