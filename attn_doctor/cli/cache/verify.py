"""`attn-doctor cache verify`: find what is corrupt, and prove what was built without its GPU."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli.cache.options import Kind, Kinds, Python, Where, examined, places
from attn_doctor.cli.format_option import Format
from attn_doctor.cli.program_arguments import program_of

if TYPE_CHECKING:
    from attn_doctor.kernels.caches.integrity import Verified
    from attn_doctor.kernels.verify.result import Proof


def verify(
    context: typer.Context,
    path: Where = "",
    kind: Kinds = None,
    python: Python = "",
    require_hit: Annotated[
        bool,
        typer.Option(
            "--require-hit",
            help="Run every built kernel in a fresh process, and fail unless all caches hit, no"
            " compiler runs, and all were verified on their own GPU.",
        ),
    ] = False,
    no_prove: Annotated[
        bool,
        typer.Option(
            "--no-verify", help="Only look: leave kernels that wait for their proof as they are."
        ),
    ] = False,
    warm_ups: Annotated[
        bool,
        typer.Option(
            "--warm-ups",
            help="Also run again the programs whose kernels wait for their proof, where they lie"
            " where they were.",
        ),
    ] = False,
    format: Annotated[Format, typer.Option(help="How to write it.")] = Format.text,
) -> None:
    """Find entries that are cut short or corrupt, and prove kernels that were built elsewhere.

    Files are only read: pickles as lists of instructions, libraries by their headers. Kernels that
    were built without their GPU (`build-kernels --target`) are run, where that GPU is here, each in
    a fresh process of the examined interpreter; they must hit every cache and agree with a float64
    reference. What holds counts as built from then on; what misses is explained. With --require-hit
    all kernels are run.

    With a command (`cache verify [PATH] -- python warmup.py`), or with --warm-ups, a program is run
    twice, with the cache and with an empty one: all of its graphs must be found in the cache, and
    compute what the graphs do that are compiled here.

    Exit codes: 0 sound, 1 something is broken, does not hit or is wrong (with --require-hit: or not
    verified), 2 a folder that is no cache, or nothing was built that could hit.
    """
    from msgspec.structs import replace

    from attn_doctor.kernels.caches.integrity import verify as looked
    from attn_doctor.kernels.caches.survey import survey

    program = program_of(context)
    wanted = places(kind, path)
    if not kind and not path:
        wanted = tuple(one for one in wanted if one.kind != Kind.hub.value)
    facts = examined(python)
    found = [survey(place, facts, 0.0) for place in wanted]
    checked = [looked(one) for one in found if one.exists]
    there = [one for one in found if one.exists]
    quiet = format is Format.json
    proof: list[Proof] = []
    if program or warm_ups:
        from attn_doctor.cli.cache.programs import compared

        proof += compared(there, facts, program, quiet=quiet)
        checked = [replace(one, programs=()) for one in checked]
    if require_hit or not (no_prove or program):
        from attn_doctor.cli.cache.verify_run import verified

        proof += verified(there, facts, everything=require_hit, quiet=quiet)
    held = all(one.hit and (one.state != "unverified" or not require_hit) for one in proof)
    code = 0 if held and all(_sound(one, named=bool(path or kind)) for one in checked) else 1
    if format is Format.json:
        from attn_doctor.render.caches.json import verify_json

        sys.stdout.write(verify_json(checked, code, proof))
        raise typer.Exit(code)
    from attn_doctor.render.caches.text import verify_text
    from attn_doctor.render.terminal import Paper

    paper = Paper.of(sys.stdout, dict(os.environ))
    sys.stdout.write(verify_text(checked, facts, paper, [path] if path else []))
    if proof:
        from attn_doctor.render.caches.verification import proof_text

        sys.stdout.write(proof_text(proof, facts, paper))
    raise typer.Exit(code)


def _sound(one: Verified, *, named: bool) -> bool:
    """A folder in a cache's usual place that is none is no damage, unless it was asked for."""
    return one.sound or (bool(one.unrecognised) and not named)
