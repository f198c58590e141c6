"""`attn-doctor cache why`: which component changed, so that a kernel is compiled again."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli.cache.options import examined
from attn_doctor.cli.common_options import CacheDir, Python
from attn_doctor.cli.result_options import ResultOptions, terminal
from attn_doctor.errors import AttnDoctorError

if TYPE_CHECKING:
    from attn_doctor.facts import Facts
    from attn_doctor.record.manifest import Manifest
    from attn_doctor.record.trace import Lookup


def why(
    *,
    program: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND…]",
            help="A program that compiles kernels which should be in the cache. It is run, and each"
            " graph that misses is explained.",
            show_default=False,
        ),
    ] = None,
    cache_dir: CacheDir = "",
    python: Python = "",
    result: ResultOptions,
) -> None:
    """Name the components that changed since kernels were built, so that they are not reused.

    Without a command, compares the record of `build-kernels` with this machine: torch, Triton, GPU,
    Python, compilers, environment variables, mask files. With a command, runs it with the cache and
    compares the keys that it looks up, component by component, with those that were built: tensors
    (dtype, shape, strides), settings, the traced graph. The command's kernels are compiled and
    cached as usual.

    Exit codes: 0 everything is reused, 1 a kernel is not reused, 2 nothing was built, or the
    program does not exist.
    """
    from attn_doctor.kernels.builder.devices import cache_folder, precompiles
    from attn_doctor.kernels.verify.why import kernels_by_device
    from attn_doctor.record import store
    from attn_doctor.render.caches.why import why_json, why_text

    facts = examined(python)
    folder = cache_folder(facts, cache_dir)
    manifest = store.load(folder)
    if manifest is None or not (manifest.entries or manifest.warmups):
        raise AttnDoctorError(
            f"{folder} has no kernels that attn-doctor built, so there is nothing to compare with:"
            " run `attn-doctor build-kernels` first, or name the folder with --cache-dir."
            " `attn-doctor cache status` shows what torch stored there; with"
            " TORCH_LOGS=recompiles,torch._inductor.codecache torch logs why it compiles again"
        )
    if program:
        raise typer.Exit(_of_program(program, facts, folder, manifest, result))
    found = kernels_by_device(manifest, facts, folder, os.environ)
    code = int(any(place.misses for place in found))
    if result.as_json:
        sys.stdout.write(why_json(str(folder), found, code))
    else:
        remarks = filter(None, [precompiles(os.environ)])
        sys.stdout.write(why_text(str(folder), found, terminal(), [*remarks]))
    raise typer.Exit(code)


def _of_program(
    program: list[str], facts: Facts, folder: Path, manifest: Manifest, result: ResultOptions
) -> int:
    from attn_doctor.kernels.verify.why import reasons
    from attn_doctor.record.key_parts import known_keys
    from attn_doctor.render.caches.why import program_json, program_text

    code, found = _lookups(program, facts, folder)
    if code != 0:
        sys.stderr.write(f"attn-doctor: {program[0]} ended with exit code {code}\n")
        return code
    hits = sum(one.what == "hit" for one in found)
    missed = reasons(found, known_keys(manifest, folder))
    code = int(bool(missed) or not found)
    if result.as_json:
        sys.stdout.write(program_json(str(folder), hits, missed, code))
    else:
        sys.stdout.write(program_text(str(folder), hits, missed, terminal()))
    return code


def _lookups(program: list[str], facts: Facts, folder: Path) -> tuple[int, list[Lookup]]:
    """Run the program in the examined environment, and read what torch's trace says of it."""
    import tempfile

    from attn_doctor.kernels.builder.devices import children_environment
    from attn_doctor.kernels.builder.program_run import program_of
    from attn_doctor.processes import Running
    from attn_doctor.record.trace import lookups

    environ, _ = children_environment(os.environ, str(folder))
    argv, environ = program_of(program, facts, environ)
    with tempfile.TemporaryDirectory(prefix="attn-doctor-why-") as trace:
        environ["TORCH_TRACE"] = trace
        with Running(
            argv, env=environ, attached=True, joined=True, output=sys.stderr.fileno()
        ) as running:
            code = running.wait()
        return (128 - code if code is not None and code < 0 else code or 0), lookups(Path(trace))
