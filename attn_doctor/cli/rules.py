"""`attn-doctor rules`: look at the rulebook, and check it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(help="Look at the rulebook, and check it.", no_args_is_help=True)


@app.callback()
def _rules() -> None:
    """Look at the rulebook, and check it."""


@app.command("lint")
def lint(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Folder of rules. Default: attn-doctor's own.", show_default=False),
    ] = None,
) -> None:
    """Check every rule: its shape, its facts, its examples, and that each line matters.

    Exit codes: 0 sound, 1 complaints, 2 a file that cannot be read as a rule.
    """
    from attn_doctor.errors import AttnDoctorError
    from attn_doctor.rulebook import library
    from attn_doctor.rulebook.lint import lint as complaints_in

    rules = folder or library.folder()
    if not rules.is_dir():
        raise AttnDoctorError(f"{rules} is no folder; name one that holds <area>/<rule>.toml files")
    found, complaints = complaints_in(rules)
    for complaint in complaints:
        typer.echo(f"{complaint.rule}: {complaint.text}")
    if not found:
        raise AttnDoctorError(f"{rules} holds no rules; they are named <area>/<rule>.toml")
    if complaints:
        typer.echo(f"{len(complaints)} complaints about {len(found)} rules")
        raise typer.Exit(1)
    examples = sum(len(rule.examples) for rule in found)
    typer.echo(f"{len(found)} rules are sound; {examples} examples agree with them")
