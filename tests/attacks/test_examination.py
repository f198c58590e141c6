"""Nothing of the examined machine runs: programs, modules, pickles, start-up files."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.means import ROOT, Attack
from tests.kernels.conftest import Maker

#: Programs that a diagnosis might want to ask.
PROGRAMS = (
    "python", "python3", "pip", "uv", "conda", "git", "gcc", "g++", "cc", "c++", "nvcc", "ninja",
    "cmake",
    "ldconfig", "ldd", "nvidia-smi", "lscpu", "uname", "id", "sh", "df", "mount", "readelf", "ps",
)  # fmt: skip
#: Modules that Python or a package might import from the working directory.
MODULES = ("torch", "triton", "msgspec", "packaging", "psutil", "typer", "rich", "sitecustomize",
           "usercustomize", "json", "numpy", "flash_attn", "xformers", "pynvml")  # fmt: skip
#: Commands that only read, as SECURITY.md says.
READING = (
    ("check",),
    ("backends",),
    ("explain", "log.txt"),
    ("report", "-o", "-"),
    ("fix", "requirements"),
    ("fix", "history"),
    ("cache", "status", "-v"),
    ("cache", "env"),
    ("cache", "clear", "--all", "--dry-run"),
    ("rules", "lint"),
)


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        # Not a function of os: a command that ran in this process has put its own there.
        return exec, (f"import os; os.mkdir({str(self.marker)!r})",)


@pytest.fixture
def trapped(tmp_path: Path, marker: Path) -> Path:
    """A working directory, a PATH and caches, all of which create the marker if they run."""
    folder = tmp_path / "work"
    make = Maker()
    for name in PROGRAMS:
        program = make.write(folder / "bin" / name, f"#!/bin/sh\n: > {marker}\nexec sleep 30\n")
        program.chmod(0o755)
    for name in MODULES:
        make.write(folder / f"{name}.py", f"open({str(marker)!r}, 'w')\nraise SystemExit(0)\n")
    make.write(folder / "log.txt", "RuntimeError: No available kernel. Aborting execution.\n")
    cache = make.inductor(folder / "inductor")
    graph = cache / "fxgraph" / make.FX[1:3] / make.FX / make.FILE
    graph.write_bytes(pickle.dumps(Trap(marker), 5))
    (cache / "aotautograd" / make.AOT / make.FILE).write_bytes(pickle.dumps(Trap(marker), 0))
    return folder


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(one, id=" ".join(one), marks=() if one == ("check",) else pytest.mark.attack)
        for one in READING
    ],
)
def test_a_reading_command_runs_nothing(
    doctor: Attack, trapped: Path, marker: Path, command: tuple[str, ...]
) -> None:
    program = [sys.executable, "-P" if sys.version_info >= (3, 11) else "-B", "-m", "attn_doctor"]
    run = doctor(
        *command,
        cwd=trapped,
        environ={
            "PATH": f"{trapped / 'bin'}:{os.environ['PATH']}",
            "TORCHINDUCTOR_CACHE_DIR": str(trapped / "inductor"),
            "PYTHONPATH": str(ROOT),
        },
        program=program,
    )
    run.answered()
    assert not marker.exists()


def test_pickles_of_a_cache_are_never_loaded(doctor: Attack, trapped: Path, marker: Path) -> None:
    environ = {"TORCHINDUCTOR_CACHE_DIR": str(trapped / "inductor")}
    for words in (["status", "-v"], ["verify", "--no-verify"], ["clear", "--stale", "--yes"]):
        doctor("cache", *words, environ=environ).answered(0, 1)
    assert not marker.exists()
