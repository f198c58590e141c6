"""`attn-doctor cache clear`: delete what no longer serves, or all of a cache."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli.cache.options import Kind, Kinds, Python, Where, examined, places
from attn_doctor.cli.format_option import Format

if TYPE_CHECKING:
    from attn_doctor.facts import Facts
    from attn_doctor.kernels.caches.deletion import Cleared, Plan
    from attn_doctor.render.terminal import Paper


def clear(
    path: Where = "",
    stale: Annotated[
        bool,
        typer.Option(
            "--stale",
            help="Only what can no longer serve: entries of other versions or GPUs, broken ones,"
            " leftovers and locks of dead processes.",
        ),
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="All caches, except kernels downloaded from the Hub.")
    ] = False,
    kind: Kinds = None,
    python: Python = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would go, and delete nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    format: Annotated[Format, typer.Option(help="How to write it.")] = Format.text,
) -> None:
    """Delete what no longer serves (--stale), whole kinds (--kind), one folder, or all caches.

    What goes is listed first, with sizes and reasons. Only files that have the form of the cache's
    own are deleted, never through a symbolic link, never another user's, never on another mount;
    a cache in which somebody compiles right now is left alone.

    Exit codes: 0 done, or nothing to do; 1 something could not be deleted, or was refused;
    2 wrong usage, or nobody to ask; 130 declined.
    """
    if not (stale or everything or kind or path):
        raise typer.BadParameter("say what: --stale, --all, --kind KIND, or a folder")
    if everything and (stale or kind or path):
        raise typer.BadParameter("--all is every cache: it goes with no other choice")
    from attn_doctor.kernels.caches.deletion import clear as carried_out
    from attn_doctor.kernels.caches.deletion import plan
    from attn_doctor.kernels.caches.survey import survey

    wanted = places(kind, path)
    if not kind and not path:
        wanted = tuple(one for one in wanted if one.kind != Kind.hub.value)
    facts = examined(python)
    plans = [plan(survey(place, facts), everything=not stale) for place in wanted]
    ready = [one for one in plans if one.groups and not one.refused]
    refused = any(one.refused and (one.groups or path or kind) for one in plans)
    text = format is Format.text
    paper = _paper()
    if text:
        _show(plans, facts if stale else None, paper)
    if dry_run or not ready:
        code = int(refused)
        if text:
            _nothing(plans, dry_run=dry_run)
        _finish(plans, [], code, text=text)
    if not yes:
        _ask(ready, text=text)
    done = [carried_out(one) for one in ready]
    code = int(refused or any(one.removed.kept or one.plan.refused for one in done))
    if text:
        from attn_doctor.render.caches.text import cleared_text

        sys.stdout.write(cleared_text(done, paper))
    _finish(plans, done, code, text=text)


def _show(plans: list[Plan], facts: Facts | None, paper: Paper) -> None:
    from attn_doctor.render.caches.text import plan_text

    sys.stdout.write(plan_text(plans, facts, paper))


def _paper() -> Paper:
    from attn_doctor.render.terminal import Paper

    return Paper.of(sys.stdout, dict(os.environ))


def _nothing(plans: list[Plan], *, dry_run: bool) -> None:
    from attn_doctor.render.humanize import size

    total = sum(one.bytes for one in plans if not one.refused)
    if dry_run and total:
        sys.stdout.write(f"{size(total)} would be freed; nothing was deleted.\n")
    elif not any(one.groups for one in plans):
        sys.stdout.write("Nothing to clear.\n")


def _ask(plans: list[Plan], *, text: bool) -> None:
    """Ask on a terminal; anywhere else --yes has to be given."""
    from attn_doctor.render.humanize import size

    if not text or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise typer.BadParameter("there is nobody to ask: look with --dry-run, then give --yes")
    files = sum(len(one.files) for one in plans)
    total = size(sum(one.bytes for one in plans))
    sys.stderr.write(f"Delete {files} files, {total}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        sys.stderr.write("Nothing was deleted.\n")
        raise typer.Exit(130)


def _finish(plans: list[Plan], done: list[Cleared], code: int, *, text: bool) -> None:
    if not text:
        from attn_doctor.render.caches.json import clear_json

        sys.stdout.write(clear_json(plans, done, code))
    raise typer.Exit(code)
