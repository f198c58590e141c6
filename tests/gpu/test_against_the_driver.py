"""On a machine with a GPU: what `check` says must be what the vendor's own tools say.

Needs an interpreter with a CUDA torch; name it in ATTN_DOCTOR_TORCH_PYTHON if it is not this one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

PYTHON = os.environ.get("ATTN_DOCTOR_TORCH_PYTHON", sys.executable)
ASK_TORCH = """
import json, torch
print(json.dumps({
    "version": torch.__version__,
    "cuda": torch.version.cuda,
    "git": torch.version.git_version,
    "abi": torch._C._GLIBCXX_USE_CXX11_ABI,
    "archs": torch.cuda.get_arch_list(),
    "gpus": [
        {"name": torch.cuda.get_device_name(i), "cc": torch.cuda.get_device_capability(i),
         "total": torch.cuda.get_device_properties(i).total_memory}
        for i in range(torch.cuda.device_count())
    ],
}))
"""


@pytest.fixture(scope="module")
def checked() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "attn_doctor", "check", "--python", PYTHON, "--format", "json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    return data


@pytest.fixture(scope="module")
def facts(checked: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = checked["facts"]
    return found


@pytest.fixture(scope="module")
def torch() -> dict[str, Any]:
    done = subprocess.run(
        [PYTHON, "-c", ASK_TORCH], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def _smi(*fields: str) -> list[list[str]]:
    query = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    output = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True).stdout
    return [[cell.strip() for cell in line.split(",")] for line in output.splitlines()]


def test_gpus_are_those_of_nvidia_smi(facts: dict[str, Any]) -> None:
    fields = ("index", "name", "compute_cap", "memory.total", "driver_version", "pci.bus_id")
    rows = _smi(*fields)
    assert len(rows) == len(facts["gpus"])
    for row, gpu in zip(rows, facts["gpus"], strict=True):
        index, name, capability, memory, driver, address = row
        assert gpu["index"] == int(index)
        assert gpu["name"] == name
        assert gpu["compute_capability"] == capability
        assert gpu["sm"] == int(capability.replace(".", ""))
        assert gpu["memory_total_mib"] == int(memory)
        assert facts["driver"]["version"] == driver
        assert address.lower().endswith(gpu["pci_bus_id"].lower())


def test_states_are_those_of_nvidia_smi(facts: dict[str, Any]) -> None:
    rows = _smi("compute_mode", "persistence_mode", "mig.mode.current")
    for (mode, persistence, mig), gpu in zip(rows, facts["gpus"], strict=True):
        assert gpu["compute_mode"] == mode.lower().replace("_", "-")
        assert gpu["persistence"] == (persistence == "Enabled")
        assert gpu["mig"] == {"Enabled": "enabled", "Disabled": "disabled"}.get(mig, "unsupported")


def test_the_highest_cuda_is_that_of_nvidia_smi(facts: dict[str, Any]) -> None:
    output = subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=60, check=True)
    assert f"CUDA Version: {facts['driver']['cuda_max']}" in output.stdout
    assert facts["driver"]["state"] == "ok"


def test_torch_is_what_torch_says_of_itself(facts: dict[str, Any], torch: dict[str, Any]) -> None:
    assert facts["torch"]["version"] == torch["version"]
    assert facts["torch"]["cuda"] == torch["cuda"]
    assert facts["torch"]["git_version"] == torch["git"]
    assert facts["torch"]["cxx11_abi"] in (None, torch["abi"])
    for gpu, seen in zip(torch["gpus"], facts["gpus"], strict=True):
        assert seen["name"] == gpu["name"]
        assert seen["sm"] == gpu["cc"][0] * 10 + gpu["cc"][1]
    native = {int(arch[3:]) for arch in torch["archs"] if arch.startswith("sm_")}
    if facts["torch"]["archs"] is not None:
        assert set(facts["torch"]["archs"]) == native
    for seen in facts["gpus"]:
        assert seen["in_torch_archs"] in (None, seen["sm"] in native)


def test_nvcc_is_what_nvcc_says(facts: dict[str, Any]) -> None:
    nvcc = facts["build"]["nvcc"] or shutil.which("nvcc")
    if not nvcc:
        pytest.skip("no nvcc here")
    output = subprocess.run(
        [nvcc, "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    minor = ".".join(facts["build"]["version"].split(".")[:2])
    assert f"release {minor}," in output.stdout


def test_cuda_home_is_what_torch_resolves(facts: dict[str, Any]) -> None:
    script = "from torch.utils.cpp_extension import CUDA_HOME; print(CUDA_HOME or '')"
    output = subprocess.run(
        [PYTHON, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    assert facts["build"]["cuda_home"] == output.stdout.strip().splitlines()[-1]


def test_no_error_is_claimed_where_torch_computes(checked: dict[str, Any]) -> None:
    script = (
        "import torch, torch.nn.functional as F;"
        "q = torch.randn(1, 4, 256, 64, device='cuda', dtype=torch.bfloat16);"
        "print(F.scaled_dot_product_attention(q, q, q).float().abs().mean().item() > 0)"
    )
    output = subprocess.run(
        [PYTHON, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    assert output.stdout.strip() == "True"
    assert [one["rule"] for one in checked["problems"] if one["severity"] == "error"] == []
