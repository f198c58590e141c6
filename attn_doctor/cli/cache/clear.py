"""`attn-doctor cache clear`: delete useless entries, or whole caches."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli.cache.options import Kinds, OneCache, agreed, examined, selected
from attn_doctor.cli.common_options import DryRun, Python, Yes
from attn_doctor.cli.result_options import ResultOptions
from attn_doctor.cli.screen import say, terminal
from attn_doctor.cli.streams import shown

if TYPE_CHECKING:
    from attn_doctor.kernels.caches.deletion import Cleared, Plan


def clear(
    *,
    cache_dir: OneCache = "",
    stale: Annotated[
        bool,
        typer.Option(
            "--stale",
            help="Only useless files: entries of other versions or GPUs, broken entries, incomplete"
            " files and locks of crashed processes.",
        ),
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="All caches, except kernels downloaded from the Hub.")
    ] = False,
    kind: Kinds = None,
    python: Python = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    no_trash: Annotated[
        bool,
        typer.Option(
            "--no-trash",
            help="Delete at once, and free the space. cache restore finds nothing then.",
        ),
    ] = False,
    result: ResultOptions,
) -> None:
    """Clear useless files (--stale), kinds (--kind), one folder (--cache-dir), or all caches.

    Lists the files first, with sizes and reasons. Takes only files that have the form of the
    cache's own: never through a symbolic link, never another user's, never on another mount. A
    cache in which a process compiles now is left alone.

    The files move into a trash inside their cache. `cache restore` brings them back;
    `cache empty-trash` deletes them and frees the space. With --no-trash they are deleted at once.

    Exit codes: 0 done, or nothing to do; 1 a file could not be deleted, or a cache was refused;
    2 wrong usage, or no terminal to ask on; 130 declined.
    """
    if not (stale or everything or kind or cache_dir):
        raise typer.BadParameter("choose what to delete: --stale, --all, --kind or --cache-dir")
    if everything and (stale or kind or cache_dir):
        raise typer.BadParameter(
            "--all means every cache; it cannot be used with --stale, --kind or --cache-dir"
        )
    from attn_doctor.kernels.caches.deletion import clear as apply
    from attn_doctor.kernels.caches.deletion import plan
    from attn_doctor.kernels.caches.survey import survey
    from attn_doctor.kernels.caches.trash import new_id
    from attn_doctor.ownership import require_cache
    from attn_doctor.render.caches.text import cleared_text, plan_text

    if cache_dir:
        require_cache(cache_dir)
    facts = examined(python)
    locations = selected(kind, cache_dir, hub=False)
    plans = [plan(survey(location, facts), everything=not stale) for location in locations]
    ready = [one for one in plans if one.groups and not one.refused]
    refused = any(one.refused and (one.groups or cache_dir or kind) for one in plans)
    text = not result.as_json
    if text:
        sys.stdout.write(plan_text(plans, facts if stale else None, terminal()))
    if dry_run or not ready:
        if text:
            _nothing(plans, dry_run=dry_run)
        _finish(plans, [], int(refused), text=text)
    if text:
        shown()
    if not yes:
        files = sum(len(one.files) for one in ready)
        verb = "Delete" if no_trash else "Move into the trash"
        agreed(f"{verb} {files} files", sum(one.bytes for one in ready), text=text)
    clearing = "" if no_trash else new_id()
    done = [apply(one, clearing) for one in ready]
    if text:
        sys.stdout.write(cleared_text(done, terminal()))
    failed = any(one.removed.kept or one.plan.refused for one in done)
    _finish(plans, done, int(refused or failed), text=text)


def _nothing(plans: list[Plan], *, dry_run: bool) -> None:
    from attn_doctor.render.humanize import size

    total = sum(one.bytes for one in plans if not one.refused)
    if dry_run and total:
        say(f"{size(total)} would be cleared; nothing was changed.")
    elif not any(one.groups for one in plans):
        say("Nothing to clear.")


def _finish(plans: list[Plan], done: list[Cleared], code: int, *, text: bool) -> None:
    if not text:
        from attn_doctor.render.caches.json import clear_json

        sys.stdout.write(clear_json(plans, done, code))
    raise typer.Exit(code)
