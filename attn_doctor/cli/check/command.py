"""`attn-doctor check`: examine this machine and report what is wrong with it."""

from __future__ import annotations

import os
import sys
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct

from attn_doctor.cli.attention_options import CallOptions, split
from attn_doctor.cli.check.formats import FORMATS, Output, deliver, outputs
from attn_doctor.cli.common_options import Json, Verbose
from attn_doctor.cli.common_options import Output as OutputOption
from attn_doctor.cli.option import Option
from attn_doctor.cli.rules_option import here
from attn_doctor.cli.screen import terminal
from attn_doctor.cli.source_options import SourceOptions
from attn_doctor.files import is_folder
from attn_doctor.findings import Severity
from attn_doctor.shell.commands import line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attn_doctor.cli.backends.live import Ran
    from attn_doctor.configs.prediction import Prediction
    from attn_doctor.diagnosis import CheckResult
    from attn_doctor.findings import Diagnosis
    from attn_doctor.policy.policy import Policy

EPILOG = """
**Examples**

`attn-doctor check --python ComfyUI/venv` examines another environment.

`attn-doctor check --pretend gpu=rtx4090,torch=2.9.1+cu128` evaluates a machine that is not here.

`attn-doctor check --require sage --for inference` fails unless SageAttention is ready.

`attn-doctor check --config config.json` predicts the backend that a training configuration runs.

`attn-doctor check --facts snapshots` evaluates all snapshots in a folder, one line for each.
"""
_RESULT = "Result"
_RULES = "Policy and required backends"
_LIVE = "Running the backends"


class FailOn(str, Enum):
    """The least severity that makes the exit code 1."""

    error = "error"
    warning = "warning"
    info = "info"
    never = "never"


class PolicyOptions(Struct, frozen=True, kw_only=True):
    """Options that decide which findings count."""

    require: Annotated[
        list[str] | None,
        Option(
            metavar="NAME,…",
            autocompletion="backend_list",
            help="Backends that must be ready: exit with 1 unless all are. For inference, unless"
            " --for says otherwise. May be repeated.",
            show_default=False,
            rich_help_panel=_RULES,
        ),
    ] = None
    fail_on: Annotated[
        FailOn | None,
        Option(
            metavar="LEVEL",
            help="Exit with 1 if a problem of this severity or worse is found: error (the default),"
            " warning, info; never for none.",
            show_default=False,
            rich_help_panel=_RULES,
        ),
    ] = None
    strict: Annotated[
        bool,
        Option(
            "--strict",
            help="Exit with 4 if a rule could not be evaluated, or a release is newer than the"
            " tables and not evaluated from its own source.",
            rich_help_panel=_RULES,
        ),
    ] = False
    baseline: Annotated[
        str,
        Option(
            metavar="FILE",
            help="Count only problems that this earlier JSON result does not have.",
            show_default=False,
            rich_help_panel=_RULES,
        ),
    ] = ""
    policy: Annotated[
        str,
        Option(
            metavar="FILE",
            help="What the project requires and accepts. Default: the nearest attn-doctor.toml, or"
            " [tool.attn-doctor] in pyproject.toml; none for no policy.",
            show_default=False,
            rich_help_panel=_RULES,
        ),
    ] = ""
    explain_policy: Annotated[
        bool,
        Option(
            "--explain-policy", help="Show the policy in force and exit.", rich_help_panel=_RULES
        ),
    ] = False

    def read(self) -> Policy | None:
        """The policy that `--policy` names, else the nearest one, or None."""
        if self.policy == "none":
            return None
        from attn_doctor.policy.nearest import find

        path = Path(self.policy) if self.policy else find(here())
        if path is None:
            return None
        from attn_doctor.ownership import require
        from attn_doctor.policy.policy import read

        if not self.policy:
            require(path, f"name it with `{line(['--policy', str(path)])}`", "use --policy none")
        policy = read(path)
        for folder in policy.folders:
            require(folder)
        return policy


class ResultOptions(Struct, frozen=True, kw_only=True):
    """Options for the form of the result."""

    format: Annotated[
        list[str] | None,
        Option(
            metavar="NAME[:FILE]",
            autocompletion="formats",
            help=f"Format of the result: {', '.join(FORMATS)}. With :FILE into a file; may be"
            " repeated. Default: text.",
            show_default=False,
            rich_help_panel=_RESULT,
        ),
    ] = None
    json: Json = False
    output: OutputOption = ""
    verbose: Verbose = 0
    quiet: Annotated[
        bool,
        Option(
            "--quiet",
            "-q",
            help="Show only the verdict, errors, warnings and what comes next.",
            rich_help_panel=_RESULT,
        ),
    ] = False

    def outputs(self) -> tuple[Output, ...]:
        """The outputs that are asked for."""
        given = [*(self.format or ()), *(("json",) if self.json else ())]
        return outputs(given, FORMATS, self.output)


def check(
    source: SourceOptions,
    calls: CallOptions,
    counting: PolicyOptions,
    result: ResultOptions,
    config: Annotated[
        list[str] | None,
        Option(
            metavar="PATH",
            help="Configuration to predict the backend of: of a trainer, a server or a UI (JSON,"
            " TOML, YAML), a start script, a container file, a Python script, a notebook, or a"
            " project's folder (without PATH: this one). May be repeated. Default: the one that"
            " SimpleTuner would read here; none for no file.",
            show_default=False,
        ),
    ] = None,
    live: Annotated[
        bool,
        Option(
            "--live",
            help="Also run every backend, forward and backward, each in its own process.",
            rich_help_panel=_LIVE,
        ),
    ] = False,
    device: Annotated[
        str,
        Option(
            metavar="cuda:N|cpu",
            help="With --live: the device. cuda:N is torch's GPU number N.",
            show_default=False,
            rich_help_panel=_LIVE,
        ),
    ] = "",
) -> None:
    """Examine the machine and the Python environment, and report what is wrong with them.

    Reads only: nothing is imported, executed, changed or sent. Only --live runs what it examines.

    Exit codes: 0 healthy, 1 problems found, 2 wrong usage or unreadable input, 3 attn-doctor
    failed, 4 (with --strict) a rule could not be evaluated, or a release is newer than the tables.
    """
    asked = result.outputs()
    if live:
        _require_live(source, asked)
    from attn_doctor.diagnosis import CheckRequest, diagnose

    policy = counting.read()
    if counting.explain_policy:
        _explain_policy(policy)
        raise SystemExit
    wanted = calls.calls(("none",))
    own_phase = [one for one in wanted if calls.phase or one.phase == "inference"]
    request = CheckRequest(
        facts=partial(source.read, _prepare),
        folder=here(),
        environ=os.environ,
        rules=source.rule_folders,
        calls=wanted,
        framework=calls.framework_name,
        require=split(",".join(counting.require or ())),
        required_calls=tuple(own_phase),
        phase=calls.phase.value if calls.phase else "",
        configs=_paths(config, search=not source.facts),
        policy=policy,
        baseline=counting.baseline,
    )
    least = counting.fail_on.value if counting.fail_on else (policy and policy.fail_on) or "error"
    severity = None if least == "never" else Severity(least)

    def code_of(diagnosis: Diagnosis, configs: Sequence[Prediction] | None = None) -> int:
        if diagnosis.unready:
            return 1  # whatever --fail-on allows
        from attn_doctor.render.grouping import exit_code

        return exit_code(diagnosis, severity, strict=counting.strict, configs=configs)

    if source.facts and is_folder(source.facts):
        from attn_doctor.cli.check.snapshots import check_all

        if config:
            import typer

            raise typer.BadParameter("--config is for one machine: name one file with --facts")
        verbose, quiet = bool(result.verbose), result.quiet
        raise SystemExit(check_all(source, request, code_of, asked, verbose=verbose, quiet=quiet))
    checked = diagnose(request)
    code = code_of(checked.diagnosis, checked.configs if checked.asked else None)
    ran: Ran | None = None
    if live:
        from attn_doctor.cli.backends import live as backends_live

        options = backends_live.Options(
            device=device, verbose=bool(result.verbose), quiet=result.quiet, top=False
        )
        ran = backends_live.ran(checked.diagnosis, options)
        code = max(code, ran.code)

    def written(output: Output) -> str:
        own_rules = (*source.rule_folders, *(policy.folders if policy else ()))
        view = _View(code, severity, own_rules, result, policy.path if policy else "")
        text = _rendered(checked, output, view)
        if ran is None:
            return text
        form = options.written_as(output.name, output.path)
        return backends_live.added(text, ran, checked.diagnosis, form)

    deliver(asked, written)
    raise SystemExit(code)


def _prepare() -> None:
    """Import what is needed after the examination, and read the catalogue of backends."""
    from attn_doctor.backends import catalogue, matrix
    from attn_doctor.render.findings import text
    from attn_doctor.rulebook import evaluate, library

    del matrix, text, evaluate
    catalogue.load()
    library.harms()


def _require_live(source: SourceOptions, asked: Sequence[Output]) -> None:
    """Raise `typer.BadParameter` for options that `--live` cannot have beside it."""
    import typer

    if source.pretend or source.facts:
        raise typer.BadParameter("--live runs the backends here: drop --facts and --pretend")
    if any(one.name == "agent" for one in asked):
        raise typer.BadParameter("--format agent has no results of runs: drop --live, or use json")
    if any(one.name == "html" for one in asked):
        raise typer.BadParameter("--format html has no results of runs: drop --live")


def _paths(config: list[str] | None, *, search: bool) -> tuple[str, ...] | None:
    """The configurations to read; None for the one that lies here."""
    if config == ["none"]:
        return ()
    return tuple(config) if config else None if search else ()


def _explain_policy(policy: Policy | None) -> None:
    from datetime import date

    from attn_doctor.render.findings.policy import policy_text

    sys.stdout.write(policy_text(policy, date.today(), terminal()))


class _View(Struct, frozen=True):
    """What renderers need beside the result."""

    code: int
    fail_on: Severity | None
    folders: tuple[Path, ...]
    options: ResultOptions
    policy: str
    """The file of the policy in force; empty if there is none."""


def _rendered(checked: CheckResult, output: Output, view: _View) -> str:
    diagnosis, backends, configs = checked.diagnosis, checked.backends, checked.configs
    if output.name == "json":
        from attn_doctor.render.findings.json import json

        return json(diagnosis, view.code, backends, configs)
    if output.name == "agent":
        from attn_doctor.render.findings.agent import agent

        return agent(diagnosis, view.code)
    if output.name in ("markdown", "html"):
        return _page(checked, output.name)
    if output.name == "junit":
        from attn_doctor.render.findings.junit import junit

        return junit(diagnosis, view.fail_on)
    if output.name in ("github", "sarif", "gitlab"):
        return _for_ci(checked, output.name, view)
    from attn_doctor.render.findings.text import text

    return text(
        diagnosis,
        terminal(output.path),
        verbose=bool(view.options.verbose),
        quiet=view.options.quiet,
        backends=backends,
        configs=configs,
        asked=checked.asked,
        unread=checked.unread,
        policy=view.policy,
    )


def _page(checked: CheckResult, name: str) -> str:
    """The result in a form that others read."""
    from attn_doctor.anonymize import disclosed
    from attn_doctor.cli.this_machine import anonymous_here

    shown = disclosed(checked, anonymous_here())
    if name == "html":
        from attn_doctor.render.findings.html import html

        return html(shown.diagnosis, shown.backends, shown.configs)
    from attn_doctor.render.findings.markdown import markdown

    return markdown(shown.diagnosis, shown.backends, shown.configs)


def _for_ci(checked: CheckResult, name: str, view: _View) -> str:
    """The formats whose results point at a file of the repository."""
    from attn_doctor.render.findings.locations import default_file

    diagnosis, file = checked.diagnosis, default_file(here())
    if name == "github":
        from attn_doctor.cli.check.formats import append_summary
        from attn_doctor.render.findings.github import github

        append_summary(_page(checked, "markdown"), os.environ)
        return github(diagnosis, file)
    if name == "gitlab":
        from attn_doctor.render.findings.gitlab import gitlab

        return gitlab(diagnosis, file)
    from attn_doctor.render.findings.sarif import sarif
    from attn_doctor.rulebook import library

    return sarif(diagnosis, library.load(view.folders), view.code, file)
