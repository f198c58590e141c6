"""Checks whether an artifact may be opened: by its digest, or by a trusted signature.

Signatures are OpenSSH's (`ssh-keygen -Y`), because nearly everybody has such a key, its format is
documented, and no cryptography has to be installed. Source: ssh-keygen(1), OpenSSH's
PROTOCOL.sshsig. ssh-keygen is asked; without it only digests work.
"""

from __future__ import annotations

import hmac
import re
import shutil
from pathlib import Path

from attn_doctor.files import open_binary
from attn_doctor.kernels.bundle.artifact import ArtifactError, sha256
from attn_doctor.processes import run

#: Says what was signed, so that a signature for another purpose does not count.
NAMESPACE = "attn-doctor"
SECONDS = 60.0


def check_digest(path: Path, expected: str) -> None:
    """Raises `ArtifactError` unless the SHA-256 of `path` is `expected` (64 hex digits)."""
    wanted = expected.strip().lower().removeprefix("sha256:")
    if not re.fullmatch(r"[0-9a-f]{64}", wanted):
        raise ArtifactError(
            f"--sha256 {expected!r} is not a SHA-256: give the 64 hex digits of `cache export`"
        )
    found = sha256(path)
    if not hmac.compare_digest(found, wanted):
        raise ArtifactError(
            f"{path} is not the file whose digest you gave: sha256 is {found}, wanted {wanted}"
        )


def sign(path: Path, key: Path) -> Path:
    """Sign `path` with an SSH key, or through the agent for a public one. Returns the signature.

    Raises `ArtifactError` with what ssh-keygen says.
    """
    argv = [_ssh_keygen(), "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(path)]
    signature = path.with_name(f"{path.name}.sig")
    signature.unlink(missing_ok=True)  # ssh-keygen would ask
    ended = run(argv, SECONDS)
    if not ended.ok:
        raise ArtifactError(
            f"{path} could not be signed with {key}: {_said(ended.err, ended.status)}"
        )
    return signature


def check_signature(path: Path, signers: Path) -> str:
    """Who signed `path`, by the allowed-signers file `signers` and `<path>.sig`.

    Raises `ArtifactError` if no listed key signed it.
    """
    signature = path.with_name(f"{path.name}.sig")
    if not signature.is_file():
        raise ArtifactError(f"{signature} is missing: an artifact's signature lies beside it")
    program = _ssh_keygen()
    argv = [program, "-Y", "find-principals", "-f", str(signers), "-s", str(signature)]
    found = run(argv, SECONDS)
    names = found.out.split()
    if not found.ok or not names:
        raise ArtifactError(
            f"{path} was not signed by a key in {signers}: {_said(found.err, found.status)}"
        )
    argv = [program, "-Y", "verify", "-f", str(signers), "-I", names[0], "-n", NAMESPACE]
    try:
        with open_binary(path) as data:
            verified = run([*argv, "-s", str(signature)], SECONDS, stdin=data)
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}") from None
    if not verified.ok:
        reason = _said(verified.err or verified.out, verified.status)
        raise ArtifactError(f"the signature of {path} is not valid: {reason}")
    return names[0]


def _ssh_keygen() -> str:
    found = shutil.which("ssh-keygen")
    if not found:
        raise ArtifactError(
            "ssh-keygen is not installed (package openssh-client), and signatures need it; a digest"
            " needs nothing: --sha256"
        )
    return found


def _said(text: str, otherwise: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else otherwise
