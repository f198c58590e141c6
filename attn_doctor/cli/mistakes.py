"""Mistakes in a command line, in the form of all our errors: what is wrong, then the usage."""

from __future__ import annotations

from typing import IO, Any

import typer


def install() -> None:
    """Let typer show its errors in our form. click's own would say `Error:`, below the usage."""
    usage_error = typer.BadParameter.__mro__[1]  # click's UsageError, which typer does not export
    usage_error.show = _show  # type: ignore[attr-defined]


def _show(error: Any, file: IO[Any] | None = None) -> None:
    why = error.format_message().removeprefix("Invalid value: ")
    lines = [f"attn-doctor: {why}"]
    context = error.ctx
    if context is not None:
        lines += context.get_usage().splitlines()
        lines.append(f"Try '{context.command_path} {context.help_option_names[0]}' for help.")
    typer.echo("\n".join(lines), file=file, err=True)
