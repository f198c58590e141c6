"""`attn-doctor cache restore` and `cache empty-trash`: what `cache clear` took, back or away."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli.cache.options import Kinds, OneCache, agreed, selected
from attn_doctor.cli.common_options import DryRun, Yes
from attn_doctor.cli.result_options import ResultOptions
from attn_doctor.cli.screen import terminal
from attn_doctor.cli.streams import shown

if TYPE_CHECKING:
    from attn_doctor.kernels.caches.trash import Trashed

OneClearing = Annotated[
    str,
    typer.Argument(
        metavar="CLEARING",
        help="Which one, as cache clear and --dry-run name it.",
        show_default=False,
    ),
]


def restore(
    clearing: OneClearing = "",
    *,
    cache_dir: OneCache = "",
    kind: Kinds = None,
    dry_run: DryRun = False,
    result: ResultOptions,
) -> None:
    """Bring back what cache clear moved into the trash; without CLEARING the last one.

    A file that exists again in the cache is not overwritten: the older one stays in the trash.
    Kernels that were built ahead of time count as built again.

    Exit codes: 0 restored, or the trash is empty; 1 a file stays in the trash; 2 wrong usage.
    """
    from attn_doctor.kernels.caches.trash import restore as bring_back
    from attn_doctor.render.caches.trash import restored_text, trash_json, trash_text

    found = _found(clearing, kind, cache_dir)
    last = max((one.id for one in found), default="")
    chosen = [one for one in found if one.id == last]
    if dry_run:
        text = trash_text(found, terminal())
        sys.stdout.write(trash_json(found, [], 0) if result.as_json else text)
        return
    done = [bring_back(one) for one in chosen]
    code = int(any(one.kept for one in done))
    sys.stdout.write(
        trash_json(chosen, done, code) if result.as_json else restored_text(done, terminal())
    )
    raise typer.Exit(code)


def empty_trash(
    clearing: OneClearing = "",
    *,
    cache_dir: OneCache = "",
    kind: Kinds = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    result: ResultOptions,
) -> None:
    """Delete what cache clear moved into the trash, and free the space; without CLEARING all of it.

    Exit codes: 0 done, or the trash is empty; 1 a file could not be deleted; 2 wrong usage, or no
    terminal to ask on; 130 declined.
    """
    from attn_doctor.kernels.caches.trash import empty
    from attn_doctor.render.caches.trash import emptied_text, trash_json, trash_text

    found = _found(clearing, kind, cache_dir)
    if not result.as_json:
        sys.stdout.write(trash_text(found, terminal()))
        shown()
    if dry_run or not found:
        if result.as_json:
            sys.stdout.write(trash_json(found, [], 0))
        return
    if not yes:
        files, size = sum(len(one.sizes) for one in found), sum(one.bytes for one in found)
        agreed(f"Delete {files} files", size, text=not result.as_json)
    done = [empty(one) for one in found]
    code = int(any(one.kept for one in done))
    text = emptied_text(found, done, terminal())
    sys.stdout.write(trash_json(found, done, code) if result.as_json else text)
    raise typer.Exit(code)


def _found(clearing: str, kind: Kinds, cache_dir: str) -> list[Trashed]:
    """What the trash of the selected caches holds. Raises a usage error for an unknown clearing."""
    from attn_doctor.kernels.caches.trash import trashed

    locations = selected(kind, cache_dir)
    found = [one for location in locations for one in trashed(location.path)]
    if not clearing:
        return found
    chosen = [one for one in found if one.id == clearing]
    if not chosen:
        ids = ", ".join(sorted({one.id for one in found})) or "nothing"
        raise typer.BadParameter(f"{clearing} is not in the trash, which holds {ids}")
    return chosen
