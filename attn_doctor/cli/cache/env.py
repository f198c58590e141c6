"""`attn-doctor cache env`: set the variables of a cache folder that lasts, in the shell."""

from __future__ import annotations

import os
import sys
from enum import Enum
from typing import Annotated

import typer

from attn_doctor.cli.result_options import ResultOptions


class Shell(str, Enum):
    """The shell that reads the lines."""

    auto = "auto"
    bash = "bash"
    zsh = "zsh"
    sh = "sh"
    fish = "fish"
    powershell = "powershell"
    cmd = "cmd"


def env(
    *,
    shell: Annotated[
        Shell,
        typer.Option(
            metavar="SHELL",
            help="Shell that reads the lines: bash, zsh, sh, fish, powershell or cmd; auto: the"
            " calling shell.",
        ),
    ] = Shell.auto,
    result: ResultOptions,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only the lines, without reasons.")
    ] = False,
) -> None:
    """Print where torch and Triton should keep compiled kernels, so that they last.

    Looks for a folder that survives reboots and containers, belongs to this user, allows loading
    compiled code, lies on a local disk and has free space. Lines for the shell go to standard
    output, reasons to standard error. Nothing is created or changed.

    - bash, zsh, sh: `eval "$(attn-doctor cache env)"`
    - fish: `attn-doctor cache env | source`
    - PowerShell: `attn-doctor cache env | Out-String | Invoke-Expression`
    - cmd: `for /f "delims=" %i in ('attn-doctor cache env') do @%i`

    Exit codes: 0 a suitable folder was found, or the best available one, with its disadvantage;
    1 there is none.
    """
    from attn_doctor.host.local import LocalHost
    from attn_doctor.kernels.caches.recommended_location import choose
    from attn_doctor.shell.detect import detect, named
    from attn_doctor.shell.exports import set_variable

    host = LocalHost()
    choice = choose(host)
    name = (
        detect(dict(os.environ), windows=host.windows)
        if shell is Shell.auto
        else named(shell.value)
    )
    if result.as_json:
        from msgspec.structs import asdict

        from attn_doctor.render import json_text

        sys.stdout.write(json_text.result(shell=name, **asdict(choice)))
    else:
        sys.stdout.write(
            "".join(f"{set_variable(*pair, name)}\n" for pair in choice.variables.items())
        )
        if not quiet:
            sys.stderr.write("".join(f"{text}\n" for text in choice.reasons))
    raise typer.Exit(0 if choice.variables else 1)
