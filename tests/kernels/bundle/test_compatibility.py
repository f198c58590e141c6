"""How much of an artifact serves a machine: by its GPU, its wheels and its variables."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from attn_doctor.facts import Driver, Facts, Gpu, Python, Torch, Triton
from attn_doctor.kernels.bundle.artifact import SCHEMA, Artifact
from attn_doctor.kernels.bundle.compatibility import Layer, compatibility
from attn_doctor.record.manifest import Build, BuildEnvironment, Entry
from attn_doctor.record.spec import KernelSpec

H200, H100 = "NVIDIA H200", "NVIDIA H100 80GB HBM3"
WAS = BuildEnvironment(
    torch="2.11.0+cu130", torch_cuda="13.0", torch_key="k", triton="3.6.0", triton_key="t",
    ptxas="12.8.93", python="3.12.1", device=H200, sm=90, settings={"inductor": "1"},
)  # fmt: skip
SPEC = KernelSpec(heads=2, head_dim=64, lengths=(256,))


def packed(places: dict[str, BuildEnvironment]) -> Artifact:
    build = Build(at="2026-11-21T10:00:00Z", seconds=3.0, verified=True)
    entries = {
        f"{SPEC.id}@{place}": Entry(spec=SPEC, device_slot=place, state="unverified", build=build)
        for place in places
    }
    return Artifact(
        schema=SCHEMA, attn_doctor="0", made="", environments=places, entries=entries, files={}
    )


def facts(gpus: tuple[str, ...] = (H200,), sm: int = 90, **torch: Any) -> Facts:
    values = {"installed": True, "version": "2.11.0+cu130", "cuda": "13.0", "build": "cuda"}
    return Facts(
        python=Python(version="3.12.3", path="/venv/bin/python"),
        torch=Torch(**{**values, **torch}),
        triton=Triton(installed=True, version="3.6.0"),
        driver=Driver(state="ok" if gpus else "no-gpu", version="580.159.04"),
        gpus=tuple(Gpu(index=n, name=name, sm=sm, visible=True) for n, name in enumerate(gpus)),
    )


ONE = f"cuda:0 {H200}"


def test_a_machine_of_the_same_kind_takes_everything() -> None:
    (one,) = compatibility(packed({ONE: WAS}), facts(), {}).values()
    assert (one.layer, one.device_slot_here, one.why) == (Layer.EXACT, ONE, "")


@pytest.mark.parametrize(
    "environ",
    [
        {"CC": "/opt/gcc/bin/gcc"},
        {"CXX": "g++"},
        {"OMP_NUM_THREADS": "8", "TRITON_STORE_BINARY_ONLY": "1", "TRITON_HOME": "/x"},
        {"TORCH_CUDA_ARCH_LIST": "9.0a", "CUDA_VISIBLE_DEVICES": "0"},
    ],
)
def test_what_is_in_no_key_of_a_kernel_refuses_nothing(environ: dict[str, str]) -> None:
    (one,) = compatibility(packed({ONE: WAS}), facts(), environ).values()
    assert one.layer is Layer.EXACT


@pytest.mark.parametrize(
    ("here", "environ", "why"),
    [
        (facts((H100,)), {}, f"GPU: {H200} there, {H100} here"),
        (facts(), {"CXX": "/opt/gcc/bin/g++"}, "CXX: not set there, /opt/gcc/bin/g++ here"),
        (
            facts(),
            {"TORCHINDUCTOR_EMULATE_PRECISION_CASTS": "1"},
            "TORCHINDUCTOR_EMULATE_PRECISION_CASTS: not set there, 1 here",
        ),
    ],
)
def test_graphs_miss_and_kernels_serve(here: Facts, environ: dict[str, str], why: str) -> None:
    (one,) = compatibility(packed({ONE: WAS}), here, environ).values()
    assert (one.layer, one.why) == (Layer.KERNELS, why)
    assert here.gpus is not None
    assert one.device_slot_here == f"cuda:0 {here.gpus[0].name}"


@pytest.mark.parametrize(
    ("here", "was", "why"),
    [
        (facts(version="2.12.0+cu130"), WAS, "torch: 2.11.0+cu130 there, 2.12.0+cu130 here"),
        (facts(sm=80), WAS, "compute capability: 90 there, 80 here"),
        (facts(), replace(WAS, triton="3.7.0"), "Triton: 3.7.0 there, 3.6.0 here"),
        (facts(), replace(WAS, python="3.11.9"), "Python: 3.11.9 there, 3.12.3 here"),
    ],
)
def test_other_wheels_another_abi_another_capability(
    here: Facts, was: BuildEnvironment, why: str
) -> None:
    (one,) = compatibility(packed({ONE: was}), here, {}).values()
    assert (one.layer, one.why) == (Layer.NOTHING, why)


def test_kernels_whose_own_key_moved_as_well_are_of_no_use() -> None:
    environ = {"CXX": "/x/g++", "DISABLE_PTXAS_OPT": "1"}
    (one,) = compatibility(packed({ONE: WAS}), facts(), environ).values()
    assert one.layer is Layer.NOTHING
    assert one.why.endswith("DISABLE_PTXAS_OPT: not set there, 1 here")


def test_without_the_gpu_it_waits() -> None:
    (one,) = compatibility(packed({ONE: WAS}), facts(()), {}).values()
    assert (one.layer, one.why) == (Layer.ABSENT, "this machine shows no GPU that CUDA could use")
    (one,) = compatibility(packed({f"cuda:1 {H200}": WAS}), facts(), {}).values()
    assert one.layer is Layer.ABSENT
    assert one.why == "this machine shows 1 GPU, and cuda:1 is not among them"
    # Wheels are still distinguished.
    (one,) = compatibility(packed({ONE: WAS}), facts((), version="2.9.0"), {}).values()
    assert one.layer is Layer.NOTHING


def test_several_gpus_in_one_file() -> None:
    both = {ONE: WAS, f"cuda:0 {H100}": replace(WAS, device=H100), f"cuda:1 {H200}": WAS}
    found = compatibility(packed(both), facts((H100,)), {})
    assert [one.layer for one in found.values()] == [
        Layer.ELSEWHERE,
        Layer.EXACT,
        Layer.ABSENT,
    ]
    assert found[ONE].why.startswith("it is for NVIDIA H200, and kernels for the GPU here")
    neither = compatibility(packed(both), facts(("NVIDIA H20", "NVIDIA H20")), {})
    assert [one.layer for one in neither.values()] == [Layer.KERNELS] * 3


def test_kernels_for_the_processor_have_one_layer() -> None:
    was = BuildEnvironment(torch="2.11.0+cu130", python="3.12.1", device="cpu")
    assert compatibility(packed({"cpu": was}), facts(), {})["cpu"].layer is Layer.EXACT
    moved = compatibility(packed({"cpu": was}), facts(), {"CXX": "/x/g++"})["cpu"]
    assert (moved.layer, moved.why) == (Layer.NOTHING, "CXX: not set there, /x/g++ here")
