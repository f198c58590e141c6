"""`attn-doctor cache export` and `cache import`: built kernels as one file, and back."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli.cache.options import Python, examined
from attn_doctor.cli.format_option import Format

if TYPE_CHECKING:
    from attn_doctor.facts import Facts
    from attn_doctor.kernels.builder.plan import BuildRequest
    from attn_doctor.kernels.bundle.artifact import Artifact

Folder = Annotated[
    str,
    typer.Option(
        metavar="DIR",
        help="Cache folder. Default: TORCHINDUCTOR_CACHE_DIR, else torch's own.",
    ),
]


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the artifact.")],
    cache_dir: Folder = "",
    python: Python = "",
    sign_with: Annotated[
        Path | None,
        typer.Option(
            metavar="KEY",
            help="Sign it with this SSH key, into FILE.sig; a .pub file: through ssh-agent.",
            show_default=False,
        ),
    ] = None,
    format: Annotated[Format, typer.Option(help="How to write the result.")] = Format.text,
) -> None:
    """Write all that was built in a cache folder into one file, for machines of the same kind.

    Kernels for several GPUs go into the same file; so do warm-ups, without their programs. What was
    built without its GPU travels as unverified. The SHA-256 that is printed is what the other side
    needs (`cache import --sha256`), told by another way than the file itself; or sign the file, and
    give your public key.

    Exit codes: 0 written, 2 nothing to export, or the file cannot be written.
    """
    from attn_doctor.kernels.builder.devices import cache_folder
    from attn_doctor.kernels.bundle.pack import choose, pack
    from attn_doctor.kernels.bundle.trust import sign
    from attn_doctor.render.caches.bundle import exported_json, exported_text

    folder = cache_folder(examined(python), cache_dir)
    choice = choose(folder)
    artifact, digest = pack(folder, choice, file)
    signature = sign(file, sign_with) if sign_with else None
    size = file.stat().st_size
    if format is Format.json:
        sys.stdout.write(exported_json(artifact, file, digest, size, choice.left_out))
        return
    sys.stdout.write(exported_text(artifact, file, digest, size, choice.left_out, signature))


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An artifact of `cache export`.")],
    sha256: Annotated[
        str,
        typer.Option(metavar="HEX", help="The digest that whoever made it told you."),
    ] = "",
    signers: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Whose signature counts: a list of OpenSSH public keys, each line `name key`.",
            show_default=False,
        ),
    ] = None,
    cache_dir: Folder = "",
    python: Python = "",
    no_prove: Annotated[
        bool,
        typer.Option(
            "--no-verify",
            help="Run nothing: take it in unverified, as where an image is built without the GPU.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Show what it holds and whether it fits here.")
    ] = False,
    format: Annotated[Format, typer.Option(help="How to write the result.")] = Format.text,
) -> None:
    """Take in kernels that another machine built, once they are verified here.

    An artifact holds pickles and machine code, which torch loads: importing one from somebody else
    runs their code. So it needs a digest or a signature that you trust. Every kernel then runs in a
    fresh process, must hit every cache, and is compared with a float64 reference; only what holds
    is taken in. torch, Triton, Python's minor version and the compute capability must be the
    builder's. Where only the GPU's name or settings such as CXX differ, Triton's kernels are taken
    in alone, which spares most of the compiling. Warm-ups are taken in unverified: `cache verify --
    COMMAND` proves them.

    Exit codes: 0 taken in as said, 1 it does not fit this machine or a kernel did not hold, 2 it is
    not trusted, damaged or no artifact.
    """
    if not (sha256 or signers or dry_run):
        raise typer.BadParameter(
            "an artifact can run code as you: say why to trust it, with --sha256 HEX (printed by"
            " `cache export`) or --signers FILE. --dry-run looks without opening it"
        )
    from attn_doctor.kernels.builder.devices import cache_folder
    from attn_doctor.kernels.bundle import artifact as artifacts

    facts = examined(python)
    if dry_run:
        raise typer.Exit(_looked_at(artifacts.head(file), file, facts, format))
    from attn_doctor.cli.cache.verify_run import request_for
    from attn_doctor.kernels.bundle.unpack import private

    folder = cache_folder(facts, cache_dir)
    with private(file, folder) as copy:
        who = _trusted(copy, sha256, signers)
        artifact = artifacts.head(copy)
        request = request_for(folder, facts)
        raise typer.Exit(_taken_in(copy, artifact, who, request, format, run=not no_prove))


def _trusted(copy: Path, sha256: str, signers: Path | None) -> str:
    """Why the artifact is trusted. Raises `ArtifactError` if it is not; both must hold if given."""
    from attn_doctor.kernels.bundle.trust import check_digest, check_signature

    if sha256:
        check_digest(copy, sha256)
    return f"signed by {check_signature(copy, signers)}" if signers else "has the digest you gave"


def _looked_at(artifact: Artifact, file: Path, facts: Facts, format: Format) -> int:
    from attn_doctor.kernels.bundle.compatibility import Layer, fits
    from attn_doctor.render.caches.bundle import looked_json, looked_text

    found = fits(artifact, facts, os.environ)
    code = int(not any(one.layer in (Layer.EXACT, Layer.KERNELS) for one in found.values()))
    if format is Format.json:
        sys.stdout.write(looked_json(artifact, file, found, code))
    else:
        sys.stdout.write(looked_text(artifact, file, found))
    return code


def _taken_in(
    copy: Path, artifact: Artifact, who: str, request: BuildRequest, format: Format, *, run: bool
) -> int:
    from attn_doctor.errors import AttnDoctorError
    from attn_doctor.kernels.builder.watcher import Watcher
    from attn_doctor.kernels.bundle.compatibility import Layer, fits
    from attn_doctor.kernels.bundle.unpack import unpack
    from attn_doctor.pool.pool import PoolError
    from attn_doctor.render.caches.bundle import imported_json, imported_text

    found = fits(artifact, request.facts, os.environ)
    layers = {one.layer for one in found.values()}
    usable = {Layer.EXACT, Layer.KERNELS} | (set() if run else {Layer.ABSENT})
    if not layers & usable:
        return _looked_at(artifact, Path(copy.name), request.facts, format)
    if format is Format.text and run:
        count = sum(found[one.device_slot].layer in usable for one in artifact.entries.values())
        kernels = "1 kernel" if count == 1 else f"{count} kernels"
        if count:
            sys.stderr.write(f"Proving {kernels}, {who}, in fresh processes …\n")
    try:
        done = unpack(copy, artifact, request, Watcher(), found, run=run)
    except PoolError as error:
        python = request.facts.python.path
        raise AttnDoctorError(f"{python} cannot run kernels: {error.message}") from None
    code = int(bool(done.refused) or not (done.anything or done.present))
    if format is Format.json:
        sys.stdout.write(imported_json(done, found, str(request.folder), code))
    else:
        sys.stdout.write(imported_text(done, found, str(request.folder)))
    return code
