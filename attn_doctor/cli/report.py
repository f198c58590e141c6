"""`attn-doctor report`: writes the facts to a file for a bug report, or records a test machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli import common_options
from attn_doctor.cli.output_file import write_new
from attn_doctor.cli.screen import say
from attn_doctor.shell.commands import line

if TYPE_CHECKING:
    from attn_doctor.host import Host

_FILE = "attn-doctor-report.json"
_REMEDY = "choose another name with -o, or add --force"


def report(
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help=f"File to write; - for standard output. Default: {_FILE}; with --issue -.",
            show_default=False,
        ),
    ] = "",
    issue: Annotated[
        bool,
        typer.Option(
            "--issue",
            help="Write what check finds as Markdown for an issue: at most 12 lines, and the rest"
            " to unfold.",
        ),
    ] = False,
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
    plain JSON, before you publish it. With --issue it is Markdown: the findings, to paste into an
    issue.
    """
    from attn_doctor.anonymize import anonymous, rewritten
    from attn_doctor.cli.this_machine import this_machine
    from attn_doctor.examination import examine
    from attn_doctor.render.json_text import json_text

    host = this_machine()
    if record and issue:
        raise typer.BadParameter("--record writes a folder and --issue a text: name one of them")
    if record:
        _record(host, Path(record), python, force)
        return
    if issue:
        text = _issue(host, python)
    else:
        text = json_text(rewritten(examine(host, python), anonymous(host)))
    output = output or ("-" if issue else _FILE)
    if output == "-":
        sys.stdout.write(text)
        return
    write_new({Path(output): text}, overwrite=force, remedy=_REMEDY)
    say(f"Wrote {output}. Names of users, hosts and projects, GPU ids and tokens are replaced.")
    if not issue:
        command = line(("attn-doctor", "check", "--facts", str(output)))
        say(f"Check it on any machine with: {command}")


def _issue(host: Host, python: str) -> str:
    """What a check finds, to paste into an issue."""
    from attn_doctor.anonymize import anonymous, disclosed
    from attn_doctor.backends.attention_call import PHASES, AttentionCall
    from attn_doctor.diagnosis import CheckRequest, diagnose
    from attn_doctor.examination import examine
    from attn_doctor.render.findings.issue import issue

    calls = tuple(AttentionCall(phase=phase) for phase in PHASES)
    request = CheckRequest(facts=lambda: examine(host, python), calls=calls, configs=())
    found = disclosed(diagnose(request), anonymous(host))
    return issue(found.diagnosis, found.backends)


def _record(host: Host, folder: Path, python: str, force: bool) -> None:
    from attn_doctor.recording import record

    files = {folder / name: text for name, text in record(host, python).items()}
    write_new(files, overwrite=force, folders=True, remedy=_REMEDY)
    say(f"Recorded this machine in {folder}: host.json, facts.json, findings.toml.")
