"""The build environment by the facts, compared with what torch reported when it built."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from attn_doctor.facts import Driver, Facts, Gpu, Program, Python, Torch, Triton
from attn_doctor.record.drift import changed_components
from attn_doctor.record.environment import environment_from_facts, slot_of
from attn_doctor.record.manifest import BuildEnvironment

H200 = Gpu(name="NVIDIA H200", sm=90, visible=True)
FACTS = Facts(
    python=Python(version="3.12.3"),
    torch=Torch(installed=True, version="2.11.0+cu130", build="cuda", cuda="13.0"),
    triton=Triton(installed=True, version="3.6.0", ptxas_version="12.8"),
    driver=Driver(version="580.159.04"),
    gpus=(H200, H200),
    cc=Program(path="/usr/bin/gcc", version="12.2.0", family="gcc"),
    cxx=Program(path="/usr/bin/g++", version="12.2.0", family="gcc"),
)
#: As `child/machine.py` of the same machine tells it.
RECORDED = BuildEnvironment(
    torch="2.11.0+cu130",
    torch_cuda="13.0",
    torch_key="d34d1007",
    triton="3.6.0",
    triton_key="ab12",
    ptxas="12.8.93",
    python="3.12.3",
    device="NVIDIA H200",
    sm=90,
    driver="580.159.04",
    cc="gcc (Debian 12.2.0-14+deb12u1) 12.2.0",
    cxx="g++ (Debian 12.2.0-14+deb12u1) 12.2.0",
    environment={"OMP_NUM_THREADS": "4", "LLVM_IR_ENABLE_DUMP": "1"},
    settings={"inductor": "6fa25138"},
)
ENVIRON = {"OMP_NUM_THREADS": "4", "LLVM_IR_ENABLE_DUMP": "1", "HOME": "/root"}


def test_the_same_machine_has_not_moved() -> None:
    assert (
        changed_components(RECORDED, environment_from_facts(FACTS, "cuda:0", ENVIRON, RECORDED))
        == ()
    )


@pytest.mark.parametrize(
    ("facts", "component"),
    [
        (replace(FACTS, torch=replace(FACTS.torch, version="2.11.1+cu130")), "torch"),
        (replace(FACTS, torch=replace(FACTS.torch, cuda="12.8")), "torch_cuda"),
        (replace(FACTS, triton=replace(FACTS.triton, version="3.6.1")), "triton"),
        (replace(FACTS, triton=Triton(installed=False)), "triton"),
        (replace(FACTS, python=Python(version="3.13.0")), "python"),
        (replace(FACTS, driver=Driver(version="570.1")), "driver"),
        (replace(FACTS, gpus=(replace(H200, name="NVIDIA H100"),)), "device"),
        (replace(FACTS, cc=replace(FACTS.cc, version="13.1.0")), "cc"),
    ],
)
def test_what_moves_is_seen(facts: Facts, component: str) -> None:
    found = changed_components(RECORDED, environment_from_facts(facts, "cuda:0", ENVIRON, RECORDED))
    assert component in {one.component for one in found}


def test_variables_are_seen_both_ways() -> None:
    now = environment_from_facts(FACTS, "cuda:0", {"TORCHINDUCTOR_MAX_AUTOTUNE": "1"}, RECORDED)
    names = {one.component for one in changed_components(RECORDED, now)}
    assert {"OMP_NUM_THREADS", "TORCHINDUCTOR_MAX_AUTOTUNE"} <= names


def test_where_caches_lie_is_no_matter() -> None:
    environ = {**ENVIRON, "TORCHINDUCTOR_CACHE_DIR": "/x", "TRITON_CACHE_DIR": "/y"}
    assert (
        changed_components(RECORDED, environment_from_facts(FACTS, "cuda:0", environ, RECORDED))
        == ()
    )


def test_unknown_is_not_compared() -> None:
    assert (
        changed_components(RECORDED, environment_from_facts(Facts(), "cuda:0", ENVIRON, RECORDED))
        == ()
    )


def test_a_version_that_only_begins_alike_is_another() -> None:
    now = environment_from_facts(
        replace(FACTS, cc=replace(FACTS.cc, version="2.2.0")), "cuda:0", ENVIRON, RECORDED
    )
    assert now.cc == "gcc 2.2.0"


def test_places() -> None:
    assert slot_of(FACTS, "cpu") == "cpu"
    assert slot_of(FACTS, "cuda:1") == "cuda:1 NVIDIA H200"
    assert slot_of(FACTS, "cuda:2") is None
    assert slot_of(Facts(), "cuda:0") is None
    # Which of two kinds is first is CUDA's affair.
    mixed = replace(FACTS, gpus=(H200, replace(H200, name="NVIDIA L4", sm=89)))
    assert slot_of(mixed, "cuda:0") is None
    hidden = replace(FACTS, gpus=(replace(H200, name="NVIDIA L4", visible=False), H200))
    assert slot_of(hidden, "cuda:0") == "cuda:0 NVIDIA H200"
    parted = replace(FACTS, gpus=(replace(H200, mig="enabled"),))
    assert slot_of(parted, "cuda:0") is None
