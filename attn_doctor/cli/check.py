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
from attn_doctor.cli.formats import Output, deliver, outputs
from attn_doctor.findings import Diagnosis, Severity

__all__ = ["check"]

#: How a diagnosis can be written; the first is the default.
FORMATS = ("text", "json", "markdown", "github", "sarif", "junit", "gitlab")


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
    format: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:FILE]",
            help=f"How to write the result: {', '.join(FORMATS)}. With :FILE into a file; may be"
            " repeated.",
            show_default="text",
        ),
    ] = None,
    fail_on: Annotated[
        FailOn | None,
        typer.Option(
            help="Exit with 1 if a problem at least this bad is found.", show_default="error"
        ),
    ] = None,
    baseline: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="Count only problems that this earlier `--format json` lacks."
        ),
    ] = "",
    policy: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="What the project demands and accepts. Default: the nearest attn-doctor.toml, or"
            " [tool.attn-doctor] in pyproject.toml; `none` for none.",
        ),
    ] = "",
    explain_policy: Annotated[
        bool, typer.Option("--explain-policy", help="Show the policy in force, and leave.")
    ] = False,
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
    from attn_doctor.cli import policies

    asked = outputs(format or (), FORMATS)
    demanded = policies.in_force(policy)
    if explain_policy:
        policies.show(demanded)
        raise typer.Exit
    folders = (*rule_folders(rules), *(demanded.folders if demanded else ()))
    diagnosis = _diagnose(facts, python, timeout, folders)
    diagnosis = policies.applied(diagnosis, demanded, baseline)
    least = fail_on.value if fail_on else (demanded and demanded.fail_on) or "error"
    severity = None if least == "never" else Severity(least)
    from attn_doctor.render.grouping import exit_code

    code = exit_code(diagnosis, severity, strict=strict)
    look = _Look(code, severity, folders, verbose, quiet)
    deliver(asked, lambda one: _rendered(diagnosis, one, look))
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


class _Look:
    """What renderers need beside the diagnosis."""

    def __init__(
        self,
        code: int,
        fail_on: Severity | None,
        folders: tuple[Path, ...],
        verbose: bool,
        quiet: bool,
    ) -> None:
        self.code, self.fail_on, self.folders = code, fail_on, folders
        self.verbose, self.quiet = verbose, quiet


def _rendered(diagnosis: Diagnosis, output: Output, look: _Look) -> str:
    if output.name == "json":
        from attn_doctor.render.json import json

        return json(diagnosis, look.code)
    if output.name == "markdown":
        from attn_doctor.render.markdown import markdown

        return markdown(diagnosis)
    if output.name == "junit":
        from attn_doctor.render.junit import junit

        return junit(diagnosis, look.fail_on)
    if output.name in ("github", "sarif", "gitlab"):
        return _for_ci(diagnosis, output.name, look)
    from attn_doctor.render.paper import Paper
    from attn_doctor.render.text import text

    paper = Paper() if output.path else Paper.of(sys.stdout, dict(os.environ))
    return text(diagnosis, paper, verbose=look.verbose, quiet=look.quiet)


def _for_ci(diagnosis: Diagnosis, name: str, look: _Look) -> str:
    """The formats whose results point at a file of the repository."""
    from attn_doctor.render.places import stand_in

    file = stand_in(Path.cwd())
    if name == "github":
        from attn_doctor.cli.github import summarise
        from attn_doctor.render.github import github
        from attn_doctor.render.markdown import markdown

        summarise(markdown(diagnosis), os.environ)
        return github(diagnosis, file)
    if name == "gitlab":
        from attn_doctor.render.gitlab import gitlab

        return gitlab(diagnosis, file)
    from attn_doctor.render.sarif import sarif
    from attn_doctor.rulebook import library

    return sarif(diagnosis, library.load(look.folders), look.code, file)
