"""Asks torch, Triton and cuda.pathfinder what they resolve after the lines were run."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

from attn_doctor import worker
from attn_doctor.json_files import JsonError, decode
from attn_doctor.processes import run

#: Seconds to import torch and triton; a cold disk of a network takes long.
LIMIT = 120.0


class Answer(Struct, frozen=True, kw_only=True):
    """What one consumer answered."""

    name: str
    """`torch`, `triton` or `cuda.pathfinder`."""
    says: str
    """Its answer, as a sentence."""
    agrees: bool | None = None
    """Whether it uses the chosen toolkit; None if it uses none or could not be asked."""


def ask(python: str, environ: Mapping[str, str], root: str) -> tuple[Answer, ...]:
    """Return the answers of those installed with the interpreter at `python`.

    `environ` is the environment of the user's shell after the exports.
    """
    # Up to Python 3.10 the first entry of sys.path is the folder of the script, which removes it.
    variables = {**environ, "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    ran = run(worker.command(python, "cuda_home"), LIMIT, env=variables, cwd=os.sep)
    try:
        said = decode(ran.out.strip().rpartition("\n")[2], dict[str, _Said])
    except JsonError:
        why = ran.status if not ran.ok else "it printed no answer"
        return (Answer(name="torch", says=f"could not be asked: {why}"),)
    readers = {"torch": _torch, "triton": _triton, "cuda.pathfinder": _pathfinder}
    found = []
    for name, reader in readers.items():
        answer = said.get(name.rpartition(".")[2], _Said(missing=True))
        if answer.error:
            found.append(Answer(name=name, says=f"cannot be imported: {answer.error}"))
        elif not answer.missing:
            found.append(reader(name, answer, root))
    return tuple(found)


class _Said(Struct, frozen=True, kw_only=True):
    """What `worker/cuda_home.py` says of one package."""

    missing: bool = False
    error: str = ""
    version: str = "?"
    home: str | None = None
    ptxas: str = ""
    nvcc: str | None = None


def _torch(name: str, answer: _Said, root: str) -> Answer:
    says = f"{answer.version} resolves CUDA_HOME to {answer.home or 'nothing'}"
    return Answer(name=name, says=says, agrees=_same(answer.home or "", root))


def _triton(name: str, answer: _Said, root: str) -> Answer:
    says = f"{answer.version} uses {answer.ptxas}, independent of CUDA_HOME"
    inside = os.path.realpath(answer.ptxas).startswith(os.path.realpath(root) + os.sep)
    return Answer(name=name, says=says, agrees=True if inside else None)


def _pathfinder(name: str, answer: _Said, root: str) -> Answer:
    nvcc, home = answer.nvcc or "", answer.home or ""
    found = os.path.dirname(os.path.dirname(os.path.realpath(nvcc))) if nvcc else ""
    says = f"{answer.version} finds nvcc at {nvcc or 'no path'}"
    if found and not _same(found, root) and _same(home, root):
        says += ", because it searches the environment's own wheels first; CUDA_PATH reaches it"
        return Answer(name=name, says=says)
    return Answer(name=name, says=says, agrees=_same(found or home, root))


def _same(one: str, other: str) -> bool:
    return bool(one) and os.path.realpath(one) == os.path.realpath(other)
