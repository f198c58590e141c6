"""`attn-doctor cache verify --require-hit`: run what was built, and see that nothing compiles."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from attn_doctor.caches.proof import Proof
from attn_doctor.errors import AttnDoctorError

if TYPE_CHECKING:
    from attn_doctor.builder.manifest import Entry
    from attn_doctor.caches.survey import Survey
    from attn_doctor.facts import Facts

__all__ = ["proven"]

#: Kinds of entries that only a compilation adds; Triton's files may also come out of a graph.
_COMPILED = ("fxgraph/", "aotautograd/")


def proven(found: Sequence[Survey], facts: Facts, *, quiet: bool) -> list[Proof]:
    """One proof for each kernel of this machine in the records of these caches.

    Raises `AttnDoctorError` if no record has a kernel for a device of this machine.
    """
    results: list[Proof] = []
    for one in found:
        if one.manifest is None:
            continue
        here = {record.place for record in one.built if record.here is not False}
        entries = {key: each for key, each in one.manifest.entries.items() if each.place in here}
        folder = Path(one.real or one.place.path)
        results += [
            _proof(folder, key, each, each.message or "it is not built")
            for key, each in entries.items()
            if each.build is None
        ]
        built = {key: each for key, each in entries.items() if each.build is not None}
        results += _run(folder, built, facts, quiet=quiet)
    if not results:
        folders = ", ".join(one.place.path for one in found if one.place.kind == "inductor")
        raise AttnDoctorError(
            f"nothing was built for this machine in {folders or 'any cache'}, so nothing can hit:"
            " build first (`attn-doctor build-kernels`), or name the folder with"
            " TORCHINDUCTOR_CACHE_DIR"
        )
    return results


def _run(folder: Path, built: Mapping[str, Entry], facts: Facts, *, quiet: bool) -> list[Proof]:
    from attn_doctor.builder.devices import DeviceError, children_environment
    from attn_doctor.builder.pool import PoolError
    from attn_doctor.builder.run import Request, prove
    from attn_doctor.caches.tree import read_tree

    if not built:
        return []
    try:
        environ, _ = children_environment(os.environ, str(folder))
    except DeviceError as error:
        raise AttnDoctorError(str(error)) from None
    request = Request(
        specs=(),
        devices=(),
        facts=facts,
        folder=folder,
        environ=environ,
        sys_path=(os.getcwd(),),
    )
    if not quiet:
        count = "1 kernel" if len(built) == 1 else f"{len(built)} kernels"
        sys.stderr.write(f"Running {count} of {folder}, each in a fresh process …\n")
    # A job that is told to stop must not leave its children behind.
    signal.signal(signal.SIGTERM, _stop)
    before = read_tree(str(folder)).nodes
    try:
        entries = prove(request, built)
    except PoolError as error:
        raise AttnDoctorError(f"{facts.python.path} cannot run kernels: {error.message}") from None
    after = read_tree(str(folder)).nodes
    results = [
        _proof(folder, key, entries[key], entries[key].message, hit=entries[key].state == "built")
        if key in entries
        else _proof(folder, key, entry, "it was not come to")
        for key, entry in built.items()
    ]
    new = [
        path
        for path, node in after.items()
        if node.kind == "file" and path not in before and path.startswith(_COMPILED)
    ]
    if new:
        message = f"{len(new)} compiled graphs were missing and have been added, as {new[0]}"
        results.append(
            Proof(folder=str(folder), title="the cache itself", hit=False, message=message)
        )
    return results


def _proof(folder: Path, key: str, entry: Entry, message: str, *, hit: bool = False) -> Proof:
    build = entry.build
    return Proof(
        folder=str(folder),
        key=key,
        title=entry.spec.title,
        place=entry.place,
        hit=hit,
        seconds=None if build is None else build.reuse_seconds,
        errors={} if build is None else build.errors,
        message=message,
    )


def _stop(number: int, _: object) -> None:
    raise typer.Exit(128 + number)
