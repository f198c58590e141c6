"""Which shell the user types into, and its start file."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import shellingham

from attn_doctor.errors import AttnDoctorError
from attn_doctor.shell import detect
from attn_doctor.shell.quote import SHELLS
from tests.shells import path_of


def nearest(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make `name` the nearest shell above this process; empty: there is none."""

    def detect_shell() -> tuple[str, str]:
        if not name:
            raise shellingham.ShellDetectionFailure
        return name, f"/bin/{name}"

    monkeypatch.setattr(shellingham, "detect_shell", detect_shell)


@pytest.mark.parametrize(
    ("name", "login", "windows", "expected"),
    [
        ("zsh", "/bin/bash", False, "zsh"),
        ("bash", "", False, "bash"),
        ("pwsh", "/bin/bash", False, "powershell"),
        ("dash", "/bin/bash", False, "sh"),
        ("ksh", "/bin/bash", False, "sh"),
        ("", "/usr/bin/fish", False, "fish"),
        ("", "", False, "sh"),
        ("", "", True, "powershell"),
        ("cmd", "", True, "cmd"),
    ],
)
def test_the_nearest_shell_is_the_users(
    monkeypatch: pytest.MonkeyPatch, name: str, login: str, windows: bool, expected: str
) -> None:
    nearest(monkeypatch, name)
    assert detect.detect({"SHELL": login} if login else {}, windows=windows) == expected


def test_a_shell_without_such_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    nearest(monkeypatch, "tcsh")
    with pytest.raises(AttnDoctorError, match="no lines can be printed for tcsh"):
        detect.detect({}, windows=False)


def test_a_system_without_process_lists_has_the_login_shell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def detect_shell() -> tuple[str, str]:
        raise RuntimeError("Shell detection not implemented")

    monkeypatch.setattr(shellingham, "detect_shell", detect_shell)
    assert detect.detect({"SHELL": "/usr/bin/fish"}, windows=False) == "fish"


@pytest.mark.native
@pytest.mark.parametrize("shell", ["bash", "zsh", "dash", "fish"])
def test_the_shell_that_asks_is_detected(shell: str) -> None:
    code = (
        "from attn_doctor.shell.detect import detect;"
        "print(detect({'SHELL': '/bin/nologin'}, windows=False))"
    )
    # A second command keeps the shell from replacing itself by the first.
    done = subprocess.run(
        [path_of(shell), "-c", f'{sys.executable} -c "{code}"; true'],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == {"dash": "sh"}.get(shell, shell)


def test_an_unknown_name_lists_the_known_ones() -> None:
    assert [detect.named(shell) for shell in SHELLS] == [*SHELLS]
    with pytest.raises(
        AttnDoctorError, match="--shell tcsh: unknown; choose from bash, zsh, sh, fish"
    ):
        detect.named("tcsh")


def test_cmd_has_no_start_file() -> None:
    with pytest.raises(AttnDoctorError, match="cmd reads no start file"):
        detect.start_file("cmd", {"HOME": os.sep})


def test_every_shell_has_its_own_way_to_evaluate() -> None:
    ways = {shell: detect.how_to_eval(shell, "attn-doctor cache env") for shell in SHELLS}
    assert ways["bash"] == ways["zsh"] == ways["sh"] == 'eval "$(attn-doctor cache env)"'
    assert ways["fish"] == "attn-doctor cache env | source"
    assert ways["powershell"] == 'Invoke-Expression "$(attn-doctor cache env)"'
    assert ways["cmd"] == "for /f \"delims=\" %i in ('attn-doctor cache env') do @%i"
