"""`attn-doctor rules status`, `update` and `rollback`: the rules in use."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli.common_options import Yes
from attn_doctor.cli.result_options import ResultOptions
from attn_doctor.cli.screen import say

if TYPE_CHECKING:
    from attn_doctor.rules_wheel import Staged, State


def status(*, result: ResultOptions) -> None:
    """Show which rules are in use: attn-doctor's own, or an update.

    Exit codes: 0 shown, 2 another user decides what is in the folder of updates.
    """
    from attn_doctor.rules_wheel import state

    found = state()
    if result.as_json:
        from attn_doctor.render.json_text import result as json_result

        data = {name: getattr(found, name) for name in found.__struct_fields__}
        sys.stdout.write(json_result(**data))
        return
    say(*_status_lines(found))


def update(
    *,
    wheel: Annotated[
        str,
        typer.Argument(
            metavar="[VERSION|WHEEL]",
            help="A version, or a wheel that was downloaded. Default: the newest on the index.",
            show_default=False,
        ),
    ] = "",
    pip: Annotated[
        list[str] | None,
        typer.Option(
            "--pip",
            metavar="OPTION",
            help="An option for pip, such as --pip=--no-index --pip=--find-links=DIR. May be"
            " repeated. pip's own configuration counts too.",
            show_default=False,
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Take newer rules and tables, without a new attn-doctor.

    pip downloads the wheel attn-doctor-rules, which holds data only. Its digests and every rule are
    checked. Then the rules are put into a folder of your own. `rules rollback` reverses it.

    Exit codes: 0 taken, or already in use; 2 the wheel is refused or cannot be had, or no terminal
    to ask on; 130 declined.
    """
    from attn_doctor import rules_wheel
    from attn_doctor.rulebook.updates import order

    before = rules_wheel.state()
    given = Path(wheel)
    with rules_wheel.scratch() as folder:
        named = wheel.endswith(".whl")
        path = given if named else rules_wheel.download(wheel, pip or (), Path(folder))
        if not path.is_file():
            raise typer.BadParameter(f"{path} is not a file")
        (target := Path(folder, "rules")).mkdir(mode=0o700)
        staged = rules_wheel.stage(path, target)
        if order(staged.release.version) <= order(before.version):
            say(
                f"Nothing to do: rules {before.version} are in use, and the wheel has"
                f" {staged.release.version}."
            )
            return
        say(*_plan_lines(staged, before))
        if not yes:
            _agreed()
        say(f"Taken: {rules_wheel.use(staged)}")


def rollback(*, yes: Yes = False) -> None:
    """Return to the rules before the last update.

    Exit codes: 0 done, 2 no update is in use, or no terminal to ask on; 130 declined.
    """
    from attn_doctor import rules_wheel

    before = rules_wheel.state()
    what = f"rules {before.previous}" if before.previous else "attn-doctor's own rules"
    if before.updated:
        say(f"Return from rules {before.version} to {what}.")
        if not yes:
            _agreed()
    version = rules_wheel.rollback()
    say(f"In use: {f'rules {version}' if version else 'attn-doctor itself has them'}")


def _status_lines(found: State) -> list[str]:
    origin = "taken by rules update" if found.updated else "attn-doctor's own"
    days = (date.today() - date.fromisoformat(found.checked)).days
    lines = [
        f"rules     {found.version} ({origin})",
        f"folder    {found.folder}",
        f"holds     {found.rules} rules, tables of {found.checked} ({days} days old)",
    ]
    if found.updated:
        lines.append(f"before    {found.previous or 'own rules of attn-doctor'}")
    if found.unused:
        lines.append(f"not used  {found.unused}")
    return lines


def _plan_lines(staged: Staged, before: State) -> list[str]:
    return [
        f"in use    {before.version}: {before.rules} rules, tables of {before.checked}",
        f"new       {staged.release.version}: {staged.rules} rules, tables of {staged.checked}",
    ]


def _agreed() -> None:
    """Ask on a terminal; elsewhere --yes is required."""
    sys.stdout.flush()
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise typer.BadParameter("not a terminal: pass --yes")
    sys.stderr.write("Use them? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        sys.stderr.write("Nothing was changed.\n")
        raise typer.Exit(130)
