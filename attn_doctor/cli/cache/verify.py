"""`attn-doctor cache verify`: find corrupt entries, and verify kernels built elsewhere."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli.cache.options import Kinds, OneCache, examined, selected
from attn_doctor.cli.common_options import Python
from attn_doctor.cli.program_arguments import program_of
from attn_doctor.cli.result_options import ResultOptions
from attn_doctor.cli.screen import terminal

if TYPE_CHECKING:
    from attn_doctor.kernels.verify.run import Verification


def verify(
    *,
    context: typer.Context,
    cache_dir: OneCache = "",
    kind: Kinds = None,
    python: Python = "",
    require_hit: Annotated[
        bool,
        typer.Option(
            "--require-hit",
            help="Run every built kernel in a fresh process. Fail unless all caches hit, no"
            " compiler runs, and every kernel is verified on its own GPU.",
        ),
    ] = False,
    no_verify: Annotated[
        bool,
        typer.Option("--no-verify", help="Read only: do not run unverified kernels."),
    ] = False,
    warm_ups: Annotated[
        bool,
        typer.Option(
            "--warm-ups",
            help="Also re-run recorded warm-up programs whose kernels are unverified, if they are"
            " still at the recorded path and belong to you. Each is shown before it runs.",
        ),
    ] = False,
    result: ResultOptions,
) -> None:
    """Find truncated and corrupt entries, and verify kernels that were built without their GPU.

    Files are only read: pickles as lists of instructions, libraries by their headers. Kernels that
    were built without their GPU (`build-kernels --target`) are run if that GPU is here, each in a
    fresh process of the examined interpreter. They must hit every cache and agree with a float64
    reference; then they are recorded as verified. Every miss is explained. With --require-hit all
    kernels are run.

    With a command (`cache verify --cache-dir DIR -- python warmup.py`), or with --warm-ups, a
    program is run twice: with the cache and with an empty one. All of its graphs must be found in
    the cache, and must compute the same as the graphs that are compiled here.

    Exit codes: 0 nothing is wrong, 1 an entry is broken, missed or wrong (with --require-hit: or
    unverified), 2 --cache-dir is not a cache, or no kernels were built that could hit.
    """
    from msgspec.structs import replace

    from attn_doctor.errors import OwnershipError
    from attn_doctor.kernels.caches.integrity import check
    from attn_doctor.kernels.caches.survey import survey
    from attn_doctor.ownership import cache_refusal

    program = program_of(context)
    locations = selected(kind, cache_dir, hub=False)
    facts = examined(python)
    surveys = [survey(location, facts, 0.0) for location in locations]
    surveys = [one for one in surveys if one.exists]
    for one in surveys:
        if one.danger:
            raise OwnershipError(cache_refusal(one.location.path, one.danger))
    checked = [check(one, facts) for one in surveys]
    quiet = result.as_json
    results: list[Verification] = []

    def say(message: str) -> None:
        # What a record names is shown before it is run, also where nothing else is.
        if warm_ups or not quiet:
            sys.stderr.write(f"{message}\n")

    # A job that receives SIGTERM must not leave its children running.
    signal.signal(signal.SIGTERM, _stop)
    if program or warm_ups:
        from attn_doctor.kernels.verify.run import verify_programs

        results += verify_programs(surveys, facts, program, say)
        checked = [replace(one, verify_commands=()) for one in checked]
    if require_hit or not (no_verify or program):
        from attn_doctor.kernels.verify.run import verify_kernels

        results += verify_kernels(surveys, facts, say, everything=require_hit)
    good = all(one.hit and (one.state != "unverified" or not require_hit) for one in results)
    # An unrelated folder in a cache's usual place is not damage, unless the user selected it.
    named = bool(cache_dir or kind)
    intact = all(one.ok or (one.unrecognised and not named) for one in checked)
    code = 0 if good and intact else 1
    if quiet:
        from attn_doctor.render.caches.json import verify_json

        sys.stdout.write(verify_json(checked, code, results))
        raise typer.Exit(code)
    from attn_doctor.render.caches.text import verify_text

    sys.stdout.write(verify_text(checked, facts, terminal(), cache_dir))
    if results:
        from attn_doctor.render.caches.verification import verification_text

        sys.stdout.write(verification_text(results, facts, terminal()))
    raise typer.Exit(code)


def _stop(number: int, _: object) -> None:
    raise typer.Exit(128 + number)
