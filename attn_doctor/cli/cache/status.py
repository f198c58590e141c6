"""`attn-doctor cache status`: every cache with its size, age, and what in it still serves."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from attn_doctor.cli.cache.options import Kinds, Python, Where, examined, places
from attn_doctor.cli.format_option import Format

#: Seconds for opening entries of one cache, unless all are asked for.
SECONDS = 10.0


def status(
    path: Where = "",
    kind: Kinds = None,
    python: Python = "",
    format: Annotated[Format, typer.Option(help="How to write it.")] = Format.text,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Also why entries are unknown, and the record."),
    ] = False,
) -> None:
    """Show every cache: where it lies, whose it is, its size and age, entries live and stale.

    Stale is what cannot serve this environment on this machine; unknown is what does not tell.
    Reads only; nothing in a cache is loaded or run.

    Exit codes: 0 shown, 2 a folder that is no cache.
    """
    from attn_doctor.kernels.caches.survey import survey

    wanted = places(kind, path)
    facts = examined(python)
    found = [survey(place, facts, SECONDS) for place in wanted]
    if format is Format.json:
        from attn_doctor.render.caches.json import status_json

        sys.stdout.write(status_json(found))
        return
    from attn_doctor.render.caches.text import status_text
    from attn_doctor.render.terminal import Paper

    paper = Paper.of(sys.stdout, dict(os.environ))
    sys.stdout.write(status_text(found, facts, paper, verbose=verbose))
