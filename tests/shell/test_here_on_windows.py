"""Commands are written for the shell that attn-doctor was started from, on Windows too."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from attn_doctor.facts import Facts, Python, System
from attn_doctor.findings import Fix, Safety
from attn_doctor.shell import commands, detect

PYTHON = r"C:\Users\Max Müller\ComfyUI\venv\Scripts\python.exe"
FACTS = Facts(system=System(os="windows"), python=Python(path=PYTHON, pip="25.0"))
FIX = Fix(
    title="Build it",
    safety=Safety.ASK,
    run=(("MAX_JOBS=4", "pip", "install", "flash-attn>=2.8.3"),),
)


@pytest.fixture(autouse=True)
def _forget() -> None:
    detect.here_on_windows.cache_clear()


@pytest.mark.parametrize(
    ("program", "lines"),
    [
        ("cmd.exe", ['set "MAX_JOBS=4"', f'"{PYTHON}" -m pip install "flash-attn>=2.8.3"']),
        ("pwsh", ["$env:MAX_JOBS = '4'", f'& "{PYTHON}" -m pip install "flash-attn>=2.8.3"']),
        ("bash", [f"MAX_JOBS=4 '{PYTHON}' -m pip install 'flash-attn>=2.8.3'"]),
        ("", ["$env:MAX_JOBS = '4'", f'& "{PYTHON}" -m pip install "flash-attn>=2.8.3"']),
    ],
)
def test_lines_fit_the_shell_above(
    program: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect, "_nearest", lambda: program)
    monkeypatch.setattr(commands, "_ON_WINDOWS", True)
    assert commands.shell_lines(FIX, FACTS) == lines


def test_another_windows_gets_lines_for_powershell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_ON_WINDOWS", False)
    assert commands.shell_of(FACTS) == "powershell"
    assert commands.shell_of(replace(FACTS, system=System(os="linux"))) == "sh"


def test_an_interpreter_of_posix_in_a_log_gets_lines_for_sh(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "_ON_WINDOWS", True)
    log = Facts(python=Python(path="/workspace/venv/bin/python", selection_reason="the log"))
    assert commands.shell_of(log) == "sh"


def test_what_cmd_cannot_quote_becomes_its_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "_nearest", lambda: "cmd")
    monkeypatch.setattr(commands, "_ON_WINDOWS", True)
    assert commands.line(["del", "100%.txt"]).startswith("rem not written: cmd cannot quote the %")
