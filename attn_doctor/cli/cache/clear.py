"""`attn-doctor cache clear`: delete useless entries, or whole caches."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli.cache.options import Kinds, OneCache, examined, selected
from attn_doctor.cli.common_options import DryRun, Python, Yes
from attn_doctor.cli.result_options import ResultOptions, terminal
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
    result: ResultOptions,
) -> None:
    """Delete useless files (--stale), kinds (--kind), one folder (--cache-dir), or all caches.

    Lists the files first, with sizes and reasons. Deletes only files that have the form of the
    cache's own: never through a symbolic link, never another user's, never on another mount. A
    cache in which a process compiles now is left alone.

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
        _ask(ready, text=text)
    done = [apply(one) for one in ready]
    if text:
        sys.stdout.write(cleared_text(done, terminal()))
    failed = any(one.removed.kept or one.plan.refused for one in done)
    _finish(plans, done, int(refused or failed), text=text)


def _nothing(plans: list[Plan], *, dry_run: bool) -> None:
    from attn_doctor.render.humanize import size

    total = sum(one.bytes for one in plans if not one.refused)
    if dry_run and total:
        sys.stdout.write(f"{size(total)} would be freed; nothing was deleted.\n")
    elif not any(one.groups for one in plans):
        sys.stdout.write("Nothing to clear.\n")


def _ask(plans: list[Plan], *, text: bool) -> None:
    """Ask on a terminal; elsewhere --yes is required."""
    from attn_doctor.render.humanize import size

    if not text or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise typer.BadParameter("not a terminal: preview with --dry-run, then pass --yes")
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
