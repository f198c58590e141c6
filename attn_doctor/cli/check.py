"""`attn-doctor check`: examine this machine and say what is wrong with it."""

from __future__ import annotations

import os
import sys
import time
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from attn_doctor.cli.folders import Folders, rule_folders
from attn_doctor.findings import Diagnosis, Severity

__all__ = ["check"]


class Format(str, Enum):
    """How the diagnosis is written."""

    text = "text"
    json = "json"
    markdown = "markdown"


class FailOn(str, Enum):
    """The least severity that makes the exit code 1."""

    error = "error"
    warning = "warning"
    info = "info"
    never = "never"


def check(
    python: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Interpreter or environment to examine. Default: VIRTUAL_ENV, CONDA_PREFIX, a"
            " .venv here or above, else the one that runs attn-doctor.",
        ),
    ] = "",
    facts: Annotated[
        str,
        typer.Option(
            "--facts", metavar="FILE", help="Judge a snapshot (- for stdin), not this machine."
        ),
    ] = "",
    rules: Folders = None,
    format: Annotated[Format, typer.Option(help="How to write the result.")] = Format.text,
    fail_on: Annotated[
        FailOn, typer.Option(help="Exit with 1 if a problem at least this bad is found.")
    ] = FailOn.error,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 4 if anything could not be told.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show evidence, rules and context.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show only errors, warnings and the last line.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(min=0.1, metavar="SECONDS", help="Longest time the examination may take."),
    ] = 4.0,
) -> None:
    """Examine the machine and the Python environment, and say what is wrong with them.

    Reads only: nothing is imported, executed, changed or sent.

    Exit codes: 0 healthy, 1 problems found, 2 wrong usage or unreadable input, 3 attn-doctor
    failed, 4 (with --strict) something could not be told.
    """
    if facts and python:
        raise typer.BadParameter("--facts judges a snapshot: --python has no meaning with it")
    diagnosis = _diagnose(facts, python, timeout, rule_folders(rules))
    severity = None if fail_on is FailOn.never else Severity(fail_on.value)
    from attn_doctor.render.grouping import exit_code

    code = exit_code(diagnosis, severity, strict=strict)
    sys.stdout.write(_rendered(diagnosis, format, code, verbose, quiet))
    raise typer.Exit(code)


def _diagnose(facts: str, python: str, timeout: float, folders: tuple[Path, ...]) -> Diagnosis:
    from attn_doctor.pipeline import derive, diagnose, examine

    start = time.perf_counter()
    if facts:
        from attn_doctor import snapshot

        examined = derive(snapshot.load(facts))
    else:
        from attn_doctor.host.local import LocalHost

        examined = examine(LocalHost(), python, timeout)
    return diagnose(examined, start, folders)


def _rendered(diagnosis: Diagnosis, format: Format, code: int, verbose: bool, quiet: bool) -> str:
    if format is Format.json:
        from attn_doctor.render.json import json

        return json(diagnosis, code)
    if format is Format.markdown:
        from attn_doctor.render.markdown import markdown

        return markdown(diagnosis)
    from attn_doctor.render.paper import Paper
    from attn_doctor.render.text import text

    paper = Paper.of(sys.stdout, dict(os.environ))
    return text(diagnosis, paper, verbose=verbose, quiet=quiet)
