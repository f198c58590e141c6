"""How many processor instructions a command takes, by valgrind: the same on a busy machine.

A regular expression once made a check a quarter slower, which no test of time showed. What is
recorded is for one release of Python; record it anew after a change that is worth its instructions.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import PLAIN, installed

HERE = Path(__file__).parent
MACHINES = HERE / "machines"
LOG = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    model.cuda()
AssertionError: Torch not compiled with CUDA enabled
"""
#: Words of a command → its instructions in millions, with Python 3.11.
RECORDED = {
    ("--version",): 86,
    ("check", "--facts", str(MACHINES / "debian-torch-2.13-cpu" / "facts.json")): 322,
    ("check", "--facts", str(MACHINES / "h200-torch-2.11-cu130" / "facts.json")): 355,
    ("explain", "--no-probe", "log"): 732,
}
#: What a command may take of what is recorded: releases of Python and of packages differ a little.
LEAST, MOST = 0.8, 1.15


@pytest.mark.thorough
@pytest.mark.native
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind counts the instructions")
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="recorded for Python 3.11")
@pytest.mark.parametrize(
    "words", RECORDED, ids=lambda words: Path(words[-1]).parent.name or words[0]
)
def test_a_command_takes_the_recorded_instructions(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    command = [*installed(), *words]
    environ = {**PLAIN, "PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONHASHSEED": "0"}

    def run(*prefix: str) -> str:
        done = subprocess.run(
            [*prefix, *command],
            cwd=tmp_path, env=environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stderr
        return done.stderr

    run()  # compiles what is not compiled yet
    counted = run("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
    found = re.search(r"Collected : (\d+)", counted)
    assert found is not None, counted
    millions = int(found[1]) / 1e6
    assert LEAST < millions / RECORDED[words] < MOST, f"{millions:.0f} million"
