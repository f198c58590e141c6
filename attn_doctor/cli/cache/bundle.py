"""`attn-doctor cache export` and `cache import`: copy built kernels as one file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli.cache.options import examined
from attn_doctor.cli.common_options import CacheDir, DryRun, Python
from attn_doctor.cli.result_options import ResultOptions
from attn_doctor.cli.screen import terminal

if TYPE_CHECKING:
    from attn_doctor.facts import Facts
    from attn_doctor.kernels.builder.plan import BuildRequest
    from attn_doctor.kernels.bundle.artifact import Artifact


def export(
    *,
    file: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write the artifact.")
    ],
    cache_dir: CacheDir = "",
    python: Python = "",
    sign_with: Annotated[
        Path | None,
        typer.Option(
            metavar="KEY",
            help="Sign the artifact with this SSH key, into FILE.sig. A .pub file: use ssh-agent.",
            show_default=False,
        ),
    ] = None,
    result: ResultOptions,
) -> None:
    """Write the built kernels of a cache folder into one file, for machines of the same kind.

    The file holds the kernels for all GPUs, and warm-ups without their programs. Kernels that were
    built without their GPU stay unverified. The other machine needs the printed SHA-256 (`cache
    import --sha256`), sent separately from the file; or sign the file and give your public key.

    Exit codes: 0 written, 2 nothing to export, or the file cannot be written.
    """
    from attn_doctor.kernels.builder.devices import cache_folder
    from attn_doctor.kernels.bundle import pack
    from attn_doctor.kernels.bundle.trust import sign
    from attn_doctor.render.caches.bundle import exported_json, exported_text

    folder = cache_folder(examined(python), cache_dir)
    exported = pack.export(folder, file)
    signature = sign(file, sign_with) if sign_with else None
    if result.as_json:
        sys.stdout.write(exported_json(exported))
    else:
        sys.stdout.write(exported_text(exported, terminal(), signature))


def import_(
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An artifact of `cache export`.")],
    sha256: Annotated[
        str,
        typer.Option(metavar="HEX", help="Expected SHA-256 of the artifact."),
    ] = "",
    signers: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Trusted signers: a file of OpenSSH public keys, one `name key` per line.",
            show_default=False,
        ),
    ] = None,
    cache_dir: CacheDir = "",
    python: Python = "",
    no_verify: Annotated[
        bool,
        typer.Option(
            "--no-verify",
            help="Run nothing: import unverified kernels, for example into an image that is built"
            " without the GPU.",
        ),
    ] = False,
    dry_run: DryRun = False,
    result: ResultOptions,
) -> None:
    """Import kernels that another machine built, after verifying them here.

    An artifact holds pickles and machine code, which torch loads: importing one runs its author's
    code. So it needs a digest or a signature that you trust. Every kernel then runs in a fresh
    process, must hit every cache, and is compared with a float64 reference. Only verified kernels
    are imported. torch, Triton, Python's minor version and the compute capability must be the
    builder's. If only the GPU's name or settings such as CXX differ, only Triton's kernels are
    imported, which saves most of the compilation. Warm-ups are imported unverified: verify them
    with `cache verify -- COMMAND`.

    Exit codes: 0 imported, 1 it does not fit this machine or a kernel failed its verification, 2 it
    is not trusted, damaged or not an artifact.
    """
    if not (sha256 or signers or dry_run):
        raise typer.BadParameter(
            "an artifact can run code as you: confirm its origin with --sha256 HEX (printed by"
            " `cache export`) or --signers FILE. --dry-run shows its description only"
        )
    from attn_doctor.kernels.builder.devices import cache_folder
    from attn_doctor.kernels.bundle import artifact as artifacts
    from attn_doctor.ownership import require

    if signers:
        require(signers)
    facts = examined(python)
    if dry_run:
        raise typer.Exit(_preview(artifacts.head(file), file, facts, result))
    from attn_doctor.kernels.bundle.unpack import private
    from attn_doctor.kernels.verify.run import request_for

    folder = cache_folder(facts, cache_dir)
    with private(file, folder) as copy:
        who = _trusted(copy, sha256, signers)
        artifact = artifacts.head(copy)
        request = request_for(folder, facts)
        raise typer.Exit(_import(copy, artifact, who, request, result, run=not no_verify))


def _trusted(copy: Path, sha256: str, signers: Path | None) -> str:
    """Say why the artifact is trusted. Raises `ArtifactError` if a given check fails."""
    from attn_doctor.kernels.bundle.trust import check_digest, check_signature

    if sha256:
        check_digest(copy, sha256)
    return f"signed by {check_signature(copy, signers)}" if signers else "has the digest you gave"


def _preview(artifact: Artifact, file: Path, facts: Facts, result: ResultOptions) -> int:
    from attn_doctor.kernels.bundle.compatibility import Layer, compatibility
    from attn_doctor.render.caches.bundle import preview_json, preview_text

    found = compatibility(artifact, facts, os.environ)
    code = int(not any(one.layer in (Layer.EXACT, Layer.KERNELS) for one in found.values()))
    if result.as_json:
        sys.stdout.write(preview_json(artifact, file, found, code))
    else:
        sys.stdout.write(preview_text(artifact, file, found, terminal()))
    return code


def _import(
    copy: Path,
    artifact: Artifact,
    who: str,
    request: BuildRequest,
    result: ResultOptions,
    *,
    run: bool,
) -> int:
    from attn_doctor.errors import AttnDoctorError
    from attn_doctor.kernels.builder.progress import Watcher
    from attn_doctor.kernels.bundle.compatibility import Layer, compatibility
    from attn_doctor.kernels.bundle.unpack import unpack
    from attn_doctor.pool.pool import PoolError
    from attn_doctor.render.caches.bundle import imported_json, imported_text

    found = compatibility(artifact, request.facts, os.environ)
    layers = {one.layer for one in found.values()}
    usable = {Layer.EXACT, Layer.KERNELS} | (set() if run else {Layer.ABSENT})
    if not layers & usable:
        return _preview(artifact, Path(copy.name), request.facts, result)
    if run and not result.as_json:
        count = sum(found[one.device_slot].layer in usable for one in artifact.entries.values())
        kernels = "1 kernel" if count == 1 else f"{count} kernels"
        if count:
            sys.stderr.write(f"Verifying {kernels} ({who}) in fresh processes …\n")
    try:
        done = unpack(copy, artifact, request, Watcher(), found, run=run)
    except PoolError as error:
        python = request.facts.python.path
        raise AttnDoctorError(f"{python} cannot run kernels: {error.message}") from None
    code = int(bool(done.refused) or not (done.anything or done.present))
    if result.as_json:
        sys.stdout.write(imported_json(done, found, str(request.folder), code))
    else:
        sys.stdout.write(imported_text(done, found, str(request.folder), terminal()))
    return code
