"""What `cache env` prints does the right thing in the real shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from attn_doctor.errors import AttnDoctorError
from attn_doctor.shell.environment_lines import detected, line

VALUES = [
    "/home/ada/.cache/torchinductor",
    "/tmp/with space/and $HOME and `id`",
    '/tmp/it\'s "quoted" \\n \\ back',
    "C:\\Users\\Ada\\AppData\\Local",
    "/tmp/ünïcode/漢字",
    "-n",
    "!history ; rm -rf * & # %PATH%",
]
SHELLS = {
    "bash": ["bash", "--norc", "-c"],
    "zsh": ["zsh", "-f", "-c"],
    "sh": ["dash", "-c"],
    "fish": ["fish", "--no-config", "-c"],
    "powershell": ["pwsh", "-NoProfile", "-Command"],
}
SHOW = f"{sys.executable} -c \"import os; print(ascii(os.environ['WHERE']))\""


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_takes_the_value_as_it_is(shell: str, value: str) -> None:
    argv = SHELLS[shell]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed")
    code = f"{line(shell, 'WHERE', value)}\n{SHOW}"
    done = subprocess.run(
        [*argv, code], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    assert done.stdout.strip() == ascii(value), done.stderr


def test_powershell_lines_double_every_kind_of_quote() -> None:
    assert line("powershell", "A", "it's ‘so’") == "$env:A = 'it''s ‘‘so’’'"


@pytest.mark.parametrize("value", ["a\nb", "a\0b", "\x1b[31m"])
def test_control_characters_are_refused(value: str) -> None:
    with pytest.raises(AttnDoctorError, match="control character"):
        line("bash", "WHERE", value)


@pytest.mark.parametrize("shell", ["bash", "zsh", "dash", "fish"])
def test_the_asking_shell_is_found(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    code = (
        "from attn_doctor.shell.environment_lines import detected;"
        "print(detected({'SHELL': '/bin/nologin'}, windows=False))"
    )
    # A second command keeps the shell from replacing itself by the first.
    done = subprocess.run(
        [shell, "-c", f'{sys.executable} -c "{code}"; true'],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == {"dash": "sh"}.get(shell, shell)


def test_without_a_shell_above_the_login_shell_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "attn_doctor.shell.environment_lines._above", lambda: iter(["python3", "systemd"])
    )
    assert detected({"SHELL": "/usr/bin/fish"}, windows=False) == "fish"
    assert detected({}, windows=False) == "sh"
    assert detected({}, windows=True) == "powershell"
