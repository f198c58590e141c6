"""`attn-doctor cache verify`: find what is cut short or corrupt, and prove that kernels hit."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli.cache_options import Format, Kind, Kinds, Python, Where, examined, places

if TYPE_CHECKING:
    from attn_doctor.caches.proof import Proof
    from attn_doctor.caches.verifying import Verified

__all__ = ["verify"]


def verify(
    path: Where = "",
    kind: Kinds = None,
    python: Python = "",
    require_hit: Annotated[
        bool,
        typer.Option(
            "--require-hit",
            help="Run every built kernel in a fresh process, and fail unless all caches hit and no"
            " compiler runs.",
        ),
    ] = False,
    format: Annotated[Format, typer.Option(help="How to write it.")] = Format.text,
) -> None:
    """Find entries that are cut short or corrupt, and recorded files that are gone.

    Reads only: pickles as lists of instructions, libraries by their headers. With --require-hit the
    kernels that `build-kernels` recorded are run, each in a fresh process of the examined
    interpreter, and compared with a float64 reference.

    Exit codes: 0 sound, 1 something is broken or a kernel does not hit, 2 a folder that is no
    cache, or nothing was built that could hit.
    """
    from attn_doctor.caches.survey import survey
    from attn_doctor.caches.verifying import verify as looked

    wanted = places(kind, path)
    if not kind and not path:
        wanted = tuple(one for one in wanted if one.kind != Kind.hub.value)
    facts = examined(python)
    found = [survey(place, facts, 0.0) for place in wanted]
    checked = [looked(one) for one in found if one.exists]
    proof: list[Proof] = []
    if require_hit:
        from attn_doctor.cli.cache_proof import proven

        proof = proven([one for one in found if one.exists], facts, quiet=format is Format.json)
    hits = all(one.hit for one in proof)
    code = 0 if hits and all(_sound(one, named=bool(path or kind)) for one in checked) else 1
    if format is Format.json:
        from attn_doctor.render.caches_json import verify_json

        sys.stdout.write(verify_json(checked, code, proof))
        raise typer.Exit(code)
    from attn_doctor.render.caches_text import verify_text
    from attn_doctor.render.paper import Paper

    paper = Paper.of(sys.stdout, dict(os.environ))
    sys.stdout.write(verify_text(checked, paper))
    if require_hit:
        from attn_doctor.render.cache_proof import proof_text

        sys.stdout.write(proof_text(proof, paper))
    raise typer.Exit(code)


def _sound(one: Verified, *, named: bool) -> bool:
    """A folder in a cache's usual place that is none is no damage, unless it was asked for."""
    return one.sound or (bool(one.unrecognised) and not named)
