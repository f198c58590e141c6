"""The command line: each command parses, calls, renders and returns an exit code.

Only the requested command is imported, because `attn-doctor check` has to be quick.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from attn_doctor.cli.foreign_option import accepting
from attn_doctor.cli.option_groups import grouped

EPILOG = """
Without a command, `attn-doctor` runs `check`.

Exit codes: 0 healthy, 1 problems found, 2 wrong usage or unreadable input, 3 attn-doctor failed, 4
(with --strict) a rule could not be evaluated, 130 interrupted.

Set ATTN_DOCTOR_LOG=debug to log each step to standard error.
"""
#: Command → its module below this package and the name there, in the order of the help page.
_COMMANDS = {
    "check": ("check.command", "check"),
    "backends": ("backends.command", "backends"),
    "explain": ("explain", "explain"),
    "fix": ("fix.command", "app"),
    "report": ("report", "report"),
    "build-kernels": ("build_kernels.command", "build_kernels"),
    "describe-gpu": ("build_kernels.describe_gpu", "describe_gpu"),
    "cache": ("cache.command", "app"),
    "rules": ("rules.command", "app"),
}


#: Options of `attn-doctor` itself. A command line that begins with another option, or is empty,
#: means `check`.
_OWN_OPTIONS = ("-h", "--help", "--version", "--install-completion", "--show-completion")


def run() -> None:
    """Run the command line. Raises `SystemExit`."""
    words = sys.argv[1:]
    if not re.fullmatch("[1-9][0-9]{0,3}", os.environ.get("COLUMNS", "1")):
        del os.environ["COLUMNS"]  # rich would fill lines of a hundred megabytes
    if not words or (words[0].startswith("-") and words[0] not in _OWN_OPTIONS):
        words = ["check", *words]
    words = with_folder(words)
    app_for(words)(args=words)


def with_folder(words: Sequence[str]) -> list[str]:
    """The words with this folder behind a `--config` that no path follows."""
    found = []
    for word, following in zip(words, [*words[1:], "-"], strict=True):
        found.append(word)
        if word == "--config" and following.startswith("-"):
            found.append(".")
    return found


def app_for(words: Sequence[str]) -> typer.Typer:
    """The application for a command line: its one command, or all commands if it names none.

    typer builds every command that it knows at each start, which takes longer than a check.
    """
    app = typer.Typer(
        name="attn-doctor",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        # Brackets stay unchanged, and paragraphs are filled to the width of the terminal.
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=EPILOG,
    )
    app.callback()(main)
    first = next((word for word in words if not word.startswith("-")), "")
    completing = "_ATTN_DOCTOR_COMPLETE" in os.environ
    for name in [first] if first in _COMMANDS and not completing else _COMMANDS:
        _add(app, name)
    return app


def _add(app: typer.Typer, name: str) -> None:
    location, attribute = _COMMANDS[name]
    module = importlib.import_module(f"attn_doctor.cli.{location}")
    command = getattr(module, attribute)
    if isinstance(command, typer.Typer):
        for each in command.registered_commands:
            if each.callback is not None:
                each.callback = grouped(each.callback)
                if name != "rules":
                    each.callback = accepting(each.callback)
        app.add_typer(command, name=name)
    else:
        epilog = getattr(module, "EPILOG", None)
        app.command(name, epilog=epilog)(accepting(grouped(command)))


def _version(requested: bool) -> None:
    if requested:
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
    """Find out which attention kernels work on this machine, why others do not, and the fix."""
