"""What shells complete: values as well as options."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import run

PROGRAM = Path(sys.executable).with_name("attn-doctor")


def completed(shell: str, line: str) -> list[str]:
    """What a shell gets for a line that ends at the cursor."""
    words = line.split(" ")
    ended = run(
        _ATTN_DOCTOR_COMPLETE=f"complete_{shell}",
        COMP_WORDS=line,
        COMP_CWORD=str(len(words) - 1),
        _TYPER_COMPLETE_ARGS=line,
        _TYPER_COMPLETE_FISH_ACTION="get-args",
        _TYPER_COMPLETE_WORD_TO_COMPLETE=words[-1],
    )
    assert ended.stderr == ""
    return ended.stdout.split("\n")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("check --require flash_var", "flash_varlen"),
        ("check --require native,sag", "native,sage"),
        ("check --format sar", "sarif"),
        ("check --for tr", "training"),
        ("check --framework simp", "simpletuner"),
        ("check --pretend tor", "torch="),
        ("check --pretend torch=2.9.1,gpu=rtx40", "torch=2.9.1,gpu=rtx4090"),
        ("backends fle", "flex"),
        ("backends --why xf", "xformers"),
        ("backends --mask bool,fl", "bool,float"),
        ("backends --format s", "svg"),
        ("audit fle", "flex"),
        ("install sa", "sage"),
        ("fix apply sage/needs", "sage/needs-triton"),
        ("rules show sage/needs", "sage/needs-triton"),
        ("build-kernels --preset flux", "flux1"),
        ("build-kernels --target h2", "h200"),
        ("cache status --kind tr", "triton"),
    ],
)
def test_values_are_completed(line: str, value: str) -> None:
    assert value in completed("bash", f"attn-doctor {line}")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell", "pwsh"])
def test_every_shell_gets_them(shell: str) -> None:
    assert any(
        "sage/needs-triton" in one for one in completed(shell, "attn-doctor fix apply sage/nee")
    )


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.skipif(not PROGRAM.exists(), reason="attn-doctor is not installed as a program")
def test_bash_itself_completes() -> None:
    script = f"""
        eval "$(_ATTN_DOCTOR_COMPLETE=source_bash {PROGRAM})"
        COMP_WORDS=({PROGRAM} build-kernels --preset wan22) COMP_CWORD=3
        _attn_doctor_completion {PROGRAM} && echo "${{COMPREPLY[@]}}"
        _attndoctor_completion {PROGRAM} && echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert "wan22" in done.stdout.split(), done.stderr


@pytest.mark.skipif(not PROGRAM.exists(), reason="attn-doctor is not installed as a program")
@pytest.mark.parametrize(
    ("shell", "says"),
    [("fish", "complete --command"), ("zsh", "#compdef"), ("powershell", "Register-ArgumentComp")],
)
def test_the_completion_of_another_shell_is_shown(shell: str, says: str) -> None:
    shown = subprocess.run(
        [PROGRAM, "--show-completion", shell], capture_output=True, text=True, check=True
    )
    assert says in shown.stdout
