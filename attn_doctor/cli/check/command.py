"""`attn-doctor check`: examine this machine and say what is wrong with it."""

from __future__ import annotations

import os
import sys
import time
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli.attention_options import (
    Causal,
    Compiled,
    Dtype,
    DtypeOption,
    For,
    FrameworkOption,
    Gqa,
    HeadDim,
    Masks,
    Seq,
    wanted,
)
from attn_doctor.cli.check.configs import (
    Config,
    Preflight,
    read,
    with_findings,
)
from attn_doctor.cli.check.formats import Output, deliver, outputs
from attn_doctor.cli.common_options import Verbose
from attn_doctor.cli.facts_source import Pretend, examined
from attn_doctor.cli.rules_option import Folders, here, rule_folders
from attn_doctor.findings import Diagnosis, Severity

if TYPE_CHECKING:
    from attn_doctor.backends.readiness import Matrix

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
    pretend: Pretend = None,
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
            metavar="LEVEL",
            help="Exit with 1 if a problem at least this bad is found: error, warning, info; never"
            " for none.",
            show_default="error",
        ),
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,…",
            help="Backends that must be ready: exit with 1 unless all are. For inference, unless"
            " --for says otherwise. May be repeated.",
            show_default=False,
        ),
    ] = None,
    framework: FrameworkOption = None,
    phase: For = None,
    masks: Masks = "",
    causal: Causal = False,
    gqa: Gqa = False,
    dtype: DtypeOption = Dtype.bf16,
    head_dim: HeadDim = None,
    seq: Seq = None,
    compiled: Compiled = False,
    config: Config = None,
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
            " [tool.attn-doctor] in pyproject.toml; the word none for no policy.",
        ),
    ] = "",
    explain_policy: Annotated[
        bool, typer.Option("--explain-policy", help="Show the policy in force, and leave.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 4 if anything could not be told.")
    ] = False,
    verbose: Verbose = 0,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show only errors, warnings and the last line.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(min=0.1, metavar="SECONDS", help="Longest time the examination may take."),
    ] = 4.0,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Also run every backend, forward and backward, each in a process of its own.",
        ),
    ] = False,
    device: Annotated[
        str,
        typer.Option(metavar="N|cpu", help="With --live: the GPU, as torch counts them."),
    ] = "",
) -> None:
    """Examine the machine and the Python environment, and say what is wrong with them.

    Reads only: nothing is imported, executed, changed or sent. Only --live runs what it examines.

    Exit codes: 0 healthy, 1 problems found, 2 wrong usage or unreadable input, 3 attn-doctor
    failed, 4 (with --strict) something could not be told.
    """
    if live and pretend:
        raise typer.BadParameter("--live runs the backends: it cannot pretend")
    if live and facts:
        raise typer.BadParameter("--live runs the backends: it needs a machine, not a snapshot")
    from attn_doctor.cli.check import policy as policies
    from attn_doctor.cli.check import readiness
    from attn_doctor.diagnosis import diagnose

    asked = outputs(format or (), FORMATS)
    demanded = policies.in_force(policy)
    if explain_policy:
        policies.show(demanded)
        raise typer.Exit
    folders = (*rule_folders(rules), *(demanded.folders if demanded else ()))
    configs = read(config or (), search=not facts)
    start = time.perf_counter()
    diagnosis = diagnose(examined(facts, python, timeout, pretend), start, folders)
    calls = wanted(
        phase,
        masks,
        ("none",),
        causal=causal,
        gqa=gqa,
        dtype=dtype,
        head_dim=head_dim,
        seq=seq,
        compiled=compiled,
    )
    chosen = framework.value if framework else ""
    table = readiness.judged(diagnosis, calls, chosen)
    needed = calls if phase else [one for one in calls if one.phase == "inference"]
    diagnosis = readiness.with_required(diagnosis, require or (), needed, chosen, demanded)
    configs.predict(diagnosis)
    diagnosis = with_findings(diagnosis, configs.predictions)
    diagnosis = policies.applied(diagnosis, demanded, baseline)
    least = fail_on.value if fail_on else (demanded and demanded.fail_on) or "error"
    severity = None if least == "never" else Severity(least)
    from attn_doctor.render.grouping import exit_code

    code = exit_code(diagnosis, severity, strict=strict)
    if readiness.unready(diagnosis):
        code = 1  # whatever else is let pass
    if live:
        from attn_doctor.cli.backends import live as backends_live

        options = backends_live.Options(
            device=device, verbose=bool(verbose), quiet=quiet, top=False
        )
        found = backends_live.ran(diagnosis, options)
        code = max(code, found.code)
    look = _Look(code, severity, folders, bool(verbose), quiet, table, configs)

    def written(one: Output) -> str:
        text = _rendered(diagnosis, one, look)
        if not live:
            return text
        return backends_live.added(text, found, diagnosis, options.written_as(one.name, one.path))

    deliver(asked, written)
    raise typer.Exit(code)


class _Look:
    """What renderers need beside the diagnosis."""

    def __init__(
        self,
        code: int,
        fail_on: Severity | None,
        folders: tuple[Path, ...],
        verbose: bool,
        quiet: bool,
        backends: Matrix,
        preflight: Preflight,
    ) -> None:
        self.code, self.fail_on, self.folders = code, fail_on, folders
        self.verbose, self.quiet = verbose, quiet
        self.backends, self.preflight = backends, preflight


def _rendered(diagnosis: Diagnosis, output: Output, look: _Look) -> str:
    if output.name == "json":
        from attn_doctor.render.findings.json import json

        return json(diagnosis, look.code, look.backends, look.preflight.predictions)
    if output.name == "markdown":
        from attn_doctor.render.findings.markdown import markdown

        return markdown(diagnosis, look.backends, look.preflight.predictions)
    if output.name == "junit":
        from attn_doctor.render.findings.junit import junit

        return junit(diagnosis, look.fail_on)
    if output.name in ("github", "sarif", "gitlab"):
        return _for_ci(diagnosis, output.name, look)
    from attn_doctor.render.findings.text import text
    from attn_doctor.render.terminal import Paper

    paper = Paper() if output.path else Paper.of(sys.stdout, dict(os.environ))
    return text(
        diagnosis,
        paper,
        verbose=look.verbose,
        quiet=look.quiet,
        backends=look.backends,
        configs=look.preflight.predictions,
        unread=look.preflight.unread,
    )


def _for_ci(diagnosis: Diagnosis, name: str, look: _Look) -> str:
    """The formats whose results point at a file of the repository."""
    from attn_doctor.render.findings.locations import stand_in

    file = stand_in(here())
    if name == "github":
        from attn_doctor.cli.check.github import summarise
        from attn_doctor.render.findings.github import github
        from attn_doctor.render.findings.markdown import markdown

        page = markdown(diagnosis, look.backends, look.preflight.predictions)
        summarise(page, os.environ)
        return github(diagnosis, file)
    if name == "gitlab":
        from attn_doctor.render.findings.gitlab import gitlab

        return gitlab(diagnosis, file)
    from attn_doctor.render.findings.sarif import sarif
    from attn_doctor.rulebook import library

    return sarif(diagnosis, library.load(look.folders), look.code, file)
