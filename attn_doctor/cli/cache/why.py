"""`attn-doctor cache why`: which component changed, so that a kernel is compiled again."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli.cache.options import examined
from attn_doctor.cli.common_options import CacheDir, Python
from attn_doctor.cli.result_options import ResultOptions
from attn_doctor.cli.screen import terminal
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
    cached as usual. Where `build-kernels` has built nothing, the command is run twice, and its
    second run is compared with its first.

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
        if program:
            raise typer.Exit(_of_two_runs(program, facts, folder, result))
        raise AttnDoctorError(
            f"{folder} has no kernels that attn-doctor built, so there is nothing to compare with."
            " `attn-doctor cache why -- python train.py` runs a program twice, and says why its"
            " second run compiles again. `attn-doctor cache status` shows what torch stored;"
            " --cache-dir names another folder"
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
    from attn_doctor.record.key_parts import known_keys

    code, found = _lookups(program, facts, folder)
    return code or _compared(found, known_keys(manifest, folder), folder, result)


def _of_two_runs(program: list[str], facts: Facts, folder: Path, result: ResultOptions) -> int:
    """Run the program twice, and compare the keys of the second run with those of the first."""
    sys.stderr.write(
        f"attn-doctor: {folder} has no kernels that attn-doctor built, so the program is run twice,"
        " and its second run is compared with its first\n"
    )
    code, first = _lookups(program, facts, folder)
    if code:
        return code
    code, second = _lookups(program, facts, folder)
    return code or _compared(second, {"the first run": first}, folder, result)


def _compared(
    found: list[Lookup], known: dict[str, list[Lookup]], folder: Path, result: ResultOptions
) -> int:
    """Print the lookups and why some missed; return the exit code."""
    from attn_doctor.kernels.verify.why import reasons
    from attn_doctor.render.caches.why import program_json, program_text

    hits = sum(one.what == "hit" for one in found)
    missed = reasons(found, known)
    code = int(bool(missed) or not found)
    if result.as_json:
        sys.stdout.write(program_json(str(folder), hits, missed, code))
    else:
        sys.stdout.write(program_text(str(folder), hits, missed, terminal()))
    return code


def _lookups(program: list[str], facts: Facts, folder: Path) -> tuple[int, list[Lookup]]:
    """Run the program in the examined environment, and read what torch's trace says of it.

    The first value is its exit code, which is reported unless it is 0.
    """
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
        code = 128 - code if code is not None and code < 0 else code or 0
        if code:
            sys.stderr.write(f"attn-doctor: {program[0]} ended with exit code {code}\n")
        return code, lookups(Path(trace))
