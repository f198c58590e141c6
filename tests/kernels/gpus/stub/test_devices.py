"""The stub GPU has the properties of the descriptor, as many times as asked, and no others."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor import processes, worker
from attn_doctor.kernels.gpus.stub import environment

from .conftest import GPU, Program

COUNT = """
n = c_int(-1)
code = cuda.cudaGetDeviceCount(byref(n))
out = [code, n.value]
"""


def test_attributes_are_those_of_the_descriptor(on_stub_gpu: Program) -> None:
    answer = on_stub_gpu(
        """
        out = {}
        for number in range(1, 160):
            one, two = c_int(-7), c_int(-7)
            codes = cuda.cudaDeviceGetAttribute(byref(one), number, 0), cuda.cuDeviceGetAttribute(
                byref(two), number, 0
            )
            assert codes[0] == codes[1] and one.value == two.value
            if codes[0] == 0:
                out[number] = one.value
        name = ctypes.create_string_buffer(256)
        assert cuda.cuDeviceGetName(name, 256, 0) == 0
        total = c_size_t()
        assert cuda.cuDeviceTotalMem_v2(byref(total), 0) == 0
        version = c_int()
        assert cuda.cuDriverGetVersion(byref(version)) == 0
        out = [out, name.value.decode(), total.value, version.value]
        """
    )
    attributes, name, total, version = answer
    assert (name, total, version) == (GPU.name, GPU.total_memory, GPU.driver_cuda)
    wanted = {"75": 9, "76": 1, "16": 77, "38": 11 << 20, "97": 200_000, "81": 210_000, "8": 49152}
    wanted |= {"13": 1_234_000, "36": 2_345_000, "37": 4096, "39": 2048, "82": 65536}
    assert attributes.items() >= (wanted | GPU.attributes).items()
    assert "87" not in attributes  # what is unknown is not invented


def test_what_the_descriptor_lacks_is_an_error_that_says_so(on_stub_gpu: Program) -> None:
    code, text, names = on_stub_gpu(
        """
        value = c_int()
        code = cuda.cudaDeviceGetAttribute(byref(value), 87, 0)
        out = [code, words(code), unknown()]
        """
    )
    assert (code, text) == (1, "the target's descriptor has no attribute 87")
    assert names == ["cudaDeviceGetAttribute"]


@pytest.mark.parametrize(
    ("visible", "devices"),
    [
        (None, 3),
        ("1", 1),
        ("2,0", 2),
        ("0,9,1", 1),
        ("", 0),
        ("-1", 0),
        ("1,1", 0),
        ("GPU-73747562", 1),
    ],
)
def test_cuda_visible_devices(on_stub_gpu: Program, visible: str | None, devices: int) -> None:
    variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert on_stub_gpu(COUNT, devices=3, **variables) == [0 if devices else 100, devices]


def test_without_a_target_there_is_no_device(on_stub_gpu: Program) -> None:
    assert on_stub_gpu(COUNT, ATTN_DOCTOR_STUB_GPU_TARGET="") == [100, 0]


def test_every_thread_has_a_device_of_its_own(on_stub_gpu: Program) -> None:
    out = on_stub_gpu(
        """
        def current():
            n = c_int(-1)
            cuda.cudaGetDevice(byref(n))
            return n.value
        assert cuda.cudaSetDevice(1) == 0
        seen = []
        other = threading.Thread(target=lambda: seen.append(current()))
        other.start(); other.join()
        bad = cuda.cudaSetDevice(2)
        out = [current(), seen, bad, words(bad), cuda.cudaGetLastError(), cuda.cudaGetLastError()]
        """,
        devices=2,
    )
    assert out == [1, [0], 101, "invalid device ordinal", 101, 0]


def test_memory_belongs_to_the_device_that_was_current(on_stub_gpu: Program) -> None:
    out = on_stub_gpu(
        """
        def device(address):
            n = c_int(-1)
            assert cuda.cuPointerGetAttribute(byref(n), 9, ctypes.c_uint64(address)) == 0
            return n.value
        first = malloc(10)
        cuda.cudaSetDevice(1)
        second = malloc(10)
        free, total = c_size_t(), c_size_t()
        cuda.cudaMemGetInfo(byref(free), byref(total))
        out = [device(first), device(second), total.value - free.value]
        """,
        devices=2,
    )
    assert out == [0, 1, 4096]


def test_a_context_is_there_once_the_device_was_used(on_stub_gpu: Program) -> None:
    out = on_stub_gpu(
        """
        def active(device):
            flags, found = c_int(), c_int(-1)
            assert cuda.cuDevicePrimaryCtxGetState(device, byref(flags), byref(found)) == 0
            return found.value
        out = [active(0), active(1)]
        malloc(1)
        out += [active(0), active(1)]
        """,
        devices=2,
    )
    assert out == [0, 0, 1, 0]


def test_nvml_counts_all_devices(on_stub_gpu: Program) -> None:
    out = on_stub_gpu(
        """
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        n, handle, name = ctypes.c_uint(), c_void_p(), ctypes.create_string_buffer(96)
        assert nvml.nvmlInit_v2() == 0
        assert nvml.nvmlDeviceGetCount_v2(byref(n)) == 0
        assert nvml.nvmlDeviceGetHandleByIndex_v2(2, byref(handle)) == 0
        assert nvml.nvmlDeviceGetUUID(handle, name, 96) == 0
        wrong = nvml.nvmlDeviceGetHandleByIndex_v2(3, byref(c_void_p()))
        out = [n.value, name.value.decode(), wrong]
        again = c_void_p()
        assert nvml.nvmlDeviceGetHandleByUUID(name, byref(again)) == 0
        assert again.value == handle.value
        fabric = (c_int * 9)(2 << 24 | 36, *([-1] * 8))
        assert nvml.nvmlDeviceGetGpuFabricInfoV(handle, fabric) == 0
        out += [list(fabric)[1:]]
        """,
        devices=3,
        CUDA_VISIBLE_DEVICES="1",
    )
    assert out == [3, "GPU-73747562-2047-5055-0000-000000000002", 2, [0] * 8]


def test_a_name_with_everything_that_may_be_in_one(on_stub_gpu: Program) -> None:
    name = "NVIDIA RTX 6000 (Ada) = 48GB, 300 W"
    out = on_stub_gpu(
        """
        name = ctypes.create_string_buffer(256)
        cuda.cuDeviceGetName(name, 256, 0)
        out = name.value.decode()
        """,
        gpu=replace(GPU, name=name),
    )
    assert out == name


def test_the_driver_is_asked_without_torch_and_without_a_context(
    library: Path, tmp_path: Path
) -> None:
    plain = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    env = environment(library, GPU, 2, plain)
    ended = processes.run(worker.command(sys.executable, "cuda_driver"), 60.0, env=env)
    assert ended.ok, ended.err
    answer = json.loads(ended.out)
    assert [one["name"] for one in answer] == [GPU.name] * 2
    assert answer[0] == answer[1]  # what differs from card to card is left out
    assert answer[0]["total_memory"] == GPU.total_memory
    assert answer[0]["driver_cuda"] == GPU.driver_cuda
    assert answer[0]["attributes"]["16"] == GPU.multi_processor_count
    # CUDA's numbers of a PCI bus and of a slot.
    assert not {"33", "34"} & answer[0]["attributes"].keys()
