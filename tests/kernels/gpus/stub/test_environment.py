"""The variables of a child: those of the target where they enter keys, this machine's elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError
from attn_doctor.kernels.gpus.stub import environment

from .conftest import GPU

LIBRARY = Path("/cache/digest/libcuda.so.1")
HERE = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/home/me",
    "CUDA_VISIBLE_DEVICES": "",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "CC": "sh",
    "CXX": "clang++",
    "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
    "TORCHINDUCTOR_CACHE_DIR": "/kernels",
    "LD_LIBRARY_PATH": "/opt/lib",
    "LD_PRELOAD": "/opt/libjemalloc.so",
}


@pytest.mark.posix
def test_the_library_comes_first() -> None:
    made = environment(LIBRARY, GPU, 1, HERE)
    assert made["ATTN_DOCTOR_STUB_GPU"] == str(LIBRARY)
    assert made["LD_PRELOAD"] == (
        "/cache/digest/libcuda.so.1:/cache/digest/libnvidia-ml.so.1:/opt/libjemalloc.so"
    )
    assert made["LD_LIBRARY_PATH"] == "/cache/digest:/opt/lib"
    assert made["TRITON_LIBCUDA_PATH"] == "/cache/digest"
    assert (made["HOME"], made["TORCHINDUCTOR_CACHE_DIR"]) == ("/home/me", "/kernels")


@pytest.mark.posix
def test_without_others_to_load() -> None:
    made = environment(LIBRARY, GPU, 1, {})
    assert made["LD_LIBRARY_PATH"] == "/cache/digest"
    assert made["LD_PRELOAD"].count(":") == 1


def test_gpus_of_this_machine_are_not_chosen_among() -> None:
    made = environment(LIBRARY, GPU, 1, HERE)
    assert not {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"} & made.keys()


@pytest.mark.posix
def test_a_described_machine_decides_what_enters_keys() -> None:
    there = replace(
        GPU,
        environment={"CXX": "/nowhere/bin/g++", "CC": "/nowhere/bin/gcc", "TRITON_DEBUG": "1"},
        software={"torch": "2.11.0"},
    )
    made = environment(LIBRARY, there, 1, HERE)
    assert made["CXX"] == "/nowhere/bin/g++"
    assert made["TRITON_DEBUG"] == "1"
    assert "TORCHINDUCTOR_MAX_AUTOTUNE" not in made
    assert made["CC"] == "sh"  # it has to be a program that is here
    assert "CC" not in environment(LIBRARY, there, 1, HERE | {"CC": "/nowhere/bin/gcc"})


def test_of_a_tables_gpu_no_variables_are_known() -> None:
    made = environment(LIBRARY, GPU, 1, HERE)
    assert (made["CXX"], made["TORCHINDUCTOR_MAX_AUTOTUNE"]) == ("clang++", "1")


def test_the_descriptor_travels_whole() -> None:
    target = environment(LIBRARY, GPU, 8, HERE)["ATTN_DOCTOR_STUB_GPU_TARGET"]
    pairs = dict(one.split("=", 1) for one in target.split(";"))
    assert pairs["devices"] == "8"
    assert pairs["memory"] == str(GPU.total_memory)
    assert pairs["driver"] == "13010"
    assert (pairs["75"], pairs["76"], pairs["111"]) == ("9", "1", "1024")
    assert target.endswith(";name=NVIDIA Test GPU")


def test_an_incomplete_descriptor_is_refused() -> None:
    with pytest.raises(AttnDoctorError, match="no one has read L2_cache_size of it"):
        environment(LIBRARY, replace(GPU, L2_cache_size=None), 1, HERE)
