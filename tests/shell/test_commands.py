"""Fixes and calls of attn-doctor as lines for a shell."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from attn_doctor.facts import Facts, Python, System
from attn_doctor.findings import Fix, Safety
from attn_doctor.shell import commands, installers
from attn_doctor.shell.commands import (
    argv_for,
    attn_doctor,
    build,
    in_text,
    python_option,
    shell_lines,
    verify,
)

LINUX = Facts(system=System(os="linux"), python=Python(path="/srv/my env/bin/python", pip="24.0"))
UV = Facts(
    system=System(os="linux"), python=Python(path="/srv/bin/python", pip="", uv="/usr/bin/uv")
)
WINDOWS = Facts(
    system=System(os="windows"), python=Python(path=r"C:\My Env\python.exe", pip="24.0")
)


def _fix(*run: tuple[str, ...], **exports: str) -> Fix:
    return Fix(title="t", safety=Safety.ASK, run=run, exports=exports)


def test_pip_means_the_examined_environment() -> None:
    lines = shell_lines(_fix(("pip", "install", "triton==3.4.*")), LINUX)
    assert lines == ["'/srv/my env/bin/python' -m pip install 'triton==3.4.*'"]


def test_an_environment_without_pip_is_served_by_uv() -> None:
    assert argv_for(("pip", "uninstall", "-y", "triton"), UV) == (
        "/usr/bin/uv", "pip", "uninstall", "--python", "/srv/bin/python", "triton",
    )  # fmt: skip


def test_uv_upgrades_the_named_packages_alone() -> None:
    """`uv pip install --upgrade accelerate` replaces torch by its newest release."""
    command = ("pip", "install", "--upgrade", "diffusers>=0.36", "flash-attn-4[cu13]")
    assert argv_for(command, UV)[5:] == (
        "--upgrade-package", "diffusers", "--upgrade-package", "flash-attn-4",
        "diffusers>=0.36", "flash-attn-4[cu13]",
    )  # fmt: skip


def test_the_downloads_that_are_kept_are_those_of_uv() -> None:
    assert argv_for(("pip", "cache", "purge"), UV) == ("/usr/bin/uv", "cache", "clean")


def test_pip_overwrites_a_package_without_a_list_of_files() -> None:
    again = ("pip", "install", "--force-reinstall", "--no-deps", "torch==2.13.0")
    python = Python(path="/srv/bin/python", pip="26.2")
    facts = Facts(system=System(os="linux"), python=python, unrecorded_packages=("torch",))
    assert argv_for(again, facts)[3:] == (
        "install", "--ignore-installed", "--no-deps", "torch==2.13.0",
    )  # fmt: skip
    assert argv_for(("pip", "install", "numpy"), facts)[3:] == ("install", "numpy")
    by_uv = Facts(
        system=System(os="linux"),
        python=Python(path="/srv/bin/python", pip="", uv="/usr/bin/uv"),
        unrecorded_packages=("torch",),
    )
    assert argv_for(again, by_uv)[5:] == again[2:]


def test_the_python_of_a_portable_build_leaves_out_packages_of_the_user() -> None:
    path = r"C:\ComfyUI\python_embeded\python.exe"
    python = Python(path=path, pip="25.2", environment="embeddable")
    command = ("pip", "install", "triton-windows<3.6")
    facts = Facts(system=System(os="windows"), python=python)
    assert argv_for(command, facts) == (path, "-s", "-m", *command)
    assert shell_lines(_fix(command), facts) == [f'{path} -s -m pip install "triton-windows<3.6"']
    without = Facts(
        system=System(os="windows"), python=Python(path=path, pip="", environment="embeddable")
    )
    assert shell_lines(_fix(command), without) == [
        f'{path} -s -m pip install "triton-windows<3.6"'  # it has no ensurepip
    ]
    assert "no ensurepip: install pip with get-pip.py" in installers.obstacle(without)


def test_a_call_of_attn_doctor_names_the_environment_that_the_user_named() -> None:
    command = ("attn-doctor", "build-kernels", "--cache-dir", "/opt/kernels")
    asked = Facts(python=Python(path="/srv/my env/bin/python", selection_reason="--python"))
    assert argv_for(command, asked) == (*command, "--python", "/srv/my env/bin/python")
    found = Facts(python=Python(path="/srv/my env/bin/python", selection_reason="VIRTUAL_ENV"))
    assert argv_for(command, found) == command


def test_root_needs_no_sudo() -> None:
    command = ("sudo", "apt-get", "install", "-y", "gcc")
    assert argv_for(command, LINUX) == command
    root = Facts(system=System(os="linux", user_is_root=True))
    assert argv_for(command, root) == ("apt-get", "install", "-y", "gcc")


def test_without_any_interpreter_the_command_stays_as_written() -> None:
    assert argv_for(("pip", "install", "x"), Facts()) == ("pip", "install", "x")
    assert argv_for(("apt-get", "install", "gcc"), LINUX) == ("apt-get", "install", "gcc")


@pytest.mark.parametrize("value", ["plain", "two words", "a'b", "$HOME;rm", '"x"'])
@pytest.mark.posix
def test_a_posix_shell_reads_back_exactly_what_was_meant(value: str) -> None:
    lines = shell_lines(_fix(("MAX_JOBS=" + value, "printf", "%s", value), CC=value), LINUX)
    assert lines[0] == f"export CC={shlex.quote(value)}"
    script = f"{lines[0]}\nprintf '%s|' \"$CC\"\n{lines[1]}"
    printed = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert printed == f"{value}|{value}"


def test_an_empty_export_unsets() -> None:
    assert shell_lines(_fix(TRITON_PTXAS_PATH=""), LINUX) == ["unset TRITON_PTXAS_PATH"]
    assert shell_lines(_fix(CC=""), WINDOWS) == ["Remove-Item Env:CC"]


def test_powershell() -> None:
    lines = shell_lines(
        _fix(("MAX_JOBS=2", "pip", "install", "a b"), CUDA_HOME=r"C:\it's"), WINDOWS
    )
    assert lines == [
        r"$env:CUDA_HOME = 'C:\it''s'",
        "$env:MAX_JOBS = '2'",
        r'& "C:\My Env\python.exe" -m pip install "a b"',
    ]


def test_powershell_doubles_typographic_quotes_in_a_fix() -> None:
    user = Facts(system=System(os="windows"), python=Python(path=r"C:\Users\O’Brien\python.exe"))
    fix = _fix(("pip", "install", "triton-windows"), CUDA_HOME="C:\\Users\\O’Brien")
    assert shell_lines(fix, user) == [
        r"$env:CUDA_HOME = 'C:\Users\O’’Brien'",
        r'& "C:\Users\O’Brien\python.exe" -m pip install triton-windows',
    ]


@pytest.mark.parametrize("facts", [LINUX, WINDOWS])
def test_a_command_with_a_control_character_is_not_written(facts: Facts) -> None:
    (line,) = shell_lines(_fix(("echo", "new\nline")), facts)
    assert line.startswith("# not written: 'new\\nline' contains a control character")
    assert "\n" not in attn_doctor("check", "a\nb")


NAMED = Facts(python=Python(path="/my env/bin/python", selection_reason="--python"))
ACTIVE = Facts(python=Python(path="/venv/bin/python", selection_reason="VIRTUAL_ENV is set"))


@pytest.mark.posix
def test_an_environment_is_named_only_if_it_was() -> None:
    assert python_option(NAMED) == ("--python", "/my env/bin/python")
    assert python_option(ACTIVE) == ()
    assert attn_doctor("cache", "why", facts=NAMED) == (
        "attn-doctor cache why --python '/my env/bin/python'"
    )


@pytest.mark.posix
def test_folders_and_programs_are_quoted() -> None:
    assert (
        verify(Path("/opt/my kernels")) == "attn-doctor cache verify --cache-dir '/opt/my kernels'"
    )
    assert verify("/k", ACTIVE, ["python", "a b.py"]) == (
        "attn-doctor cache verify --cache-dir /k -- python 'a b.py'"
    )
    assert build("/k", NAMED, "--target", "h200", program=["x"]) == (
        "attn-doctor build-kernels --cache-dir /k --target h200 --python '/my env/bin/python' -- x"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run `attn-doctor check` first", "run `attn-doctor check --python <P>` first"),
        (
            'eval "$(attn-doctor fix --cuda-home)"',
            'eval "$(attn-doctor fix --cuda-home --python <P>)"',
        ),
        ("`attn-doctor cache verify -n`", "`attn-doctor cache verify --python <P> -n`"),
        ("`attn-doctor check --python PATH`", "`attn-doctor check --python PATH`"),
        ("`attn-doctor cache env` is for all", "`attn-doctor cache env` is for all"),
        ("attn-doctor checked it", "attn-doctor checked it"),
    ],
)
@pytest.mark.posix
def test_a_command_in_a_text_names_the_environment(text: str, expected: str) -> None:
    assert in_text(text, NAMED) == expected.replace("<P>", "'/my env/bin/python'")
    assert in_text(text, ACTIVE) == text


@pytest.mark.posix
def test_a_word_that_no_shell_reads_is_escaped() -> None:
    assert commands.word("/a b") == "'/a b'"
    assert commands.word("/a\x1b[31m") == "'/a\\x1b[31m'"
    assert commands.line(("pip", "a\nb")).startswith("# not written: ")
