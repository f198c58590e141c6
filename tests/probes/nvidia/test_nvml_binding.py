"""Calls of NVML beside those of nvidia-ml-py: the same structures, numbers and answers."""

from __future__ import annotations

import ctypes
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_doctor.host import nvml_process
from attn_doctor.host.local import LocalHost


def test_structures_and_numbers_are_those_of_nvidia() -> None:
    assert ctypes.sizeof(pynvml.nvmlPciInfo_t) == nvml_process._PCI_INFO
    assert pynvml.nvmlPciInfo_t.busId.offset == nvml_process._BUS_ID
    process = pynvml.c_nvmlProcessInfo_v3_t
    assert ctypes.sizeof(process) == 4 * nvml_process._PROCESS_INFO
    assert (process.pid.offset, process.pid.size) == (0, 4)
    memory = pynvml.c_nvmlMemory_t
    assert ctypes.sizeof(memory) == 3 * 8
    assert (memory.total.offset, memory.free.offset) == (0, 8)
    assert nvml_process._TEXT == pynvml.NVML_DEVICE_NAME_V2_BUFFER_SIZE
    assert nvml_process._TEXT == pynvml.NVML_DEVICE_UUID_V2_BUFFER_SIZE
    for name in ("UNINITIALIZED", "NOT_FOUND", "INSUFFICIENT_SIZE"):
        assert getattr(nvml_process, f"_{name}") == getattr(pynvml, f"NVML_ERROR_{name}")
    for name in ("LIBRARY_NOT_FOUND", "FUNCTION_NOT_FOUND"):
        assert getattr(nvml_process, f"_{name}") == getattr(pynvml, f"NVML_ERROR_{name}")


def test_windows_has_the_places_of_nvidia() -> None:
    source = inspect.getsource(pynvml._LoadNvmlLibrary)
    for part in ("System32/nvml.dll", "NVIDIA Corporation/NVSMI/nvml.dll", "libnvidia-ml.so.1"):
        assert part in source
        assert part in inspect.getsource(nvml_process._places)


def test_both_answer_the_same(nvml_host: Callable[..., LocalHost]) -> None:
    pids = ",".join(map(str, range(100, 140)))
    nvml_host(
        {
            "gpus": 4,
            "gpu.0.compute_pids": pids,
            "gpu.0.graphics_pids": "7",
            "gpu.1.name": "NVIDIA GB10",
            "gpu.1.mig": 1,
            "fail.1.memory": 3,
            "fail.2.name": 15,
            "fail.2.compute_pids": 4,
            "gpu.3.total": 1 << 40,
        }
    )
    program = Path(__file__).with_name("both_bindings.py")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    ours, theirs = json.loads(done.stdout)
    assert ours == theirs
    assert len(ours) == 4 + 4 * 11
    assert ours.count("error 3") == 4  # memory of GPU 1, MIG of the three others
    assert (ours.count("error 15"), ours.count("error 4")) == (1, 1)


def test_a_library_that_is_not_there(tmp_path: Path) -> None:
    gone = nvml_process.Nvml(str(tmp_path / "gone"))
    with pytest.raises(nvml_process.NvmlError) as refused:
        gone.init()
    assert (refused.value.code, refused.value.text) == (12, "NVML Shared Library Not Found")
    with pytest.raises(nvml_process.NvmlError) as refused:
        gone.number("nvmlDeviceGetCount_v2")
    assert (refused.value.code, refused.value.text) == (1, "Uninitialized")


def test_a_library_without_a_function_says_so(nvml_library: Path) -> None:
    """As that of an older driver."""
    nvml = nvml_process.Nvml(str(nvml_library / "libnvidia-ml.so.1"))
    with pytest.raises(nvml_process.NvmlError) as refused:
        nvml.number("nvmlOfTheFuture")
    assert (refused.value.code, refused.value.text) == (13, "Function Not Found")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(VALUES)
def test_lines_are_json(value: object) -> None:
    assert json.loads(nvml_process._json(value)) == value
