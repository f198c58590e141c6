"""`--pretend`: facts that it replaces, removes and assumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attn_doctor import snapshot
from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.matrix import matrix
from attn_doctor.errors import AttnDoctorError
from attn_doctor.examination import derive
from attn_doctor.facts import PACKAGES, Facts
from attn_doctor.findings import Verdict
from attn_doctor.pretend import KEYS, pretend
from attn_doctor.probes.installed.packages import FIELDS
from attn_doctor.rulebook import library
from attn_doctor.rulebook.evaluate import evaluate_rules
from tests.command import run

MACHINES = Path(__file__).parent / "machines"
TABLES: Any = library.tables()
RULES = library.load()


def facts(*words: str, machine: str = "debian-torch-2.11-cu130-no-gpu") -> Facts:
    found = snapshot.load(str(MACHINES / machine / "facts.json"))
    return derive(pretend(found, words, TABLES))


def problems(found: Facts) -> set[str]:
    return {one.rule for one in evaluate_rules(found, RULES) if one.verdict is Verdict.PROBLEM}


def test_without_words_the_facts_stay_the_same() -> None:
    found = snapshot.load(str(MACHINES / "debian-torch-2.13-cpu" / "facts.json"))
    assert pretend(found, (), TABLES) is found
    assert found.simulated == ()


def test_a_simulated_gpu_assumes_a_driver_and_names_it() -> None:
    found = facts("gpu=rtx4090")
    assert found.gpus is not None
    assert (found.gpus[0].name, found.gpus[0].sm) == ("NVIDIA GeForce RTX 4090", 89)
    assert found.gpus[0].memory_total_mib == 24 * 1024
    assert found.driver.best_sm == 89
    assert found.gpus[0].in_torch_archs is True
    assert (found.driver.state, found.driver.vendor) == ("ok", "nvidia")
    assert found.driver.cuda_max is not None
    assert found.simulated == (
        "NVIDIA GeForce RTX 4090",
        f"driver {TABLES['drivers']['newest']} (assumed: the newest known)",
    )
    assert not {one for one in problems(found) if one.startswith(("driver/", "torch/"))}


def test_a_simulated_gpu_keeps_the_real_driver() -> None:
    found = facts("gpu=a100", machine="h200-torch-2.11-cu130")
    assert found.driver.version == "580.159.04"
    assert found.simulated == ("NVIDIA A100-SXM4-80GB",)


@pytest.mark.parametrize(
    ("name", "product", "sm", "count"),
    [
        ("8xh100", "NVIDIA H100 80GB HBM3", 90, 8),
        ("RTX 5090", "NVIDIA GeForce RTX 5090", 120, 1),
        ("nvidia geforce rtx-4090", "NVIDIA GeForce RTX 4090", 89, 1),
        ("2 x b200", "NVIDIA B200", 100, 2),
        ("geforcegtx1060", "NVIDIA GeForce GTX 1060 3GB", 61, 1),
        ("gtx 1060 3gb", "NVIDIA GeForce GTX 1060 3GB", 61, 1),
    ],
)
def test_gpus_by_name(name: str, product: str, sm: int, count: int) -> None:
    if name == "geforcegtx1060":
        with pytest.raises(AttnDoctorError, match="gtx1060"):
            facts(f"gpu={name}")
        return
    found = facts(f"gpu={name}").gpus
    assert found is not None
    assert [(one.name, one.sm) for one in found] == [(product, sm)] * count
    assert [one.index for one in found] == list(range(count))


def test_a_gpu_outside_the_memory_table_has_no_memory() -> None:
    found = facts("gpu=gtx 1060 3gb").gpus
    assert found is not None
    assert found[0].memory_total_mib is None


def test_the_tables_gpus() -> None:
    names = [name for row in TABLES["gpus"]["gpu"] for name in (row["name"], *row.get("also", ()))]
    assert len(names) == len(set(names))
    for row in TABLES["gpus"]["gpu"]:
        nvidia = ("https://www.nvidia.com/", "https://developer.nvidia.com/")
        assert row["source"].startswith((*nvidia, "https://github.com/openxla/xla/"))
        found = facts(f"gpu={row['name']}").gpus
        assert found is not None
        assert (found[0].name, found[0].sm) == (row["product"], row["sm"])


def test_no_gpu() -> None:
    found = facts("gpu=none", machine="h200-torch-2.11-cu130")
    assert (found.gpus, found.driver.state, found.driver.best_sm) == ((), "no-gpu", 0)


def test_capability_and_memory() -> None:
    found = facts("sm=8.6,memory=10")
    assert found.gpus is not None
    gpu = found.gpus[0]
    assert (gpu.sm, gpu.compute_capability, gpu.memory_total_mib) == (86, "8.6", 10240)
    changed = facts("gpu=rtx4090,sm=120,memory=16GiB").gpus
    assert changed is not None
    assert (changed[0].sm, changed[0].memory_free_mib) == (120, 16384)


def test_torch_brings_its_triton_and_what_was_read_of_the_old_goes() -> None:
    found = facts("gpu=rtx4090,torch=2.9.1+cu128")
    torch = found.torch
    assert (torch.build, torch.cuda, torch.minor, torch.local) == ("cuda", "12.8", "2.9", "cu128")
    assert torch.archs == (70, 75, 80, 86, 90, 100, 120)
    assert torch.cubins is None
    assert (torch.path, found.cuda_wheels) == (None, None)
    assert found.gap("torch.path") == "simulated: not given"
    assert (found.triton.version, found.triton.expected) == ("3.5.1", "==3.5.*")
    assert "Triton 3.5.1 (comes with it)" in found.simulated
    assert "triton/torch-mismatch" not in problems(found)


@pytest.mark.parametrize(
    ("words", "build", "cuda"),
    [
        ("torch=2.11.0", "cuda", "13.0"),
        ("torch=2.11.0+cpu", "cpu", None),
        ("torch=2.11.0+rocm7.2", "rocm", None),
        ("torch=2.11.0+xpu", "xpu", None),
        ("os=windows,torch=2.11.0", "cpu", None),
        ("os=macos,torch=2.11.0", "mps", None),
        ("torch=2.6.0+cu124", "cuda", "12.4"),
        ("torch=2.11.0+cu130", "cuda", "13.0"),
    ],
)
def test_builds_of_torch(words: str, build: str, cuda: str | None) -> None:
    found = facts(words)
    assert (found.torch.build, found.torch.cuda) == (build, cuda)


def test_a_torch_that_no_table_knows_is_unknown_not_guessed() -> None:
    found = facts("torch=2.99.0")
    assert (found.torch.build, found.torch.cuda) == ("cuda", None)
    assert "write the build too" in found.gap("torch.cuda")


def test_a_driver_too_old_for_torch_is_found() -> None:
    found = facts("gpu=h100,driver=570.86")
    assert found.driver.version == "570.86"
    assert found.driver.cuda_max == "12.8"
    assert "driver/too-old-for-torch" in problems(found)


def test_packages() -> None:
    found = facts("gpu=rtx4090,flash-attn=2.8.3,xformers=absent,diffusers=0.36.0")
    assert found.flash_attn.version == "2.8.3"
    assert found.flash_attn.built_torch == found.torch.version
    assert (found.flash_attn.loads, found.flash_attn.gpu_code) == (True, "yes")
    assert found.xformers.installed is False
    assert found.diffusers.extensions == ()
    assert not {one for one in problems(found) if one.startswith("flash/")}
    assert "flash-attn 2.8.3 (assumed: built for this torch and GPU)" in found.simulated
    assert "diffusers 0.36.0" in found.simulated


def test_a_simulated_package_replaces_the_real_modules() -> None:
    """Otherwise the old file would be evaluated as the new version."""
    machine = "debian-torch-2.13-cpu-xformers-sage1"
    before = facts(machine=machine)
    found = facts("xformers=0.0.34", machine=machine)
    assert before.xformers.path != found.xformers.path
    own = [one for one in found.extensions or () if one.package == "xformers"]
    assert [(one.name, one.path) for one in own] == [("_C", "(simulated)")]


def test_variables_and_compilers() -> None:
    found = facts("env.DIFFUSERS_ATTN_CHECKS=1,cc=absent")
    assert found.env["DIFFUSERS_ATTN_CHECKS"] == "1"
    assert (found.cc.path, found.cxx.path) == ("", "")
    assert facts("env.CUDA_HOME=").env["CUDA_HOME"] == ""


def test_another_python() -> None:
    assert facts("python=3.15.0").python.minor == "3.15"


def test_words_may_be_repeated_and_apart() -> None:
    assert facts("gpu=h100", "torch=2.10.0", "gpu=a100").simulated[0] == "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("gpu", "write key=value"),
        ("gpu=", "write key=value"),
        ("gpu=rtx409", "did you mean rtx4090"),
        ("gpu=voodoo", "name its capability"),
        ("flashattn=2.8", "did you mean flash-attn?"),
        ("zzz=1", "not known"),
        ("torch=new", "new is not a version"),
        ("driver=fresh", "is not a version"),
        ("flash-attn=x", "x is not a version"),
        ("sm=fast", "write the capability"),
        ("sm=9", "write the capability"),
        ("os=beos", "one of linux, windows, macos"),
        ("memory=24", "name a GPU too"),
        ("gpu=h100,memory=lots", "write GiB"),
        ("env.SECRET_KEY=1", "not a variable that attn-doctor reads"),
    ],
)
def test_unknown_words_are_refused(words: str, said: str) -> None:
    with pytest.raises(AttnDoctorError) as error:
        facts(words)
    assert said in str(error.value)


def test_every_known_package_can_be_simulated() -> None:
    assert set(PACKAGES) == set(FIELDS)
    for name in PACKAGES:
        assert getattr(facts(f"{name.replace('_', '-')}=9.9"), name).version == "9.9"
    assert not set(KEYS) & set(PACKAGES)


def test_a_snapshot_marks_a_simulated_machine(tmp_path: Path) -> None:
    from attn_doctor.facts import to_json

    path = tmp_path / "facts.json"
    path.write_bytes(to_json(facts("gpu=h100")))
    assert snapshot.load(str(path)).simulated[0] == "NVIDIA H100 80GB HBM3"


def test_tools_of_this_system_are_not_taken_for_another_s() -> None:
    found = facts("os=windows,gpu=rtx4090,torch=2.9.1+cu128")
    assert found.toolkits is None
    assert found.build.nvcc_is_script is None
    assert found.cc.path is None
    assert found.gap("toolkits") == found.gap("build.version") == "simulated: not given"
    assert "toolkit/nvcc-wrapper" in problems(facts("os=linux"))
    assert not [rule for rule in problems(found) if rule.startswith("toolkit/")]


@pytest.mark.parametrize(
    ("name", "sm"), [("gb10", 121), ("gh200", 90), ("gb200", 100), ("thor", 110)]
)
def test_gpus_that_are_only_sold_with_one_processor(name: str, sm: int) -> None:
    found = facts(f"gpu={name}")
    assert (found.system.arch, found.system.os) == ("aarch64", "linux")
    assert [gpu.sm for gpu in found.gpus or ()] == [sm]
    assert facts(f"gpu={name},arch=x86_64").system.arch == "x86_64"


@pytest.mark.parametrize(
    ("version", "build", "cuda"), [("2.10.0", "cpu", None), ("2.11.0", "cuda", "13.0")]
)
def test_torch_of_the_package_index_for_aarch64(version: str, build: str, cuda: str | None) -> None:
    found = facts(f"arch=aarch64,torch={version}")
    assert (found.torch.build, found.torch.cuda) == (build, cuda)
    assert found.toolkits is None  # this machine's files are not there
    with pytest.raises(AttnDoctorError, match="one of x86_64, aarch64, arm64"):
        facts("arch=riscv")


@pytest.mark.parametrize(
    ("words", "vendor", "os"),
    [
        ("gpu=mi300x,torch=2.11.0+rocm7.0", "amd", "linux"),
        ("gpu=2xa770,torch=2.11.0+xpu", "intel", "linux"),
        ("gpu=m3,torch=2.11.0", "apple", "macos"),
    ],
)
def test_gpus_of_other_vendors(words: str, vendor: str, os: str) -> None:
    found = derive(facts(words))
    assert (found.driver.vendor, found.system.os, found.gpus) == (vendor, os, ())
    table = matrix(found, (), (AttentionCall(),), "diffusers")
    states = {row.name: row.answers[0].state.value for row in table.rows}
    assert states["native"] == "ready"
    # What is NVIDIA's alone.
    for name in ("_native_cudnn", "_flash_3", "sage", "_sage_qk_int8_pv_fp8_cuda"):
        assert states[name] == "not ready", name
    if vendor != "apple":
        # What exists there, and what is not known of it.
        assert states["_native_flash"] == "unknown"
    shown = run("backends", "--pretend", words + ",diffusers=0.42.1").text
    for advice in ("nvcc", "download.pytorch.org", "thu-ml/SageAttention", "index of its CUDA"):
        assert advice not in shown


def test_amd_has_its_own_backends() -> None:
    text = run("backends", "--pretend", "gpu=mi300x,torch=2.11.0+rocm7.0,diffusers=0.42.1").text
    elsewhere = text.partition("For other hardware:")[2]
    assert "aiter_fa2_hub" in text
    assert "aiter_fa2_hub" not in elsewhere


def test_another_torch_comes_before_what_is_chosen_for_it() -> None:
    found = facts(
        "os=windows,gpu=rtx5090,torch=2.6.0+cu124,triton=absent,sageattention=2.1.1,driver=576.52"
    )
    named = [one.rule for one in evaluate_rules(found, RULES) if one.verdict is Verdict.PROBLEM]
    assert named[:2] == ["torch/lacks-gpu-arch", "sage/needs-triton"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("gpu=rtx5090,torch=2.6.0+cu124", "no"),
        ("gpu=rtx4090,torch=2.6.0+cu124", "yes"),
        ("gpu=rtx5090,torch=2.7.1+cu126", "no"),
        ("gpu=rtx5090,torch=2.7.1+cu128", "yes"),
        ("gpu=rtx5090,torch=2.9.1+cu130", "yes"),
        ("gpu=gtx1080ti,torch=2.8.0+cu128", "no"),
        ("gpu=gtx1080ti,torch=2.6.0+cu118", None),
    ],
)
def test_the_code_of_windows_wheels(words: str, code: str | None) -> None:
    found = facts(f"os=windows,{words}")
    assert found.gpus is not None
    assert found.gpus[0].torch_code == code
