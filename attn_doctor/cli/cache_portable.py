"""`attn-doctor cache export` and `cache import`: built kernels as one file, and back."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli.cache_options import Format, Python, examined

if TYPE_CHECKING:
    from attn_doctor.builder.run import Request
    from attn_doctor.caches.portable.artifact import Artifact
    from attn_doctor.facts import Facts

__all__ = ["export", "import_"]

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
    """Write every proven kernel of a cache folder into one file, for machines of the same kind.

    The SHA-256 that is printed is what the other side needs (`cache import --sha256`), told by
    another way than the file itself; or sign the file, and give your public key.

    Exit codes: 0 written, 2 nothing to export, or the file cannot be written.
    """
    from attn_doctor.builder.devices import cache_folder
    from attn_doctor.caches.portable.packing import choose, pack
    from attn_doctor.caches.portable.trust import sign
    from attn_doctor.render.portable import exported_json, exported_text

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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Show what it holds and whether it fits here.")
    ] = False,
    format: Annotated[Format, typer.Option(help="How to write the result.")] = Format.text,
) -> None:
    """Take in kernels that another machine built, once they are proven here.

    An artifact holds pickles and machine code, which torch loads: importing one from somebody else
    runs their code. So it needs a digest or a signature that you trust. Versions and GPU must be
    the builder's. Then every kernel runs in a fresh process, must hit every cache, and is compared
    with a float64 reference; only what holds is taken in.

    Exit codes: 0 all is in use, 1 it does not fit this machine or a kernel did not hold, 2 it is
    not trusted, damaged or no artifact.
    """
    if not (sha256 or signers or dry_run):
        raise typer.BadParameter(
            "an artifact can run code as you: say why to trust it, with --sha256 HEX (printed by"
            " `cache export`) or --signers FILE. --dry-run looks without opening it"
        )
    from attn_doctor.builder.devices import cache_folder
    from attn_doctor.caches.portable import artifact as artifacts

    facts = examined(python)
    if dry_run:
        raise typer.Exit(_looked_at(artifacts.head(file), file, facts, format))
    from attn_doctor.caches.portable.unpacking import private

    folder = cache_folder(facts, cache_dir)
    with private(file, folder) as copy:
        who = _trusted(copy, sha256, signers)
        artifact = artifacts.head(copy)
        raise typer.Exit(_taken_in(copy, artifact, who, _request(facts, folder), format))


def _trusted(copy: Path, sha256: str, signers: Path | None) -> str:
    """Why the artifact is trusted. Raises `ArtifactError` if it is not; both must hold if given."""
    from attn_doctor.caches.portable.trust import check_digest, check_signature

    if sha256:
        check_digest(copy, sha256)
    return f"signed by {check_signature(copy, signers)}" if signers else "has the digest you gave"


def _request(facts: Facts, folder: Path) -> Request:
    from attn_doctor.builder.devices import children_environment
    from attn_doctor.builder.run import Request

    environ, _ = children_environment(os.environ, str(folder))
    return Request(specs=(), devices=(), facts=facts, folder=folder, environ=environ)


def _looked_at(artifact: Artifact, file: Path, facts: Facts, format: Format) -> int:
    from attn_doctor.caches.portable.unpacking import differences
    from attn_doctor.render.portable import looked_json, looked_text

    moved = differences(artifact, facts, os.environ)
    code = int(any(moved.values()))
    if format is Format.json:
        sys.stdout.write(looked_json(artifact, file, moved, code))
    else:
        sys.stdout.write(looked_text(artifact, file, moved))
    return code


def _taken_in(copy: Path, artifact: Artifact, who: str, request: Request, format: Format) -> int:
    from attn_doctor.builder.pool import PoolError
    from attn_doctor.builder.run import Watcher
    from attn_doctor.caches.portable.unpacking import differences, unpack
    from attn_doctor.errors import AttnDoctorError
    from attn_doctor.render.portable import imported_json, imported_text

    moved = differences(artifact, request.facts, os.environ)
    fits = {place: found for place, found in moved.items() if not found}
    if not fits:
        return _looked_at(artifact, Path(copy.name), request.facts, format)
    if format is Format.text:
        count = len(artifact.entries)
        kernels = "1 kernel" if count == 1 else f"{count} kernels"
        sys.stderr.write(f"Proving {kernels}, {who}, in fresh processes …\n")
    try:
        done = unpack(copy, artifact, request, Watcher(), frozenset(fits))
    except PoolError as error:
        python = request.facts.python.path
        raise AttnDoctorError(f"{python} cannot run kernels: {error.message}") from None
    code = int(bool(done.refused) or len(fits) < len(moved))
    if format is Format.json:
        sys.stdout.write(imported_json(done, moved, str(request.folder), code))
    else:
        sys.stdout.write(imported_text(done, moved, str(request.folder)))
    return code
