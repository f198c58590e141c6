"""`attn-doctor fix`: plan what mends the findings, show it, ask, do it, look again."""

from __future__ import annotations

import os
import sys
import time
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli.format_option import Format
from attn_doctor.cli.rules_option import Folders, rule_folders
from attn_doctor.errors import AttnDoctorError

if TYPE_CHECKING:
    from attn_doctor.findings import Diagnosis
    from attn_doctor.fixes.steps import Plan
    from attn_doctor.render.terminal import Paper


class Only(str, Enum):
    """Which steps are planned."""

    auto = "auto"


def fix(
    rules_: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RULE…]",
            help="Rules whose findings are mended; default: all errors and warnings. With --undo:"
            " the run to take back.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, do nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; carry it out.")] = False,
    only: Annotated[
        Only | None,
        typer.Option(help="Only steps that rules call harmless.", show_default=False),
    ] = None,
    choose: Annotated[
        int, typer.Option(min=1, metavar="N", help="Take the Nth remedy of the RULEs named.")
    ] = 1,
    resolve: Annotated[
        bool,
        typer.Option(
            "--resolve/--no-resolve", help="Ask the installer what each step would change."
        ),
    ] = True,
    python: Annotated[
        str, typer.Option(metavar="PATH", help="Interpreter or environment, as in check.")
    ] = "",
    facts: Annotated[
        str,
        typer.Option("--facts", metavar="FILE", help="Plan for a snapshot; nothing is done."),
    ] = "",
    rules: Folders = None,
    format: Annotated[Format, typer.Option(help="How to write it.")] = Format.text,
    undo: Annotated[
        bool, typer.Option("--undo", help="Take back the last run, or the one named.")
    ] = False,
    history: Annotated[bool, typer.Option("--history", help="List the runs of fix.")] = False,
    forget: Annotated[
        str,
        typer.Option(metavar="RUN", help="Keep what a run did, and remove what --undo needs."),
    ] = "",
    wheels: Annotated[
        bool,
        typer.Option("--wheels", help="Say which packages pip would download, and which compile."),
    ] = False,
    write_requirements: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="Write the set of releases that fits this machine; - for stdout."
        ),
    ] = "",
    cuda_home: Annotated[
        bool, typer.Option("--cuda-home", help="Find the CUDA toolkit to build with.")
    ] = False,
    shell: Annotated[
        str, typer.Option(metavar="SHELL", help="With --cuda-home: bash, zsh, fish, powershell.")
    ] = "",
    write: Annotated[bool, typer.Option("--write", help="With --cuda-home: make it last.")] = False,
    write_to: Annotated[
        str,
        typer.Option(metavar="WHERE", help="With --write: environment, shell or github."),
    ] = "",
    install: Annotated[
        bool, typer.Option("--install", help="With --cuda-home: install a toolkit from wheels.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Longest time of an examination.")
    ] = 4.0,
) -> None:
    """Mend what check finds: plan, show, ask, carry out, and look again.

    Each run is journalled: `fix --undo` brings packages and files back. Without a terminal and
    without --yes, only the plan is shown.

    Exit codes: 0 nothing (left) to mend, 1 a plan that was not carried out, a step that failed or
    problems left, 2 wrong usage or an environment that cannot be changed, 130 interrupted.
    """
    named = rules_ or []
    _exclusive(
        {
            "--undo": undo,
            "--history": history,
            "--forget": bool(forget),
            "--wheels": wheels,
            "--write-requirements": bool(write_requirements),
            "--cuda-home": cuda_home,
        }
    )
    if facts and python:
        raise typer.BadParameter("--facts plans for a snapshot: --python has no meaning with it")
    belonging = {
        "--shell": shell, "--write": write, "--write-to": write_to, "--install": install
    }  # fmt: skip
    _belong(belonging, cuda_home)
    json = format is Format.json
    if cuda_home:
        from attn_doctor.cli.fix import cuda_home as toolkits

        raise typer.Exit(
            toolkits.cuda_home(
                python=python,
                facts=facts,
                shell=shell,
                write=write,
                write_to=write_to or "auto",
                install=install,
                dry_run=dry_run,
                yes=yes,
                format=format.value,
                timeout=timeout,
            )
        )
    if history or undo or forget:
        raise typer.Exit(_earlier(named, undo, forget, dry_run, yes, json))
    if dry_run and yes:
        raise typer.BadParameter("--dry-run does nothing and --yes does it: choose one")
    folders = rule_folders(rules)
    diagnosis = _diagnosis(facts, python, timeout, folders)
    if wheels:
        raise typer.Exit(_wheels(diagnosis, json))
    if write_requirements:
        from attn_doctor.cli.fix.requirements import write_to as requirements_to

        raise typer.Exit(requirements_to(write_requirements, diagnosis.facts))
    ids = _meant(named, folders)
    plan = _planned(diagnosis, ids, only, choose, local=not facts, resolve=resolve)
    from attn_doctor.cli.fix.apply import shown_and_done

    raise typer.Exit(
        shown_and_done(
            plan,
            diagnosis,
            json=json,
            apply=not dry_run and not facts,
            yes=yes,
            look=lambda: _diagnosis(
                "", python or diagnosis.facts.python.path or "", timeout, folders
            ),
            named=ids,
        )
    )


def _exclusive(given: dict[str, bool]) -> None:
    several = [name for name, there in given.items() if there]
    if len(several) > 1:
        raise typer.BadParameter(f"{' and '.join(several)} do different things: choose one")


def _belong(given: dict[str, object], cuda_home: bool) -> None:
    for option, value in given.items():
        if value and not cuda_home:
            raise typer.BadParameter(f"{option} belongs to --cuda-home")


def _earlier(
    named: list[str], undo: bool, forget: str, dry_run: bool, yes: bool, json: bool
) -> int:
    """What concerns earlier runs."""
    from attn_doctor.cli.fix import undo as runs

    if undo:
        return runs.undo(named, dry_run=dry_run, yes=yes, json=json)
    return runs.forget(forget) if forget else runs.history(json=json)


def _diagnosis(facts: str, python: str, timeout: float, folders: tuple[Path, ...]) -> Diagnosis:
    from attn_doctor.diagnosis import derive, evaluate, examine

    start = time.perf_counter()
    if facts:
        from attn_doctor import snapshot

        return evaluate(derive(snapshot.load(facts)), start, folders)
    from attn_doctor.host.local import LocalHost

    return evaluate(examine(LocalHost(), python, timeout), start, folders)


def _meant(named: list[str], folders: tuple[Path, ...]) -> list[str]:
    """The ids of the rules that the user named, a cause standing for all of its rules."""
    from attn_doctor.rulebook import library
    from attn_doctor.rulebook.rule_lookup import meant

    every = library.load(folders)
    causes = library.tables()["causes"]["cause"]
    return [rule.id for word in named for rule in meant(word, every, causes).rules]


def _planned(
    diagnosis: Diagnosis,
    ids: list[str],
    only: Only | None,
    choose: int,
    *,
    local: bool,
    resolve: bool,
) -> Plan:
    from attn_doctor.fixes.plan import plan
    from attn_doctor.fixes.prepare import prepared

    if choose > 1 and not ids:
        raise typer.BadParameter("--choose belongs to a RULE: name the one it is about")
    found = plan(diagnosis, ids, only_auto=only is not None, choice=choose)
    if choose > 1 and not found.steps and found.without:
        raise AttnDoctorError(f"{', '.join(found.without)} has no remedy number {choose}")
    return prepared(
        found,
        diagnosis.facts,
        os.environ,
        local=local,
        resolve=resolve,
        watch=_asking if sys.stderr.isatty() else lambda _: None,
    )


def _asking(text: str) -> None:
    sys.stderr.write(f"\x1b[2K\r{text} …\r")
    sys.stderr.flush()


def _wheels(diagnosis: Diagnosis, json: bool) -> int:
    from attn_doctor.fixes.source_builds import compiling
    from attn_doctor.fixes.wheel_check import verdicts

    facts = diagnosis.facts
    found = [
        (one, compiling(one.name, facts) if one.wheel != "yes" else ()) for one in verdicts(facts)
    ]
    if json:
        from attn_doctor.render.fix.json import wheels_json

        sys.stdout.write(wheels_json(found))
    else:
        from attn_doctor.render.fix.text import wheels_text

        sys.stdout.write(wheels_text(found, _paper()))
    return 0


def _paper() -> Paper:
    from attn_doctor.render.terminal import Paper

    return Paper.of(sys.stdout, dict(os.environ))
