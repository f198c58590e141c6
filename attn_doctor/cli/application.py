"""The application that typer runs: its commands, options and help pages."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from attn_doctor.cli import mistakes
from attn_doctor.cli.commands import Commands
from attn_doctor.cli.foreign_option import accepting
from attn_doctor.cli.once import Once
from attn_doctor.cli.option_groups import grouped
from attn_doctor.cli.plain import COMPLETION
from attn_doctor.cli.program_arguments import WithProgram

EPILOG = """
Without a command, `attn-doctor` runs `check`.

Exit codes: 0 healthy, 1 problems found, 2 wrong usage or unreadable input, 3 attn-doctor failed, 4
(with --strict) a rule could not be evaluated or a release is newer than the tables, 130
interrupted.

`attn-doctor --install-completion` lets your shell complete commands, options and their values;
`--show-completion SHELL` prints that for bash, zsh, fish or powershell.

`--lang zh-CN`, `pt-BR`, `hi` or `en` with any command, or ATTN_DOCTOR_LANG, chooses the language of
screens; otherwise the locale does. No native reader has reviewed the translations yet.

Set ATTN_DOCTOR_LOG=debug to log each step to standard error.
"""
#: Command → its module below this package and the name there, in the order of the help page.
_COMMANDS = {
    "check": ("check.command", "check"),
    "backends": ("backends.command", "backends"),
    "audit": ("audit.command", "audit"),
    "explain": ("explain", "explain"),
    "fix": ("fix.command", "app"),
    "install": ("install.command", "install"),
    "report": ("report", "report"),
    "build-kernels": ("build_kernels.command", "build_kernels"),
    "describe-gpu": ("build_kernels.describe_gpu", "describe_gpu"),
    "cache": ("cache.command", "app"),
    "rules": ("rules.command", "app"),
    "mcp": ("mcp", "mcp"),
}


def app_for(words: Sequence[str], mistake: Exception | None = None) -> typer.Typer:
    """The application for a command line: its one command, or all commands if it names none.

    typer builds every command that it knows at each start, which takes longer than a check.
    `mistake`: what the command raised already; it is raised instead of running it.
    """
    mistakes.install()
    app = typer.Typer(
        name="attn-doctor",
        cls=Commands,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        # Errors are lines without a frame, so that each is translated.
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=EPILOG,
    )
    app.callback()(main)
    first = next((word for word in words if not word.startswith("-")), "")
    completing = COMPLETION in os.environ
    for name in [first] if first in _COMMANDS and not completing else _COMMANDS:
        _add(app, name, mistake)
    return app


def is_mistake(error: Exception) -> bool:
    """Whether typer shows this error itself, with the usage of the command."""
    return isinstance(error, (typer.BadParameter, typer.Exit, typer.Abort))


def _raising(command: Callable[..., None], error: Exception) -> Callable[..., None]:
    @functools.wraps(command)
    def run(**_: Any) -> None:
        raise error

    return run


def _add(app: typer.Typer, name: str, mistake: Exception | None) -> None:
    location, attribute = _COMMANDS[name]
    module = importlib.import_module(f"attn_doctor.cli.{location}")
    command = getattr(module, attribute)
    if isinstance(command, typer.Typer):
        for each in command.registered_commands:
            # Another application of this process may have prepared it already.
            if each.callback is not None and not hasattr(each.callback, "__wrapped__"):
                if each.cls is not WithProgram:
                    each.cls = Once
                each.callback = grouped(each.callback)
                if name != "rules":
                    each.callback = accepting(each.callback)
        app.add_typer(command, name=name)
    else:
        epilog = getattr(module, "EPILOG", None)
        shown = grouped(command)
        if mistake is not None:
            shown = _raising(shown, mistake)
        app.command(name, cls=Once, epilog=epilog)(accepting(shown))


def _version(requested: bool) -> None:
    if requested:
        from attn_doctor._version import __version__

        typer.echo(f"attn-doctor {__version__}")
        raise typer.Exit


def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Show the version and exit.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Find out which attention kernels work on this machine, why others do not, and the fix."""
