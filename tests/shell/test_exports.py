"""The shells themselves run the lines that set variables, where these shells are installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from attn_doctor.errors import AttnDoctorError
from attn_doctor.shell.exports import Exports, eval_lines, set_variable, start_lines
from attn_doctor.shell.quote import SHELLS, Shell
from tests.shells import UTF8, path_of

VALUES = [
    "/home/ada/.cache/torchinductor",
    "/tmp/with space/and $HOME and `id`",
    '/tmp/it\'s "quoted" \\n \\ back',
    "C:\\Users\\Ada\\AppData\\Local",
    "/tmp/ünïcode/漢字",
    "-n",
    "!history ; rm -rf * & # %PATH%",
]
PROGRAMS: dict[Shell, list[str]] = {
    "bash": ["bash", "--norc", "-c"],
    "zsh": ["zsh", "-f", "-c"],
    "sh": ["dash", "-c"],
    "fish": ["fish", "--no-config", "-c"],
    "powershell": ["pwsh", "-NoProfile", "-Command"],
}
SHOW = f"{sys.executable} -c \"import os; print(ascii(os.environ['WHERE']))\""


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("shell", PROGRAMS)
def test_every_shell_takes_the_value_as_it_is(shell: Shell, value: str) -> None:
    program, *options = PROGRAMS[shell]
    code = f"{set_variable('WHERE', value, shell)}\n{SHOW}"
    done = subprocess.run(
        [path_of(program), *options, code], capture_output=True, text=True, timeout=60,
        check=False, env={**os.environ, "LC_ALL": UTF8},
    )  # fmt: skip
    assert done.stdout.strip() == ascii(value), done.stderr


def test_powershell_lines_double_every_kind_of_quote() -> None:
    assert set_variable("A", "it's ‘so’", "powershell") == "$env:A = 'it''s ‘‘so’’'"


@pytest.mark.parametrize("value", ["a\nb", "a\0b", "\x1b[31m"])
def test_control_characters_in_a_value_are_refused(value: str) -> None:
    with pytest.raises(AttnDoctorError, match="control character"):
        set_variable("WHERE", value, "bash")


#: A shell, the program, and how it evaluates the output of a command.
EVALUATE: list[tuple[Shell, str, str]] = [
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


def run(program: str, script: str, **variables: str) -> str:
    path = path_of(program)
    option = ["-NoProfile", "-Command"] if program == "pwsh" else ["-c"]
    # fish writes into its home, so it gets one of its own.
    with tempfile.TemporaryDirectory() as home:
        environ = {"PATH": "/usr/bin:/bin", "HOME": home, "LC_ALL": UTF8, **variables}
        ran = subprocess.run(
            [path, *option, script], env=environ, capture_output=True, timeout=60, check=False
        )
    assert ran.stderr == b"", ran.stderr
    return ran.stdout.decode()


@pytest.mark.parametrize(("shell", "name", "evaluate"), EVALUATE)
@pytest.mark.parametrize("root", ODD)
def test_lines_set_exactly_these_variables(
    tmp_path: Path, shell: Shell, name: str, evaluate: str, root: str
) -> None:
    exports = Exports(variables={"CUDA_HOME": root, "CUDA_PATH": root}, path=f"{root}/bin")
    file = tmp_path / "lines"
    file.write_text("\n".join(eval_lines(exports, shell)) + "\n", "utf-8")
    if evaluate == "eval $({})" and (" " in root or "\\" in root):
        pytest.skip("an unquoted substitution splits words; the quoted one is what the help says")
    shown = "env" if name != "pwsh" else "& /usr/bin/env"
    printed = run(name, f"{evaluate.format(f'cat {file}')}; {shown}")
    found = dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)
    assert found["CUDA_HOME"] == found["CUDA_PATH"] == root
    # PowerShell puts its own folder on PATH when it starts.
    own = f"{Path(path_of(name)).resolve().parent}:" if name == "pwsh" else ""
    assert found["PATH"] == f"{root}/bin:{own}/usr/bin:/bin"


@pytest.mark.parametrize(("shell", "name"), [("bash", "bash"), ("sh", "dash"), ("zsh", "zsh"),
                                             ("fish", "fish")])  # fmt: skip
def test_a_start_file_read_twice_adds_to_path_once(tmp_path: Path, shell: Shell, name: str) -> None:
    exports = Exports(variables={"CUDA_HOME": "/o p"}, path="/o p/bin")
    file = tmp_path / "start"
    file.write_text("\n".join(start_lines(exports, shell)) + "\n")
    printed = run(name, f". {file}; . {file}; env" if shell != "fish" else
               f"source {file}; source {file}; env")  # fmt: skip
    assert "PATH=/o p/bin:/usr/bin:/bin" in printed.splitlines()
    assert "CUDA_HOME=/o p" in printed.splitlines()


def test_a_posix_start_file_works_with_set_u_and_an_empty_path(tmp_path: Path) -> None:
    file = tmp_path / "start"
    lines = start_lines(Exports(variables={"A": "b"}, path="/x/bin"), "sh")
    file.write_text("\n".join(lines) + "\n")
    assert "PATH=/x/bin" in run("bash", f"set -eu; unset PATH; . {file}; /usr/bin/env").splitlines()


def test_powershell_lines() -> None:
    exports = Exports(variables={"CUDA_HOME": r"C:\CUDA\it's"}, path=r"C:\CUDA\bin")
    assert eval_lines(exports, "powershell") == [
        r"$env:CUDA_HOME = 'C:\CUDA\it''s';",
        r"$env:PATH = 'C:\CUDA\bin' + [IO.Path]::PathSeparator + $env:PATH;",
    ]
    assert os.linesep not in "".join(eval_lines(exports, "powershell"))


def test_cmd_lines() -> None:
    exports = Exports(variables={"CUDA_HOME": r"C:\it's & so"}, path=r"C:\CUDA\bin")
    assert eval_lines(exports, "cmd") == [
        """set "CUDA_HOME=C:\\it's & so\"""",
        'set "PATH=C:\\CUDA\\bin;%PATH%"',
    ]
    with pytest.raises(AttnDoctorError, match="cmd cannot quote the %"):
        set_variable("A", "100%", "cmd")


def test_an_empty_value_unsets_the_variable() -> None:
    lines = {shell: set_variable("A", "", shell) for shell in SHELLS}
    assert lines == {
        "bash": "unset A", "zsh": "unset A", "sh": "unset A", "fish": "set -e A",
        "powershell": "Remove-Item Env:A", "cmd": 'set "A="',
    }  # fmt: skip


@pytest.mark.parametrize("shell", ["bash", "sh", "zsh", "fish"])
def test_a_folder_of_windows_is_one_entry_of_path(shell: Shell) -> None:
    """Git Bash is a shell of Windows: a colon in an entry would make two of it."""
    exports = Exports(variables={"CUDA_HOME": r"C:\CUDA\v12.8"}, path=r"C:\CUDA\v12.8\bin")
    lines = [*eval_lines(exports, shell), *start_lines(exports, shell)]
    assert sum("/c/CUDA/v12.8/bin" in line for line in lines) == 2
    assert sum(r"C:\CUDA\v12.8\bin" in line for line in lines) == 0
    program, *options = PROGRAMS[shell]
    show = f"{sys.executable} -c \"import os; print(os.environ['PATH'].split(':')[0])\""
    for some in (eval_lines(exports, shell), start_lines(exports, shell)):
        done = subprocess.run(
            [path_of(program), *options, "\n".join([*some, show])],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stdout == "/c/CUDA/v12.8/bin\n"
    assert eval_lines(exports, "cmd")[-1] == r'set "PATH=C:\CUDA\v12.8\bin;%PATH%"'
