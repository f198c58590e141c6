"""Two statements of one log that cannot hold in one environment."""

from __future__ import annotations

import pytest

from attn_doctor.explain.engine import explain
from attn_doctor.rulebook import library

SATISFIED = "Requirement already satisfied: torch in /venv/lib/python3.10/site-packages (2.5.1)\n"
BUILD = (
    "Collecting flash-attn\n  error: subprocess-exited-with-error\n"
    "      ModuleNotFoundError: No module named 'torch'\n      [end of output]\n"
    "  note: This error originates from a subprocess, and is likely not a problem with pip.\n"
)
SMI = "| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: 12.4     |\n"
NVCC = "Cuda compilation tools, release 12.4, V12.4.131\n"
NO_HOME = (
    "Collecting flash-attn\nOSError: CUDA_HOME environment variable is not set. Please set it to"
    " your CUDA install root.\n"
)
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    "RuntimeError: Found no NVIDIA driver on your system. flash_attn\n"
)
OTHER_PYTHON = (
    "Requirement already satisfied: sageattention in /opt/lib/python3.10/site-packages (2.2.0)\n"
    "Traceback (most recent call last):\n"
    '  File "/venv/lib/python3.12/site-packages/diffusers/a.py", line 3, in <module>\n'
    "    from sageattention import sageattn\n"
    "ModuleNotFoundError: No module named 'sageattention'\n"
)


def _conflicts(log: str) -> tuple[str, ...]:
    return explain([], library.load(), texts=[log]).conflicts


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (SATISFIED + BUILD, "pip has torch (line 1), and a process does not find it (line 4)"),
        (SMI + NO_HOME, "nvidia-smi names CUDA 12.4 (line 1), and nvcc is not found (line 3)"),
        (NVCC + NO_DRIVER, "nvcc of CUDA 12.4 is there (line 1), and nvidia-smi does not"),
        (OTHER_PYTHON, "of Python 3.10 (line 1), and the program runs with another"),
    ],
)
def test_a_contradiction_is_a_sentence_with_both_lines(log: str, words: str) -> None:
    assert [one for one in _conflicts(log) if words in one] != []


@pytest.mark.parametrize(
    "log",
    [
        BUILD,
        NO_HOME,
        SMI + BUILD,
        NVCC + NO_HOME,
        SATISFIED + BUILD.replace("'torch'", "'packaging'"),
        OTHER_PYTHON.replace("python3.10", "python3.12").replace("already satisfied", "is"),
    ],
)
def test_statements_that_agree_are_no_contradiction(log: str) -> None:
    assert _conflicts(log) == ()


def test_a_log_without_a_failure_has_none() -> None:
    assert (
        _conflicts("".join(OTHER_PYTHON.splitlines(keepends=True)[:1]) + "step 1 loss 2.0\n") == ()
    )
    frame = OTHER_PYTHON.splitlines()[2]
    assert _conflicts(f"{OTHER_PYTHON.splitlines()[0]}\n{frame}\nstep 1 loss 2.0\n") == ()
