"""Asks NVML about the driver and its GPUs, in a process of its own.

A hanging driver hangs every process that asks it, so `LocalHost` runs this file as a child with a
time limit. Every answer is printed at once as one JSON line: answers before a hang or a crash are
kept, and the last line shows where NVML stopped. `fold` combines the lines in the parent.

The child needs nothing but the standard library. Functions, structures and numbers are those of
nvml.h (https://docs.nvidia.com/deploy/nvml-api/). nvidia-ml-py has all of them, but importing it
takes longer than all questions; `tests/probes/nvidia/test_nvml_binding.py` compares both.
NVML knows the hardware and the driver; it does not know what CUDA_VISIBLE_DEVICES hides.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # the child starts in half the time without json and typing
    from collections.abc import Callable
    from typing import Any

#: Numbers of errors, `NVML_ERROR_…` in nvml.h.
_UNINITIALIZED, _NOT_FOUND = 1, 6
_INSUFFICIENT_SIZE, _LIBRARY_NOT_FOUND, _FUNCTION_NOT_FOUND = 7, 12, 13
#: Bytes of the largest texts, `NVML_DEVICE_NAME_V2_BUFFER_SIZE` and `…_UUID_V2_BUFFER_SIZE`.
_TEXT = 96
#: Size of `nvmlPciInfo_t`, and where its `busId` begins.
_PCI_INFO, _BUS_ID = 68, 36
#: Numbers of 32 bits in `nvmlProcessInfo_t`; the first is the process.
_PROCESS_INFO = 6
#: What NVML cannot say itself, for it was not loaded.
_UNLOADED = {_UNINITIALIZED: "Uninitialized", _LIBRARY_NOT_FOUND: "NVML Shared Library Not Found"}

#: More than any machine has; a line with a larger number is not ours.
_MOST_GPUS = 1024


def fold(text: str) -> dict[str, Any]:
    """Combine the child's lines to one object: answers, `gpus`, `errors`, `last`, `complete`.

    `last` is the last question that was answered, such as `count` or `gpus.2.name`; it is empty if
    the child did not reach NVML. `complete` is true if all questions were answered.
    """
    from attn_doctor.json_files import JsonError, decode

    answer: dict[str, Any] = {"gpus": [], "errors": {}, "last": "", "complete": False}
    for line in text.splitlines():
        try:
            one = decode(line)
            key, number = str(one["key"]), one.get("gpu")
            if number is not None and not 0 <= number < _MOST_GPUS:
                continue
        except (JsonError, TypeError, KeyError, AttributeError):
            continue  # a library printed something of its own, or the last line was cut
        if key in ("errors", "gpus", "index"):
            continue  # names of parts of the answer itself
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


def _ask(key: str, question: Callable[[], Any], gpu: int | None = None) -> Any:
    """Print the answer to one question, or its error; return the answer, or None."""
    line: dict[str, Any] = {"key": key} if gpu is None else {"key": key, "gpu": gpu}
    try:
        line["value"] = question()
    except NvmlError as error:
        line["error"] = {"code": error.code, "text": error.text}
    except Exception as error:
        line["error"] = {"code": None, "text": str(error)}
    _say(line)
    return line.get("value")


def _say(line: dict[str, Any]) -> None:
    print(_json(line), flush=True)  # noqa: T201 — standard output is how a child answers


def _json(value: Any) -> str:
    """Write JSON of None, texts, numbers, lists, and dicts whose keys are texts."""
    from _json import encode_basestring_ascii

    if isinstance(value, dict):
        return "{" + ", ".join(f"{_json(key)}: {_json(of)}" for key, of in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return encode_basestring_ascii(value) if isinstance(value, str) else str(int(value))


class NvmlError(Exception):
    """An error of NVML: its number, and the library's own text, which nvidia-smi prints too."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        self.text = text


class Nvml:
    """NVML's functions, called by their names. Every call raises `NvmlError` if NVML refuses it.

    `library` is found by the loader on Linux, and in the folders of NVIDIA's drivers on Windows.
    """

    def __init__(self, library: str = "") -> None:
        import ctypes

        self._c = ctypes
        self._library: Any = None
        for place in (library,) if library else _places():
            try:
                self._library = ctypes.CDLL(place)
            except OSError:
                continue
            break
        if self._library is not None:
            self._library.nvmlErrorString.restype = ctypes.c_char_p

    def init(self) -> bool:
        """Initialize NVML."""
        if self._library is None:
            raise self._error(_LIBRARY_NOT_FOUND)
        self._call("nvmlInitWithFlags", 0)
        return True

    def number(self, name: str, *given: Any) -> int:
        """Answer of a function that gives one number."""
        return self.numbers(name, *given, count=1)[0]

    def numbers(self, name: str, *given: Any, count: int = 2) -> list[int]:
        """Answers of a function that gives several numbers."""
        found = [self._c.c_uint() for _ in range(count)]
        self._call(name, *given, *map(self._c.byref, found))
        return [int(one.value) for one in found]

    def text(self, name: str, *given: Any) -> str:
        """Answer of a function that gives a text."""
        found = self._c.create_string_buffer(_TEXT)
        self._call(name, *given, found, _TEXT)
        return found.value.decode()

    def handle(self, name: str, *given: Any) -> Any:
        """Answer of a function that gives a GPU or an instance of one."""
        found = self._c.c_void_p()
        self._call(name, *given, self._c.byref(found))
        return found

    def pci_bus_id(self, device: Any) -> str:
        """Address of a GPU on its bus."""
        found = self._c.create_string_buffer(_PCI_INFO)
        self._call("nvmlDeviceGetPciInfo_v3", device, found)
        return found.raw[_BUS_ID:].partition(b"\0")[0].decode()

    def memory(self, device: Any) -> dict[str, int]:
        """Bytes of a GPU's memory, from `nvmlMemory_t`: total, free and used."""
        found = (self._c.c_ulonglong * 3)()
        self._call("nvmlDeviceGetMemoryInfo", device, found)
        return {"total": found[0], "free": found[1]}

    def pids(self, name: str, device: Any) -> set[int]:
        """Processes on a GPU."""
        count = self._c.c_uint()
        try:
            self._call(name, device, self._c.byref(count), None)
        except NvmlError as error:
            if error.code != _INSUFFICIENT_SIZE:
                raise
            # More may start meanwhile.
            count.value = count.value * 2 + 5
            found = (self._c.c_uint * (count.value * _PROCESS_INFO))()
            self._call(name, device, self._c.byref(count), found)
            return set(found[: count.value * _PROCESS_INFO : _PROCESS_INFO])
        return set()

    def _call(self, name: str, *given: Any) -> None:
        if self._library is None:
            raise self._error(_UNINITIALIZED)
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise self._error(_FUNCTION_NOT_FOUND) from None
        code = function(*given)
        if code:
            raise self._error(code)

    def _error(self, code: int) -> NvmlError:
        if self._library is None:
            return NvmlError(code, _UNLOADED[code])
        return NvmlError(code, self._library.nvmlErrorString(code).decode(errors="replace"))


def _places() -> tuple[str, ...]:
    """Names and paths of the library, the likeliest first."""
    if sys.platform != "win32":
        return ("libnvidia-ml.so.1",)
    system = os.environ.get("WINDIR", "C:/Windows")
    programs = os.environ.get("ProgramFiles", "C:/Program Files")  # noqa: SIM112 — Windows' own name
    return (f"{system}/System32/nvml.dll", f"{programs}/NVIDIA Corporation/NVSMI/nvml.dll")


def _mig_uuids(nvml: Nvml, device: Any) -> list[str]:
    """Return the ids of the MIG instances on a GPU. Their indices may have gaps."""
    found = []
    for index in range(nvml.number("nvmlDeviceGetMaxMigDeviceCount", device)):
        try:
            instance = nvml.handle("nvmlDeviceGetMigDeviceHandleByIndex", device, index)
        except NvmlError as error:
            if error.code == _NOT_FOUND:
                continue
            raise
        found.append(nvml.text("nvmlDeviceGetUUID", instance))
    return found


def _gpu(nvml: Nvml, number: int) -> None:
    """Print all answers about one GPU. Questions that rarely hang come first."""
    device: Any = None

    def handle() -> bool:
        # This wakes the GPU, which takes 1 to 3 seconds without persistence mode:
        # https://docs.nvidia.com/deploy/driver-persistence/overview.html
        nonlocal device
        device = nvml.handle("nvmlDeviceGetHandleByIndex_v2", number)
        return True

    if not _ask("handle", handle, number):
        return
    questions: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("name", lambda: nvml.text("nvmlDeviceGetName", device)),
        ("compute_capability", lambda: nvml.numbers("nvmlDeviceGetCudaComputeCapability", device)),
        ("uuid", lambda: nvml.text("nvmlDeviceGetUUID", device)),
        ("pci_bus_id", lambda: nvml.pci_bus_id(device)),
        ("memory", lambda: nvml.memory(device)),
        ("compute_mode", lambda: nvml.number("nvmlDeviceGetComputeMode", device)),
        ("persistence", lambda: nvml.number("nvmlDeviceGetPersistenceMode", device)),
    )
    for key, question in questions:
        _ask(key, question, number)
    if _ask("mig_mode", lambda: nvml.numbers("nvmlDeviceGetMigMode", device)[0], number):
        _ask("mig_uuids", lambda: _mig_uuids(nvml, device), number)
    computing = "nvmlDeviceGetComputeRunningProcesses_v3"
    _ask("processes", lambda: len(nvml.pids(computing, device)), number)


def _cuda(nvml: Nvml) -> int:
    """Return the CUDA version of the driver from libcuda, 13000 for 13.0."""
    try:
        return nvml.number("nvmlSystemGetCudaDriverVersion_v2")
    except NvmlError:
        # There is no libcuda, or this NVML is older: this is the driver's own version.
        return nvml.number("nvmlSystemGetCudaDriverVersion")


def _main() -> None:
    try:
        nvml = Nvml()
    except Exception as error:  # no ctypes in this Python, a library of another kind, …
        _say({"key": "import", "error": {"code": None, "text": str(error)}})
        return
    _say({"key": "start", "value": True})
    ready = _ask("init", nvml.init)
    # These two answer even if `init` failed, as long as the library could be loaded.
    _ask("library_version", lambda: nvml.text("nvmlSystemGetNVMLVersion"))
    _ask("cuda", lambda: _cuda(nvml))
    if ready:
        _ask("driver_version", lambda: nvml.text("nvmlSystemGetDriverVersion"))
        for number in range(_ask("count", lambda: nvml.number("nvmlDeviceGetCount_v2")) or 0):
            _gpu(nvml, number)
    _say({"key": "done"})


if __name__ == "__main__":
    _main()
    # Python's own end, with the driver's libraries, takes 3 ms beside an H200.
    os._exit(0)
