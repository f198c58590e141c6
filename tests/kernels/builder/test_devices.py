"""Which device is built for, and what is said where there is none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError, OwnershipError
from attn_doctor.facts import Cache, Driver, Facts, Gpu, Python, Torch
from attn_doctor.kernels.builder.devices import (
    DeviceError,
    NoGpuError,
    cache_folder,
    children_environment,
    compilable,
    devices,
)

CUDA = Facts(
    python=Python(path="/env/bin/python"),
    torch=Torch(installed=True, version="2.11.0+cu130", build="cuda", has_flex=True),
    driver=Driver(state="ok"),
    gpus=(Gpu(name="NVIDIA H200", visible=True), Gpu(name="NVIDIA H200", visible=True)),
)
CPU = replace(CUDA, torch=replace(CUDA.torch, version="2.13.0+cpu", build="cpu"))


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("", ("cuda:0",)),
        ("cuda", ("cuda:0",)),
        ("cuda:1", ("cuda:1",)),
        ("all", ("cuda:0", "cuda:1")),
        ("cuda:1,cuda:0", ("cuda:1", "cuda:0")),
        ("all,cpu", ("cuda:0", "cuda:1", "cpu")),
        ("cpu", ("cpu",)),
    ],
)
def test_devices(asked: str, found: tuple[str, ...]) -> None:
    assert devices(CUDA, asked) == found


def test_the_cpu_needs_no_gpu() -> None:
    assert devices(CPU, "cpu") == ("cpu",)


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        (CPU, "torch 2.13.0+cpu is a build without CUDA"),
        (replace(CUDA, torch=Torch(installed=False)), "torch is not installed in /env/bin/python"),
        (replace(CUDA, torch=Torch(installed=False)), "`/env/bin/python -m pip install torch`"),
        (replace(CUDA, torch=replace(CUDA.torch, has_flex=False)), "has no FlexAttention"),
        (replace(CUDA, torch=replace(CUDA.torch, has_flex=False)), "pip install --upgrade torch`"),
        (replace(CUDA, driver=Driver(state="no-gpu")), "this machine has no NVIDIA GPU"),
        (replace(CUDA, driver=Driver(state="no-driver")), "no NVIDIA driver"),
        (replace(CUDA, gpus=()), "shows no GPU"),
        (
            replace(CUDA, gpus=(Gpu(visible=False),), env={"CUDA_VISIBLE_DEVICES": ""}),
            "CUDA_VISIBLE_DEVICES hides every GPU",
        ),
    ],
)
def test_what_is_missing_is_one_sentence(facts: Facts, shown: str) -> None:
    with pytest.raises(DeviceError) as caught:
        devices(facts, "")
    assert shown in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.posix
def test_without_a_gpu_the_command_for_one_elsewhere_is_named() -> None:
    with pytest.raises(NoGpuError) as caught:
        devices(replace(CUDA, driver=Driver(state="no-gpu")), "")
    words = ["build-kernels", "--device", "cuda:1", "--preset", "flux1"]
    assert "`attn-doctor build-kernels --preset flux1 --target NAME`" in caught.value.with_command(
        words
    )
    words = ["build-kernels", "--device=all", "--", "python", "my warm-up.py"]
    assert "`attn-doctor build-kernels --target NAME -- python 'my warm-up.py'`" in (
        caught.value.with_command(words)
    )
    assert "CUDA build" not in str(caught.value)
    with pytest.raises(NoGpuError, match="in an environment with the CUDA build of torch, `attn"):
        devices(CPU, "")


def test_a_word_that_is_no_device() -> None:
    with pytest.raises(AttnDoctorError, match="--device gpu: write cpu, cuda"):
        devices(CUDA, "gpu")
    with pytest.raises(AttnDoctorError, match=r"torch sees 2 GPU\(s\)"):
        devices(CUDA, "cuda:2")


def test_the_environment_of_children() -> None:
    given = {"PATH": "/bin", "TORCHINDUCTOR_COMPILE_THREADS": "8", "TORCH_CACHING_PRECOMPILE": "1"}
    found, [remark] = children_environment(given, "/cache")
    assert found == {
        "PATH": "/bin",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": "/cache",
    }
    assert "TORCH_CACHING_PRECOMPILE" in remark
    assert children_environment({}, "/cache")[1] == []


def test_what_triton_keeps_at_home_is_taken_from_the_folder(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert "TRITON_HOME" not in children_environment({}, folder)[0]
    (tmp_path / ".triton").mkdir()
    assert children_environment({}, folder)[0]["TRITON_HOME"] == folder
    assert children_environment({"TRITON_HOME": "/own"}, folder)[0]["TRITON_HOME"] == "/own"
    assert "TRITON_HOME" not in children_environment({"TRITON_CACHE_DIR": "/own"}, folder)[0]


def test_a_folder_of_its_own_gets_what_triton_compiles(tmp_path: Path) -> None:
    # Clusters set TRITON_CACHE_DIR for everybody; kernels there would be in no artifact.
    folder = str(tmp_path)
    given = {"TRITON_CACHE_DIR": "/scratch/triton"}
    found, [remark] = children_environment(given, folder, own=True)
    assert "TRITON_CACHE_DIR" not in found
    assert remark.startswith("TRITON_CACHE_DIR=/scratch/triton is set: this build ignores it")
    assert "unset it for training" in remark
    # In torch's own folder training finds them there, as without us.
    found, [remark] = children_environment(given, folder)
    assert found["TRITON_CACHE_DIR"] == "/scratch/triton"
    assert "outside of" in remark
    inside = {"TRITON_CACHE_DIR": f"{folder}/triton"}
    found, remarks = children_environment(inside, folder, own=True)
    assert (found["TRITON_CACHE_DIR"], remarks) == (f"{folder}/triton", [])


@pytest.mark.parametrize(
    "name", ["TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TORCH_COMPILE_DISABLE", "TRITON_INTERPRET"]
)
def test_variables_under_which_building_is_pointless(name: str) -> None:
    with pytest.raises(DeviceError, match=f"{name}=1 is set"):
        children_environment({name: "1"}, "/cache")
    children_environment({name: "0"}, "/cache")


@pytest.mark.symlinks
def test_the_cache_folder(tmp_path: Path) -> None:
    facts = replace(CPU, caches=(Cache(kind="inductor", path=str(tmp_path / "own")),))
    real = tmp_path.resolve()
    assert cache_folder(facts, "") == real / "own"
    (tmp_path / "link").symlink_to(tmp_path / "own")
    assert cache_folder(facts, str(tmp_path / "link")) == real / "own"
    with pytest.raises(AttnDoctorError, match="--cache-dir"):
        cache_folder(CPU, "")


@pytest.mark.parametrize("name", ["my kernels", "it's", "back\\slash"])
@pytest.mark.posix
def test_a_folder_that_torch_cannot_compile_in(name: str) -> None:
    """Seen with torch 2.13: its C++ compiler's command line has no quotes."""
    cpu = Facts(torch=Torch(installed=True, version="2.13.0+cpu", build="cpu"))
    folder = Path("/opt") / name
    with pytest.raises(AttnDoctorError, match="torch cannot compile for the CPU in a folder"):
        compilable(cpu, folder, "cpu")
    compilable(cpu, folder, "cuda:0")
    compilable(cpu, Path("/opt/größe"), "cpu")
    # What an unread version of torch does is unknown.
    newer = Facts(torch=Torch(installed=True, version="2.99.0+cpu", build="cpu"))
    compilable(newer, folder, "cpu")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="gives folders away")
def test_a_folder_of_another_user(tmp_path: Path) -> None:
    assert cache_folder(Facts(), str(tmp_path)) == tmp_path
    assert cache_folder(Facts(), str(tmp_path / "absent")) == tmp_path / "absent"
    os.chown(tmp_path, 1234, -1)
    with pytest.raises(OwnershipError, match=r"belongs to 1234 \(mode 0\d+\)"):
        cache_folder(Facts(), str(tmp_path))


@pytest.mark.parametrize(
    ("chosen", "own"),
    [({}, False), ({"cache_dir": True}, True), ({"artifact": Path("k.tar.gz")}, True)],
)
def test_build_kernels_keeps_triton_in_the_folder_that_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: dict[str, Any], own: bool
) -> None:
    from attn_doctor.cli.build_kernels.options import BuildOptions
    from attn_doctor.cli.build_kernels.request import workplace

    monkeypatch.setenv("TRITON_CACHE_DIR", "/scratch/triton")
    chosen = {name: str(tmp_path) if value is True else value for name, value in chosen.items()}
    facts = replace(CPU, caches=(Cache(kind="inductor", path=str(tmp_path)),))
    place = workplace(BuildOptions(**chosen), facts, [])
    assert ("TRITON_CACHE_DIR" not in place.environ) == own
    assert [note.partition(" is set")[0] for note in place.notes] == [
        "TRITON_CACHE_DIR=/scratch/triton"
    ]
