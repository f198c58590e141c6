"""What logs say of the machine that wrote them."""
# ruff: noqa: E501 - lines as they stand in logs

from __future__ import annotations

from typing import Any

import pytest

from attn_doctor.explain.extract import facts_from, statements
from attn_doctor.facts import Facts
from attn_doctor.rulebook.evaluate import FactLookup


def extracted(log: str) -> tuple[Facts, frozenset[str]]:
    found = facts_from(list(statements(log)))
    return found.facts, found.names


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (
            "Successfully installed flash-attn-2.8.3 torch-2.6.0 triton-3.2.0",
            {"torch.version": "2.6.0", "torch.installed": True, "flash_attn.version": "2.8.3"},
        ),
        (">>> torch.__version__\n'2.7.1+cu126'", {"torch.version": "2.7.1+cu126", "torch.cuda": "12.6"}),
        ("torch.__version__  = 2.3.1+cu121", {"torch.version": "2.3.1+cu121", "torch.build": "cuda"}),
        ("PyTorch version: 2.9.0.dev20250701+cu128", {"torch.version": "2.9.0.dev20250701+cu128"}),
        ("- PyTorch version (GPU?): 2.4.0+cu121 (True)", {"torch.version": "2.4.0+cu121"}),
        (
            "    PyTorch 2.1.2+cu121 with CUDA 1201 (you have 2.1.2+cpu)",
            {
                "torch.version": "2.1.2+cpu",
                "torch.build": "cpu",
                "xformers.built_torch": "2.1.2+cu121",
                "xformers.built_cuda": "12.1",
            },
        ),
        (
            "xformers 0.0.27 requires torch==2.3.1, but you have torch 2.4.0 which is incompatible.",
            {"torch.version": "2.4.0"},
        ),
        (
            r"Requirement already satisfied: torch in c:\x\site-packages (2.1.0+cu121)",
            {"torch.version": "2.1.0+cu121", "system.os": "windows"},
        ),
        ("Name: torch\nVersion: 2.4.0+cu121", {"torch.version": "2.4.0+cu121"}),
        ("torch version: 2.6.0" + "9" * 5000, {"torch.version": "2.6"}),
        ("[pip3] triton==3.0.0\n[pip3] torch==2.4.0", {"triton.version": "3.0.0"}),
        ("- xFormers version: not installed", {"xformers.installed": False}),
        ("pip install torch==2.6.0+rocm6.2", {"torch.build": "rocm", "torch.hip": "6.2"}),
        (
            "Using cached torch-2.4.1-cp311-cp311-win_amd64.whl.metadata (27 kB)",
            {"torch.version": "2.4.1", "system.os": "windows"},
        ),
        (
            "pip install flash_attn-2.5.5+cu118torch2.2cxx11abiTRUE-cp38-cp38-linux_x86_64.whl",
            {
                "flash_attn.built_torch": "2.2",
                "flash_attn.built_cuda": "11.8",
                "system.os": "linux",
            },
        ),
        (
            "| NVIDIA-SMI 530.30.02    Driver Version: 530.30.02    CUDA Version: 12.1     |",
            {"driver.version": "530.30.02", "driver.cuda_max": "12.1"},
        ),
        ("Cuda compilation tools, release 10.1, V10.1.243", {"build.version": "10.1"}),
        (
            "The detected CUDA version (11.8) mismatches the version that was used to compile\nPyTorch (12.1).",
            {"build.version": "11.8", "torch.cuda": "12.1", "torch.build": "cuda"},
        ),
        (
            "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible",
            {"gpu.sm": 120, "gpu.name": "GeForce RTX 5090", "driver.vendor": "nvidia"},
        ),
        ("GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)", {"gpu.sm": 80}),
        ("|   0  Tesla T4                        Off|", {"gpu.sm": 75}),
        ("requires capability > (8, 0) but your GPU has capability (7, 5) (too old)", {"gpu.sm": 75}),
        ("RTX 5090 support - built from scratch", {"gpu.name": "GeForce RTX 5090", "gpu.sm": 120}),
        ("my RTX5090D fails", {"gpu.name": "GeForce RTX 5090 D", "gpu.sm": 120}),
        ("ValueError: Unsupported CUDA architecture: sm61", {"gpu.sm": 61}),
        ('  File "/opt/conda/lib/python3.10/site-packages/xformers/ops.py"',
         {"python.version": "3.10", "xformers.installed": True, "system.os": "linux"}),
        ("- Platform: Linux-5.15.0-x86_64-with-glibc2.31\n- Python version: 3.10.14",
         {"system.glibc": "2.31", "python.version": "3.10.14"}),
        ("gcc -fPIC -I/usr/include/python3.8 -c src/x.c -o x.o\nsrc/x.c:29:10: fatal error: Python.h\n",
         {"python.version": "3.8"}),
        ("/private/var/folders/x/setup.py:106: UserWarning", {"system.os": "macos"}),
        ("/home/me/.local/lib/python3.11/site-packages/a.py", {"system.os": "linux"}),
        ("/root/env/lib/python3.11/site-packages/a.py", {"system.os": "linux"}),
        ("Can't link /usr/lib/wsl/lib/libnvoptix_loader.so.1", {"system.os": "linux", "system.wsl": 2}),
        ("(Triggered internally at ../aten/native/transformers/hip/sdp_utils.cpp:253.)",
         {"torch.build": "rocm"}),
        ("MAX_JOBS=4 pip install flash-attn", {"env.MAX_JOBS": "4"}),
        (
            ("** Platform: Windows\n** Python version: 3.12.7 (tags/v3.12.7:0b05ead) [MSC v.1941 64 bit]\n"
            "** Python executable: C:\\ComfyUI\\python_embeded\\python.exe\npytorch version: 2.5.1+cu124"),
            {
                "system.os": "windows",
                "python.version": "3.12.7",
                "python.path": "C:\\ComfyUI\\python_embeded\\python.exe",
                "torch.version": "2.5.1+cu124",
            },
        ),
        (
            "OS: Ubuntu 22.04.4 LTS (x86_64)\nIs CUDA available: True",
            {
                "system.os": "linux",
                "system.arch": "x86_64",
                "system.distribution_name": "Ubuntu 22.04.4 LTS",
                "system.distribution": "ubuntu",
                "system.distribution_version": "22.04",
            },
        ),
        (
            ("OS                           : Debian GNU/Linux 12 (bookworm) (x86_64)\n"
            "Python platform              : Linux-6.8.0-60-generic-x86_64-with-glibc2.36"),
            {
                "system.os": "linux",
                "system.arch": "x86_64",
                "system.distribution_name": "Debian GNU/Linux 12",
                "system.distribution": "debian",
                "system.distribution_version": "12",
                "system.glibc": "2.36",
            },
        ),
        (
            # collect_env of vLLM
            ("PyTorch version              : 2.8.0+cu128\n"
            "CUDA used to build PyTorch   : 12.8\n"
            "Python version               : 3.12.11 (main, Jun  4 2025) [GCC 13.3.0]\n"
            "CUDA runtime version         : 12.8.93\n"
            "GPU models and configuration : GPU 0: NVIDIA H100 80GB HBM3\n"
            "Nvidia driver version        : 570.86.15\n"),
            {
                "torch.version": "2.8.0+cu128",
                "torch.cuda": "12.8",
                "python.version": "3.12.11",
                "build.version": "12.8",
                "gpu.sm": 90,
                "driver.version": "570.86.15",
            },
        ),
        ("OS: Red Hat Enterprise Linux 9.4 (Plow) (x86_64)", {"system.distribution": "rhel"}),
        (
            "Python platform: Linux-6.8.0-60-generic-x86_64-with-glibc2.36",
            {"system.wsl": 0, "system.os": "linux"},
        ),
        (
            "Python platform: Linux-5.15.167.4-microsoft-standard-WSL2-x86_64-with-glibc2.35",
            {"system.wsl": 2, "system.os": "linux"},
        ),
        ("OS: Microsoft Windows 11 Pro (10.0.26100 64-bit)", {"system.os": "windows"}),
        ("Python platform: macOS-15.3.2-arm64-arm-64bit", {"system.os": "macos"}),
        ("torch 2.7.1+cu128", {"torch.from_pypi": False}),
        ("torch 2.7.1+cu126\nPython platform: Windows-11-10.0.26100-SP0", {"torch.from_pypi": False}),
        (
            "PyTorch version: 2.7.1\nPython platform: macOS-15.5-arm64-arm-64bit",
            {"torch.build": "mps"},
        ),
        (
            "Torch: 2.6.0+cu124. CUDA: 12.0. CUDA Toolkit: 12.4. Triton: 3.2.0",
            {"torch.version": "2.6.0+cu124", "gpu.sm": 120, "triton.version": "3.2.0"},
        ),
        (
            "pip 24.0 from /v/lib/python3.12/site-packages/pip (python 3.12)",
            {"python.pip": "24.0", "python.version": "3.12", "python.path": "/v/bin/python"},
        ),
        (
            "Using Python 3.12.3 environment at: .venv",
            {"python.version": "3.12.3", "python.uv": "uv", "python.pip": ""},
        ),
        (
            r'File "D:\AI\venv\Lib\site-packages\xformers\ops.py"',
            {"python.path": r"D:\AI\venv\Scripts\python.exe", "python.prefix": r"D:\AI\venv"},
        ),
        (
            r'File "C:\Users\me\miniconda3\envs\x\Lib\site-packages\triton\a.py"',
            {"python.environment": "conda"},
        ),
        ('File "/opt/conda/lib/python3.11/site-packages/a.py"', {"python.environment": "conda"}),
        ('File "/opt/conda/envs/venv/lib/python3.11/site-packages/a"', {"python.environment": "conda"}),
        ('File "/opt/conda/.venv/lib/python3.11/site-packages/a"', {"python.environment": "venv"}),
        (
            r'File "C:\UI\python_embeded\Lib\site-packages\a.py"',
            {"python.environment": "embeddable"},
        ),
        ("root@8e882ecbcede:/workspace# python a.py", {"system.container": "docker"}),
        ("torch==2.11.0+xpu", {"torch.build": "xpu", "driver.vendor": "intel"}),
        ("GPU 0 Compute Capability: 9.0", {"gpu.sm": 90}),
        ("GPU 0: NVIDIA GB10", {"gpu.name": "GB10"}),
        ("GPU 0: Quadro RTX 6000", {"gpu.name": "Quadro RTX 6000"}),
        ("GPU 0: Orin (nvgpu)", {"gpu.name": "Orin"}),
    ],
)  # fmt: skip
def test_statements(log: str, expected: dict[str, Any]) -> None:
    facts, names = extracted(log)
    gpu = facts.gpus[0] if facts.gpus else None
    lookup = FactLookup(facts, "gpu", gpu)
    assert {name: lookup(name) for name in expected} == expected
    assert set(expected) - {"torch.build", "torch.installed"} <= names | {"driver.vendor"}


@pytest.mark.parametrize(
    "log",
    [
        "bf16 is only supported on A100+ GPUs",
        "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90",
        "The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70.",
        "FlashAttention only supports Ampere GPUs or newer.",
        "RTX 30xx and RTX 40 series are supported",
    ],
)
def test_a_gpu_that_a_message_only_mentions_is_not_a_fact(log: str) -> None:
    assert extracted(log)[0].gpus is None


def test_a_capability_that_is_wanted_is_not_the_machine_s() -> None:
    facts, _ = extracted(
        "SM89 kernel is not available. Make sure you GPUs with compute capability 8.9."
    )
    assert not facts.gpus


def test_a_build_that_pypi_has_too_may_come_from_it() -> None:
    facts, _ = extracted("torch 2.7.1+cu126")
    assert facts.torch.from_pypi is None


def test_a_report_counts_more_than_a_request() -> None:
    facts, _ = extracted(
        "pip install torch==2.6.0+cu118\n"
        "torch.__version__  = 2.5.1+cu121\n"
        "pip install torch==2.7.0\n"
    )
    assert facts.torch.version == "2.5.1+cu121"


def test_what_is_said_last_counts() -> None:
    facts, _ = extracted("Successfully installed torch-2.5.1\nSuccessfully installed torch-2.6.0\n")
    assert facts.torch.version == "2.6.0"


def test_an_unknown_product_has_no_capability() -> None:
    facts, _ = extracted("NVIDIA GeForce RTX 9990")
    assert facts.gpus is not None
    assert facts.gpus[0].name == "GeForce RTX 9990"
    assert facts.gpus[0].sm is None


def test_nothing_is_stated_of_a_silent_log() -> None:
    assert extracted("RuntimeError: no\n") == (Facts(), frozenset())


@pytest.mark.parametrize(
    "path",
    [
        "/tmp/pip-build-env-x/overlay/lib/python3.10/site-packages/setuptools/a.py",
        "/path/to/venv/lib/python3.10/site-packages/a.py",
        "/home/***/lib/python3.10/site-packages/a.py",
        "/usr/local/lib/python3.10/site-packages/a.py",
    ],
)
def test_paths_that_are_not_an_environment(path: str) -> None:
    assert extracted(f'  File "{path}", line 1')[0].python.path is None


def test_a_path_of_another_system_is_not_used() -> None:
    facts, _ = extracted("OS: Ubuntu 22.04 (x86_64)\n" + r'File "C:\x\Lib\site-packages\a.py"')
    assert (facts.system.os, facts.python.path) == ("linux", None)


def test_a_statement_has_its_place() -> None:
    text = "first\n\nPyTorch version: 2.9.1\nNVIDIA GeForce RTX 4090 and more\nNAME torch==2.8.0"
    places = {(one.fact, text[: one.offset].count("\n")) for one in statements(text)}
    assert {("torch.version", 2), ("gpu.name", 3), ("torch.version", 4)} <= places
