"""The command line: a room for each command, thin: parse, call, render, exit code.

Only the command that was asked for imports what it needs; `attn-doctor check` has to be quick.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

#: Command → module below this package and what to take of it, in the order of the help page.
_COMMANDS = {
    "check": ("check.command", "check"),
    "backends": ("backends.command", "backends"),
    "explain": ("explain", "explain"),
    "fix": ("fix.command", "fix"),
    "report": ("report", "report"),
    "build-kernels": ("build_kernels.command", "build_kernels"),
    "describe-gpu": ("build_kernels.describe_gpu", "describe_gpu"),
    "cache": ("cache.command", "app"),
    "rules": ("rules.command", "app"),
}


def run() -> None:
    """Do what the command line says. Raises `SystemExit`."""
    app_for(sys.argv[1:])()


def app_for(words: Sequence[str]) -> typer.Typer:
    """The application for a command line: its one command, or all where it names none.

    typer builds every command that it knows at each start, which takes longer than a check.
    """
    app = typer.Typer(
        name="attn-doctor",
        help="Which attention kernels work on this machine, why the others do not, and the fix.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        # Brackets stay as they are, and paragraphs are filled to the width of the terminal.
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(main)
    first = next((word for word in words if not word.startswith("-")), "")
    completing = "_ATTN_DOCTOR_COMPLETE" in os.environ
    for name in [first] if first in _COMMANDS and not completing else _COMMANDS:
        _add(app, name)
    return app


def _add(app: typer.Typer, name: str) -> None:
    place, attribute = _COMMANDS[name]
    module = importlib.import_module(f"attn_doctor.cli.{place}")
    found = getattr(module, attribute)
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name)
    else:
        app.command(name, epilog=getattr(module, "EPILOG", None))(found)


def _version(wanted: bool) -> None:
    if wanted:
        from attn_doctor._version import __version__

        typer.echo(f"attn-doctor {__version__}")
        raise typer.Exit


def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Which attention kernels work on this machine, why the others do not, and the fix."""
