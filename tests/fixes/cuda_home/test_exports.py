"""The lines are carried out by the shells themselves, as far as they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from attn_doctor.fixes.cuda_home.activation_hooks import start
from attn_doctor.fixes.cuda_home.candidate import Candidate, Compiler
from attn_doctor.fixes.cuda_home.exports import Exports, apply, lines, needed, quoted
from attn_doctor.host.local import LocalHost
from tests.fixes.cuda_home.trees import program

#: A shell, the program, and how it evaluates the output of a command.
SHELLS = [
    ("bash", "bash", 'eval "$({})"'),
    ("bash", "bash", "eval $({})"),
    ("sh", "dash", 'eval "$({})"'),
    ("zsh", "zsh", 'eval "$({})"'),
    ("fish", "fish", 'eval "$({})"'),
    ("fish", "fish", "{} | source"),
    ("powershell", "pwsh", 'Invoke-Expression "$({})"'),
]
#: Folders that exist nowhere, with all that shells care about.
ODD = ["/opt/cuda-13.0", "/opt/my cuda", "/opt/it's", '/opt/"q"$HOME`id`', "/opt/back\\slash", "/ö"]


def run(shell: str, script: str, **variables: str) -> str:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    option = ["-NoProfile", "-Command"] if shell == "pwsh" else ["-c"]
    # fish writes into its home, so it gets one of its own.
    with tempfile.TemporaryDirectory() as home:
        environ = {"PATH": "/usr/bin:/bin", "HOME": home, "LC_ALL": "C.UTF-8", **variables}
        ran = subprocess.run(
            [path, *option, script], env=environ, capture_output=True, timeout=60, check=False
        )
    assert ran.stderr == b"", ran.stderr
    return ran.stdout.decode()


@pytest.mark.parametrize(("shell", "name", "evaluate"), SHELLS)
@pytest.mark.parametrize("root", ODD)
def test_lines_set_exactly_these_variables(
    tmp_path: Path, shell: str, name: str, evaluate: str, root: str
) -> None:
    exports = Exports(variables={"CUDA_HOME": root, "CUDA_PATH": root}, path=f"{root}/bin")
    file = tmp_path / "lines"
    file.write_text("\n".join(lines(exports, shell)) + "\n", "utf-8")
    if evaluate == "eval $({})" and (" " in root or "\\" in root):
        pytest.skip("an unquoted substitution splits words; the quoted one is what we tell")
    shown = "env" if name != "pwsh" else "& /usr/bin/env"
    told = run(name, f"{evaluate.format(f'cat {file}')}; {shown}")
    found = dict(line.split("=", 1) for line in told.splitlines() if "=" in line)
    assert found["CUDA_HOME"] == found["CUDA_PATH"] == root
    assert found["PATH"] == f"{root}/bin:/usr/bin:/bin"


@pytest.mark.parametrize(("shell", "name"), [("bash", "bash"), ("sh", "dash"), ("zsh", "zsh"),
                                             ("fish", "fish")])  # fmt: skip
def test_a_start_file_read_twice_adds_to_path_once(tmp_path: Path, shell: str, name: str) -> None:
    exports = Exports(variables={"CUDA_HOME": "/o p"}, path="/o p/bin")
    file = tmp_path / "start"
    file.write_text("\n".join(start(exports, shell)) + "\n")
    told = run(name, f". {file}; . {file}; env" if shell != "fish" else
               f"source {file}; source {file}; env")  # fmt: skip
    assert "PATH=/o p/bin:/usr/bin:/bin" in told.splitlines()
    assert "CUDA_HOME=/o p" in told.splitlines()


def test_a_posix_start_file_bears_set_u_and_an_empty_path(tmp_path: Path) -> None:
    file = tmp_path / "start"
    file.write_text("\n".join(start(Exports(variables={"A": "b"}, path="/x/bin"), "sh")) + "\n")
    assert "PATH=/x/bin" in run("bash", f"set -eu; unset PATH; . {file}; /usr/bin/env").splitlines()


def toolkit(folder: Path) -> Candidate:
    program(folder / "bin" / "nvcc", "#!/bin/true\n")
    return Candidate(root=str(folder), source="PATH", version="13.0")


def test_path_is_left_alone_where_it_leads_to_the_same_nvcc(tmp_path: Path) -> None:
    chosen = toolkit(tmp_path / "cuda")
    host = LocalHost()
    bin = f"{chosen.root}/bin"
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "nvcc").symlink_to(f"{bin}/nvcc")
    program(tmp_path / "scripts" / "nvcc", f'#!/bin/sh\nexec {bin}/nvcc "$@"\n')
    other = program(tmp_path / "other" / "nvcc", "#!/bin/true\n").parent
    for path, expected in (
        ("/usr/bin", bin),
        (f"/usr/bin:{bin}", "" if not shutil.which("nvcc", path="/usr/bin") else bin),
        (f"{tmp_path}/links:/bin", ""),
        (f"{tmp_path}/scripts:/bin", ""),
        (f"{other}:{bin}", bin),
    ):
        found = needed(host, chosen, {"PATH": path})
        assert found.path == expected, path
        assert found.variables == {"CUDA_HOME": chosen.root, "CUDA_PATH": chosen.root}


def test_host_compilers_are_set_only_where_they_have_to_be(tmp_path: Path) -> None:
    chosen = toolkit(tmp_path / "cuda")
    named = Candidate(
        root=chosen.root, source="", compiler=Compiler(cc="/usr/bin/gcc-12", cxx="/usr/bin/g++-12")
    )
    found = needed(LocalHost(), named, {"PATH": "/usr/bin"}).variables
    assert found["CC"] == "/usr/bin/gcc-12"
    assert found["CXX"] == "/usr/bin/g++-12"


def test_ld_library_path_is_never_set(tmp_path: Path) -> None:
    found = needed(LocalHost(), toolkit(tmp_path / "cuda"), {"PATH": "/usr/bin"})
    for shell in ("bash", "fish", "powershell"):
        assert not any("LD_LIBRARY_PATH" in line for line in lines(found, shell))


def test_the_environment_afterwards() -> None:
    exports = Exports(variables={"CUDA_HOME": "/a"}, path="/a/bin")
    assert apply(exports, {"PATH": "/b", "X": "1"}) == {
        "PATH": "/a/bin:/b", "X": "1", "CUDA_HOME": "/a",
    }  # fmt: skip
    assert apply(exports, {})["PATH"] == "/a/bin"


def test_powershell_lines() -> None:
    exports = Exports(variables={"CUDA_HOME": r"C:\CUDA\it's"}, path=r"C:\CUDA\bin")
    assert lines(exports, "powershell") == [
        r"$env:CUDA_HOME = 'C:\CUDA\it''s';",
        r"$env:PATH = 'C:\CUDA\bin' + [IO.Path]::PathSeparator + $env:PATH;",
    ]
    assert quoted("a", "powershell") == "'a'"
    assert os.linesep not in "".join(lines(exports, "powershell"))
