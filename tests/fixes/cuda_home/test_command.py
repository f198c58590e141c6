"""`attn-doctor fix --cuda-home` as a user runs it, with a small toolkit and a small torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import NamedTuple

import pytest

from attn_doctor.fixes.cuda_home import confirm
from tests.command import installed
from tests.fixes.cuda_home.trees import make, program

pytestmark = pytest.mark.gcc
#: What torch's cpp_extension does to find its toolkit, in short.
CPP_EXTENSION = """import os
CUDA_HOME = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
CUDA_GCC_VERSIONS = {}
"""
METADATA = "Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0+cu130\n"
VERSION = "__version__ = '2.11.0+cu130'\ncuda = '13.0'\nhip = None\ndebug = False\n"


class Machine(NamedTuple):
    """A home with a virtual environment that holds a small torch, and a toolkit."""

    home: Path
    python: Path
    toolkit: Path

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environ = {
            "HOME": str(self.home),
            "PATH": "/usr/bin:/bin",
            "CUDA_HOME": str(self.toolkit),
            "TORCH_CUDA_ARCH_LIST": "9.0",
            **variables,
        }
        command = [*installed(), "fix"]
        cuda_home = {"--cuda-home", "cuda-home"} & {*arguments}
        return subprocess.run(
            [*command, *arguments, *(["--python", str(self.python)] if cuda_home else [])],
            env=environ, capture_output=True, text=True, timeout=60, check=False,
            stdin=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    home = tmp_path_factory.mktemp("home")
    toolkit = make(home / "my toolkits" / "cuda-13.0", "13.0")
    env = home / "env"
    venv.create(env, symlinks=True)
    site = next(env.glob("lib/python*/site-packages"))
    for name, text in (
        ("torch/__init__.py", "from torch import version\n__version__ = version.__version__\n"),
        ("torch/version.py", VERSION),
        ("torch/utils/__init__.py", ""),
        ("torch/utils/cpp_extension.py", CPP_EXTENSION),
        ("torch-2.11.0+cu130.dist-info/METADATA", METADATA),
        ("torch-2.11.0+cu130.dist-info/RECORD", "torch/__init__.py,,\n"),
    ):  # fmt: skip
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    return Machine(home, env / "bin" / "python", toolkit)


@pytest.mark.driverless
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "dash"])
def test_eval_in_the_shell_itself(machine: Machine, shell: str) -> None:
    """The shell is found by itself, and nothing but its lines is on standard output."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command = f"'{sys.executable}' -m attn_doctor fix --cuda-home --python '{machine.python}'"
    # CUDA_ROOT is none that torch reads: the toolkit is known, and not yet chosen.
    environ = {
        "HOME": str(machine.home), "PATH": "/usr/bin:/bin", "CUDA_ROOT": str(machine.toolkit),
    }  # fmt: skip
    ran = subprocess.run(
        [str(shutil.which(shell)), "-c", f'eval "$({command})"; env'],
        env=environ, capture_output=True, text=True, timeout=600, check=False, cwd="/",
    )  # fmt: skip
    found = ran.stdout.splitlines()
    assert f"CUDA_HOME={machine.toolkit}" in found, ran.stderr
    assert f"CUDA_PATH={machine.toolkit}" in found
    assert f"PATH={machine.toolkit}/bin:/usr/bin:/bin" in found
    assert "torch's own release" in ran.stderr.replace("\n  ", " ")
    assert f"2.11.0+cu130 resolves CUDA_HOME to {machine.toolkit}" in " ".join(ran.stderr.split())


def test_json_says_all_of_it(machine: Machine) -> None:
    ran = machine.run("--cuda-home", "--format", "json", "--shell", "fish")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    root = str(machine.toolkit)
    assert found["chosen"]["root"] == root
    assert found["exports"] == {"CUDA_HOME": root, "CUDA_PATH": root}
    assert found["lines"][0] == f"set -gx CUDA_HOME '{root}';"
    assert {"name": "torch", "agrees": True}.items() <= found["confirmed"][0].items()
    assert found["candidates"][0]["verdict"] == "chosen"
    assert found["written"] is False


@pytest.mark.parametrize("arguments", [("cuda-home", "--json"), ("--json", "--cuda-home")])
def test_the_option_and_the_subcommand_are_the_same(
    machine: Machine, arguments: tuple[str, ...]
) -> None:
    ran = machine.run(*arguments, "--shell", "bash")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["lines"][0] == f"export CUDA_HOME='{machine.toolkit}';"


def test_writing_asks_first_is_repeatable_and_is_undone(machine: Machine) -> None:
    file = machine.python.parent / "activate"
    before = file.read_bytes()
    asked = machine.run("--cuda-home", "--write", "--shell", "bash")
    assert asked.returncode == 1
    assert "stdin is not a terminal" in asked.stderr
    shown = machine.run("--cuda-home", "--write", "--dry-run", "--shell", "bash")
    assert shown.returncode == 0
    assert str(file) in shown.stderr
    assert file.read_bytes() == before
    written = machine.run("--cuda-home", "--write", "--yes", "--shell", "bash")
    assert written.returncode == 0, written.stderr
    after = file.read_bytes()
    assert str(machine.toolkit).encode() in after
    again = machine.run("--cuda-home", "--write", "--yes", "--shell", "bash")
    assert "Nothing to write" in again.stderr
    assert file.read_bytes() == after
    undone = machine.run("undo", "--yes")
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert file.read_bytes() == before


def test_where_nothing_fits_nothing_is_printed_for_the_shell(
    machine: Machine, tmp_path: Path
) -> None:
    old = make(tmp_path / "cuda-12.4", "12.4")
    ran = machine.run("--cuda-home", "--shell", "bash", CUDA_HOME=str(old))
    if ran.returncode == 0:
        pytest.skip("this machine has a whole toolkit of CUDA 13 in a usual place")
    assert ran.returncode == 1
    assert ran.stdout == ""
    output = " ".join(ran.stderr.split())
    assert f"{old}: torch is built for CUDA 13.0 and refuses another major version" in output
    assert "attn-doctor fix --cuda-home --install" in output
    assert "nvidia/label/cuda-13.0." in output


def test_a_torch_that_takes_another_toolkit_is_believed(machine: Machine) -> None:
    site = next(machine.python.parent.parent.glob("lib/python*/site-packages"))
    setter = site / "zz_cuda.pth"
    setter.write_text("import os; os.environ['CUDA_HOME'] = '/elsewhere'\n")
    try:
        ran = machine.run("--cuda-home", "--shell", "bash")
    finally:
        setter.unlink()
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert "resolves CUDA_HOME to /elsewhere" in " ".join(ran.stderr.split())
    assert "something sets it when Python starts" in " ".join(ran.stderr.split())


def test_usage_errors(machine: Machine) -> None:
    for arguments, said in (
        (("--cuda-home", "--shell", "tcsh"), "--shell tcsh: unknown; choose from bash, zsh"),
        (("--cuda-home", "--write", "--write-to", "moon", "--shell", "sh"), "--write-to moon"),
    ):  # fmt: skip
        ran = machine.run(*arguments)
        assert ran.returncode == 2, ran.stderr
        assert said in " ".join(ran.stderr.split())


# The child that asks


def test_what_cannot_be_imported_is_an_answer(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('broken here')\n")
    (tmp_path / "cuda" / "pathfinder").mkdir(parents=True)
    (tmp_path / "cuda" / "pathfinder" / "__init__.py").write_text(
        "__version__ = '1.9'\nprint('noise')\n"
        "def find_nvidia_binary_utility(name): return '/w/bin/' + name\n"
        "def get_cuda_path_or_home(): return '/chosen'\n"
    )
    environ = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin"}
    found = confirm.ask(sys.executable, environ, "/chosen")
    assert [one.name for one in found] == ["torch", "cuda.pathfinder"]
    assert found[0].agrees is None
    assert found[0].says == "cannot be imported: RuntimeError: broken here"
    assert found[1].agrees is None
    assert "searches the environment's own wheels first" in found[1].says


def test_an_interpreter_that_says_nothing(tmp_path: Path) -> None:
    dead = program(tmp_path / "python", "#!/bin/sh\nexit 3\n")
    found = confirm.ask(str(dead), {}, "/chosen")
    assert found[0].agrees is None
    assert found[0].says == "could not be asked: exit code 3"


@pytest.mark.parametrize(
    "said",
    ["[]", "null", "7", '{"torch": 1}', '{"torch": {"home": 5}}', "[" * 5000, '{"triton": []}'],
)
def test_an_interpreter_that_says_something_else(tmp_path: Path, said: str) -> None:
    odd = program(tmp_path / "python", f"#!/bin/sh\necho '{said}'\n")
    found = confirm.ask(str(odd), {}, "/chosen")
    assert [one.says for one in found] == ["could not be asked: it printed no answer"]


def test_an_interpreter_that_says_little(tmp_path: Path) -> None:
    odd = program(tmp_path / "python", """#!/bin/sh\necho '{"torch": {}, "triton": {}}'\n""")
    says = [one.says for one in confirm.ask(str(odd), {}, "/chosen")]
    assert says == ["? resolves CUDA_HOME to nothing", "? uses , independent of CUDA_HOME"]
