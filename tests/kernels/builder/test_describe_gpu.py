"""Describing a GPU: what the stub GPU was made from comes back, and what is said without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from attn_doctor import worker
from attn_doctor.facts import Facts, Python, Torch
from attn_doctor.kernels.builder.describe_gpu import described
from attn_doctor.kernels.builder.devices import DeviceError
from attn_doctor.kernels.gpus import known
from attn_doctor.kernels.gpus.descriptor import Descriptor
from tests import command
from tests.command import Ended

CUDA_TORCH = os.environ.get("ATTN_DOCTOR_CUDA_TORCH_PYTHON", "")
needs_cuda_torch = pytest.mark.skipif(not CUDA_TORCH, reason="needs a CUDA build of torch")


def run(*words: str, folder: Path | None = None) -> Ended:
    return command.run("describe-gpu", *words, cwd=folder)


def made_for_tests() -> Descriptor:
    """A GPU that no one has: were its values not passed through, another's would come back."""
    numbers = {"1": 512, "8": 40960, "10": 32, "16": 66, "31": 1, "97": 99328, "120": 1, "143": 5}
    return Descriptor(
        name="NVIDIA Test 9000 Ti",
        major=8,
        minor=9,
        multi_processor_count=66,
        total_memory=16_852_516_864,
        L2_cache_size=50_331_648,
        regs_per_multiprocessor=32768,
        max_threads_per_multi_processor=1408,
        max_threads_per_block=512,
        warp_size=32,
        shared_memory_per_block=40960,
        shared_memory_per_block_optin=99328,
        shared_memory_per_multiprocessor=100352,
        clock_rate=2_610_000,
        memory_clock_rate=10_501_000,
        memory_bus_width=256,
        attributes=numbers,
        driver_cuda=13010,
        environment={"CXX": "/opt/gcc/bin/g++", "TRITON_PRINT_AUTOTUNING": "1"},
        software={"torch": "2.11.0"},
    )


@pytest.mark.cuda_torch
@needs_cuda_torch
def test_the_stub_gpu_is_described_as_it_was_made() -> None:
    from attn_doctor.examination import examine
    from attn_doctor.host.local import LocalHost
    from attn_doctor.kernels.gpus import stub

    facts = examine(LocalHost(), CUDA_TORCH)
    before = made_for_tests()
    environ = {**os.environ, "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}
    env = stub.environment(stub.make(facts), before, 1, environ)
    found = described(facts, "cuda:0", env)

    assert found.name == before.name
    shown = found.values()
    assert shown == {name: value for name, value in before.values().items() if name in shown}
    assert not found.missing
    for number, value in before.attributes.items():
        assert found.attributes[number] == value, number
    assert found.driver_cuda == before.driver_cuda
    # Variables of this machine that enter keys are not there; those of the other one are.
    variables = dict(found.environment)
    variables.pop("CC", None)
    assert variables == before.environment
    assert found.faults() == []

    software = found.software
    assert software["torch"].startswith(facts.torch.version or "?")
    assert software["torch_git"]
    assert len(software["torch_key"]) == 64
    assert len(software["triton_key"]) == 64
    assert software["abi"] == facts.python.abi
    assert software["machine"] == os.uname().machine
    assert found.settings["inductor"]
    assert found.source == "attn-doctor describe-gpu"
    assert found.own

    # Once more from what was shown: nothing is lost on the way.
    again = described(facts, "cuda:0", stub.environment(stub.make(facts), found, 1, os.environ))
    assert msgspec.structs.replace(again, environment={}, probed="") == msgspec.structs.replace(
        found, environment={}, probed=""
    )
    with pytest.raises(DeviceError, match="1 GPUs, and no cuda:3"):
        described(facts, "cuda:3", env)


@pytest.mark.cuda_torch
@needs_cuda_torch
def test_a_cuda_torch_without_a_gpu(tmp_path: Path) -> None:
    done = run("--python", CUDA_TORCH, "-o", str(tmp_path / "gpu.toml"))
    if done.returncode == 0:
        pytest.skip("there is a GPU")
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("attn-doctor: no GPU to describe: ")
    assert not (tmp_path / "gpu.toml").exists()


def test_without_torch_one_sentence_is_said(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True
    )
    done = run("--python", str(tmp_path / "env"))
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "torch is not installed in" in line


def test_a_torch_that_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13: cannot open')\n")
    facts = Facts(python=Python(path=sys.executable), torch=Torch(installed=True))
    with pytest.raises(DeviceError, match=r"no GPU to describe: libcudart\.so\.13"):
        described(facts, "cuda:0", {**os.environ, "PYTHONPATH": str(tmp_path)})


def test_an_interpreter_that_dies(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("import os\nos.abort()\n")
    facts = Facts(python=Python(path=sys.executable), torch=Torch(installed=True))
    with pytest.raises(DeviceError, match=r"did not answer: .+"):
        described(facts, "cuda:0", {**os.environ, "PYTHONPATH": str(tmp_path)})
    gone = Facts(python=Python(path=str(tmp_path / "python")), torch=Torch(installed=True))
    with pytest.raises(DeviceError, match="cannot be run"):
        described(gone, "cuda:0", os.environ)


def test_a_cpu_build_says_so(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "__version__ = '2.13.0+cpu'\nclass version:\n    cuda = None\n"
    )
    facts = Facts(python=Python(path=sys.executable), torch=Torch(installed=True))
    with pytest.raises(DeviceError, match="is a build without CUDA"):
        described(facts, "cuda:0", {**os.environ, "PYTHONPATH": str(tmp_path)})


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--device", "cpu"], "write cuda or cuda:N"),
        (["-o", "gpu.txt"], "gpu.toml"),
        (["-o", "gpu.toml", "--format", "json"], "gpu.json"),
    ],
)
def test_wrong_usage(words: list[str], shown: str, tmp_path: Path) -> None:
    done = run(*words, folder=tmp_path)
    assert done.returncode == 2
    assert shown in " ".join(done.stderr.split())


def test_the_list_of_known_gpus() -> None:
    done = run("--list")
    assert done.returncode == 0
    for one in known.listing():
        assert one.name in done.stdout
    shown = json.loads(run("--list", "--format", "json").stdout)
    assert {row["target"] for row in shown} == {one.id for one in known.listing()}
    assert all(row.get("seen") or row["source"] for row in shown)


def test_the_child_answers_in_one_line_whatever_is_printed(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("print('noise')\nraise RuntimeError('first\\nsecond')\n")
    done = subprocess.run(
        worker.command(sys.executable, "describe_gpu", "cuda:0"),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert json.loads(done.stdout) == {"failure": "first"}
    assert "noise" in done.stderr
    assert done.returncode == 1
