"""`attn-doctor report`: writes the facts to a file for a bug report, or records a test machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli import common_options
from attn_doctor.cli.output_file import write_new

if TYPE_CHECKING:
    from attn_doctor.host import Host

_REMEDY = "choose another name with -o, or add --force"


def report(
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", help="File to write; - for standard output."
        ),
    ] = "attn-doctor-report.json",
    record: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            help="Record every answer of this machine in this folder, as a test machine.",
        ),
    ] = "",
    python: common_options.Python = "",
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Write the facts about this machine to a file, for `attn-doctor check --facts`.

    Names of users, hosts and projects, GPU ids and tokens are replaced. Read the file, which is
    plain JSON, before you publish it.
    """
    from attn_doctor.anonymize import anonymous, rewritten
    from attn_doctor.cli.this_machine import this_machine
    from attn_doctor.diagnosis import examine
    from attn_doctor.render.json_text import json_text

    host = this_machine()
    if record:
        _record(host, Path(record), python, force)
        return
    text = json_text(rewritten(examine(host, python), anonymous(host)))
    if output == "-":
        sys.stdout.write(text)
        return
    write_new({Path(output): text}, overwrite=force, remedy=_REMEDY)
    typer.echo(
        f"Wrote {output}. Names of users, hosts and projects, GPU ids and tokens are replaced.\n"
        f"Check it on any machine with: attn-doctor check --facts {output}"
    )


def _record(host: Host, folder: Path, python: str, force: bool) -> None:
    from attn_doctor.recording import record

    files = {folder / name: text for name, text in record(host, python).items()}
    write_new(files, overwrite=force, folders=True, remedy=_REMEDY)
    typer.echo(f"Recorded this machine in {folder}: host.json, facts.json, findings.toml.")
