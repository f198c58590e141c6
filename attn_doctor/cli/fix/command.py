"""`attn-doctor fix`: plan fixes for the findings, show the plan, ask, apply it, check again."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.cli import completion
from attn_doctor.cli.common_options import DryRun, Output, Python, Snapshot, Timeout, Yes
from attn_doctor.cli.help_page import Group
from attn_doctor.cli.result_options import ResultOptions
from attn_doctor.cli.rules_option import Folders, rule_folders
from attn_doctor.cli.screen import say, terminal
from attn_doctor.errors import AttnDoctorError

if TYPE_CHECKING:
    from attn_doctor.findings import Diagnosis
    from attn_doctor.fixes.steps import Plan


class _FixGroup(Group):
    """`fix RULE` means `fix apply RULE`, and `fix --cuda-home` means `fix cuda-home`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name of the subcommand in front where it is left out."""
        if "--cuda-home" in args:
            args = ["cuda-home", *(word for word in args if word != "--cuda-home")]
        elif not args or args[0] not in (*self.commands, "-h", "--help"):
            args = ["apply", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_FixGroup)


class Only(str, Enum):
    """Which steps are planned."""

    auto = "auto"


class MachineOptions(Struct, frozen=True, kw_only=True):
    """Options for the machine and the environment to fix."""

    python: Python = ""
    facts: Snapshot = ""
    timeout: Timeout = 4.0

    def diagnosis(self, folders: tuple[Path, ...] = ()) -> Diagnosis:
        """The diagnosis of the snapshot, or else of this machine."""
        from attn_doctor.diagnosis import diagnosis_of
        from attn_doctor.examination import derive, examine

        if self.facts and self.python:
            raise typer.BadParameter("--facts uses a snapshot: --python has no effect with it")
        start = time.perf_counter()
        if self.facts:
            from attn_doctor import snapshot

            return diagnosis_of(derive(snapshot.load(self.facts)), start, folders)
        from attn_doctor.cli.this_machine import this_machine

        return diagnosis_of(examine(this_machine(), self.python, self.timeout), start, folders)


class PlanOptions(Struct, frozen=True, kw_only=True):
    """Options that choose the problems and their fixes."""

    rules_: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RULE…]",
            autocompletion=completion.rules,
            help="Rules whose findings are fixed; default: all errors and warnings.",
            show_default=False,
        ),
    ] = None
    only: Annotated[
        Only | None,
        typer.Option(help="auto: only steps that need no confirmation.", show_default=False),
    ] = None
    choose: Annotated[
        int, typer.Option(min=1, metavar="N", help="Use the Nth fix of each named rule.")
    ] = 1
    resolve: Annotated[
        bool,
        typer.Option(
            "--resolve/--no-resolve",
            help="Ask the installer which packages each step would change.",
        ),
    ] = True
    rules: Folders = None

    @property
    def folders(self) -> tuple[Path, ...]:
        """Folders of a team's own rules."""
        return rule_folders(self.rules)

    def named(self) -> list[str]:
        """The ids of the rules that the user named; a cause means all of its rules."""
        from attn_doctor.install.demand import WORDS
        from attn_doctor.rulebook import library
        from attn_doctor.rulebook.rule_lookup import find_rules

        every = library.load(self.folders)
        causes = library.tables()["causes"]["cause"]
        words = self.rules_ or ()
        for word in words:
            if word in WORDS and not any(rule.id.partition("/")[2] == word for rule in every):
                command = f"attn-doctor install {word}"
                raise AttnDoctorError(f"{word!r} is not a rule; `{command}` makes it work here")
        return [rule.id for word in words for rule in find_rules(word, every, causes).rules]

    def first_plan(self, diagnosis: Diagnosis, named: Collection[str], *, local: bool) -> Plan:
        """The plan for all problems, or for the rules that the user named."""
        if self.choose > 1 and not named:
            raise typer.BadParameter("--choose belongs to a RULE: name the rule")
        found = self.plan(diagnosis, named, local=local)
        if self.choose > 1 and not found.steps and found.without:
            raise AttnDoctorError(f"{', '.join(found.without)} has no fix number {self.choose}")
        return found

    def plan(self, diagnosis: Diagnosis, rules: Collection[str], *, local: bool) -> Plan:
        """The plan for these rules. `local`: the diagnosis is of this machine."""
        from attn_doctor.fixes.plan import plan
        from attn_doctor.fixes.resolve import prepared
        from attn_doctor.install.offered import decided

        choice = self.choose if self.rules_ else 1
        return prepared(
            plan(decided(diagnosis), rules, only_auto=self.only is not None, choice=choice),
            diagnosis.facts,
            os.environ,
            local=local,
            resolve=self.resolve,
            watch=_show_waiting if sys.stderr.isatty() else lambda _: None,
        )


@app.callback()
def _fix() -> None:
    """Fix what `check` finds: plan, confirm, apply, check again.

    `attn-doctor fix [RULE…]` is short for `attn-doctor fix apply [RULE…]`, and `attn-doctor fix
    --cuda-home` for `attn-doctor fix cuda-home`. Each run keeps a journal: `fix undo` restores
    packages and files.
    """


@app.command("apply")
def apply_command(
    *,
    wanted: PlanOptions,
    machine: MachineOptions,
    result: ResultOptions,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Plan fixes for the findings, show the plan, ask, apply it, and check again.

    If stdin is not a terminal, only the plan is shown, unless --yes is given.

    Exit codes: 0 nothing (left) to fix, 1 the plan was not applied, a step failed or problems
    remain, 2 wrong usage, an environment that cannot be changed or that another run is changing,
    130 interrupted.
    """
    if dry_run and yes:
        raise typer.BadParameter("--dry-run changes nothing and --yes applies the plan: choose one")
    diagnosis = machine.diagnosis(wanted.folders)
    named = wanted.named()
    plan = wanted.first_plan(diagnosis, named, local=not machine.facts)
    python = machine.python or diagnosis.facts.python.path or ""
    from attn_doctor.cli.fix.apply import show_and_apply

    raise typer.Exit(
        show_and_apply(
            plan,
            diagnosis,
            json=result.as_json,
            apply=not dry_run and not machine.facts,
            yes=yes,
            look=lambda: replace(machine, facts="", python=python).diagnosis(wanted.folders),
            replan=lambda now, rest: wanted.plan(now, rest, local=True),
            named=named,
        )
    )


@app.command("plan")
def plan_command(
    *,
    wanted: PlanOptions,
    machine: MachineOptions,
    result: ResultOptions,
) -> None:
    """Show what `fix apply` would do, and change nothing.

    Exit codes: 0 nothing to fix, 1 a plan was shown, 2 wrong usage.
    """
    diagnosis = machine.diagnosis(wanted.folders)
    named = wanted.named()
    plan = wanted.first_plan(diagnosis, named, local=not machine.facts)
    from attn_doctor.cli.fix.apply import show_plan

    raise typer.Exit(show_plan(plan, diagnosis, json=result.as_json))


ChangedEnvironment = Annotated[
    str,
    typer.Option(
        "--python",
        metavar="PATH",
        help="Only runs that changed this environment.",
        show_default=False,
    ),
]


@app.command("undo")
def undo_command(
    *,
    run: Annotated[
        str, typer.Argument(metavar="[RUN]", help="Run to undo; default: the last one.")
    ] = "",
    python: ChangedEnvironment = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    result: ResultOptions,
) -> None:
    """Undo a run: restore packages and files. What was changed since then is kept and reported.

    If stdin is not a terminal, only the plan is shown, unless --yes is given.

    Exit codes: 0 all that the run changed is as before, 1 the plan was not applied or something was
    not restored, 2 no such run, a damaged journal, or another run is changing the environment.
    """
    from attn_doctor.cli.fix import runs

    plain = result.as_json
    raise typer.Exit(
        runs.undo(run, redo=False, dry_run=dry_run, yes=yes, json=plain, python=python)
    )


@app.command("redo")
def redo_command(
    *,
    run: Annotated[
        str, typer.Argument(metavar="[RUN]", help="Run to do again; default: the last undone one.")
    ] = "",
    python: ChangedEnvironment = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    result: ResultOptions,
) -> None:
    """Do a run again that was undone, from the copies that its undo kept.

    If stdin is not a terminal, only the plan is shown, unless --yes is given.

    Exit codes: 0 all is as after the run, 1 the plan was not applied or something was not restored,
    2 no such run, a damaged journal, or another run is changing the environment.
    """
    from attn_doctor.cli.fix import runs

    plain = result.as_json
    raise typer.Exit(runs.undo(run, redo=True, dry_run=dry_run, yes=yes, json=plain, python=python))


@app.command("history")
def history_command(*, result: ResultOptions) -> None:
    """List the runs of fix, the newest first."""
    from attn_doctor.cli.fix import runs

    raise typer.Exit(runs.history(json=result.as_json))


@app.command("forget")
def forget_command(
    *,
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run to forget; see fix history.")],
) -> None:
    """Keep the environment as it is, and delete the copies that `fix undo` and `fix redo` need."""
    from attn_doctor.cli.fix import runs

    raise typer.Exit(runs.forget(run))


@app.command("wheels")
def wheels_command(
    *,
    wheels: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WHEEL…]", help="URLs or files of wheels.", show_default=False),
    ] = None,
    machine: MachineOptions,
    result: ResultOptions,
) -> None:
    """Show for which packages a prebuilt wheel fits, and which pip would compile.

    With WHEEL…, read these wheels and say whether they load with the torch here. Of a URL only the
    parts that are needed are fetched, and nothing is installed. Exit code 0 then means that all of
    them load, 1 that one does not or that this is unknown.
    """
    known = machine.diagnosis().facts
    if wheels:
        from attn_doctor.cli.fix.wheels import show_wheels

        raise typer.Exit(show_wheels(wheels, known, json=result.as_json))
    from attn_doctor.fixes.source_builds import compiling
    from attn_doctor.fixes.wheel_check import verdicts

    found = [
        (verdict, compiling(verdict.name, known) if verdict.wheel != "yes" else ())
        for verdict in verdicts(known)
    ]
    if result.as_json:
        from attn_doctor.render.fix.json import wheels_json

        sys.stdout.write(wheels_json(found))
    else:
        from attn_doctor.render.fix.text import wheels_text

        sys.stdout.write(wheels_text(found, terminal()))


@app.command("requirements")
def requirements_command(
    *,
    output: Output = "",
    machine: MachineOptions,
) -> None:
    """Write a requirements file with the releases that fit this machine.

    An existing file is not overwritten.
    """
    from attn_doctor.fixes.requirements_file import requirements

    text = requirements(machine.diagnosis().facts)
    if output in ("", "-"):
        sys.stdout.write(text)
        return
    from attn_doctor.cli.output_file import write_new

    write_new({Path(output): text})
    say(f"Wrote {output}.")


@app.command("cuda-home")
def cuda_home_command(
    *,
    shell: Annotated[
        str,
        typer.Option(
            "--shell",
            metavar="SHELL",
            help="bash, zsh, sh, fish, powershell or cmd; default: the shell in use.",
        ),
    ] = "",
    write: Annotated[
        bool, typer.Option("--write", help="Also write the lines to a file for later shells.")
    ] = False,
    write_to: Annotated[
        str,
        typer.Option(
            "--write-to",
            metavar="WHERE",
            help="With --write: environment (activation hooks), shell (start file) or github.",
        ),
    ] = "",
    install: Annotated[
        bool,
        typer.Option("--install", help="If no toolkit fits, install one from NVIDIA's wheels."),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    python: Python = "",
    result: ResultOptions,
    timeout: Timeout = 4.0,
) -> None:
    """Find the CUDA toolkit to build with, and print lines that select it in your shell.

    Lines for the shell go to standard output, everything else to standard error:

    - bash, zsh, sh: `eval "$(attn-doctor fix --cuda-home)"`
    - fish: `attn-doctor fix --cuda-home | source`
    - PowerShell: `Invoke-Expression "$(attn-doctor fix --cuda-home)"`

    Exit codes: 0 a toolkit fits and torch uses it, 1 none fits, torch uses another one, or nothing
    was written, 2 wrong usage.
    """
    from attn_doctor.cli.fix.cuda_home import cuda_home

    raise typer.Exit(
        cuda_home(
            python=python,
            shell=shell,
            write=write,
            write_to=write_to or "auto",
            install=install,
            dry_run=dry_run,
            yes=yes,
            json=result.as_json,
            timeout=timeout,
        )
    )


def _show_waiting(text: str) -> None:
    from attn_doctor.render.edge import replace_line

    replace_line(f"{text} …")
