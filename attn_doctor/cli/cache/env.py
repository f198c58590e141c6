"""`attn-doctor cache env`: where caches should lie so that they last, as lines for the shell."""

from __future__ import annotations

import os
import sys
from enum import Enum
from typing import Annotated

import typer

from attn_doctor.cli.format_option import Format


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
    shell: Annotated[
        Shell, typer.Option(help="The shell that will read the lines. auto: the one that asks.")
    ] = Shell.auto,
    format: Annotated[
        Format, typer.Option(help="text: lines for the shell; json: with the reasons.")
    ] = Format.text,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Only the lines, no reasons.")
    ] = False,
) -> None:
    """Print where torch and Triton should keep compiled kernels, so that they survive.

    Looks for a folder that outlives reboots and containers, is this user's own, allows compiled
    code to be loaded, lies on a disk of this machine and has room. Lines for the shell go to
    standard output, reasons to standard error. Nothing is created or changed.

    - bash, zsh, sh: `eval "$(attn-doctor cache env)"`
    - fish: `attn-doctor cache env | source`
    - PowerShell: `attn-doctor cache env | Out-String | Invoke-Expression`

    Exit codes: 0 a good place was found, or the best one with its fault told; 1 there is none.
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
    if format is Format.json:
        import msgspec

        whole = {"schema": 1, "shell": name, **msgspec.to_builtins(choice)}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n")
    else:
        sys.stdout.write(
            "".join(f"{set_variable(*pair, name)}\n" for pair in choice.variables.items())
        )
        if not quiet:
            sys.stderr.write("".join(f"{text}\n" for text in choice.told))
    raise typer.Exit(0 if choice.variables else 1)
