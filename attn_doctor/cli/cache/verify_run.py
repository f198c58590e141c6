"""`attn-doctor cache verify`: run what was built; nothing may compile, and all must be right."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from attn_doctor.errors import AttnDoctorError
from attn_doctor.kernels.verify.result import Proof

if TYPE_CHECKING:
    from attn_doctor.facts import Facts
    from attn_doctor.kernels.builder.plan import BuildRequest
    from attn_doctor.kernels.caches.survey import Survey
    from attn_doctor.kernels.verify.misses import Miss
    from attn_doctor.record.manifest import Entry, Manifest

#: Kinds of entries that only a compilation adds; Triton's files may also come out of a graph.
_COMPILED = ("fxgraph/", "aotautograd/")


def verified(
    found: Sequence[Survey], facts: Facts, *, everything: bool, quiet: bool
) -> list[Proof]:
    """One proof for each kernel of this machine in the records of these caches.

    `everything`: all that was built, and `AttnDoctorError` if no record has a kernel for a device
    of this machine; else only what still waits for its proof. What is verified is written down.
    """
    results: list[Proof] = []
    for one in found:
        if one.manifest is not None:
            results += _of_cache(one, one.manifest, facts, everything=everything, quiet=quiet)
    if everything and not results:
        folders = ", ".join(one.place.path for one in found if one.place.kind == "inductor")
        others = dict.fromkeys(
            str(each.device_slot) for one in found for each in one.built if each.device_slot
        )
        only = f", only for {', '.join(others)}" if others else ""
        raise AttnDoctorError(
            f"nothing was built for this machine in {folders or 'any cache'}{only}, so nothing can"
            " hit: build first (attn-doctor build-kernels), or name the folder that was built in"
            " (attn-doctor cache verify DIR --require-hit)"
        )
    return results


def _of_cache(
    one: Survey, manifest: Manifest, facts: Facts, *, everything: bool, quiet: bool
) -> list[Proof]:
    from attn_doctor.kernels.verify.entries import unverified
    from attn_doctor.shell.commands import verify

    here = {str(record.device_slot) for record in one.built if record.device_present is not False}
    folder = Path(one.real or one.place.path)
    if not everything:
        return _run(folder, unverified(manifest, here), facts, quiet=quiet)
    entries = {key: each for key, each in manifest.entries.items() if each.device_slot in here}
    results = [
        _proof(folder, key, each, each.message or "it is not built")
        for key, each in entries.items()
        if each.build is None
    ]
    results += [
        Proof(
            folder=str(folder),
            key=key,
            title=" ".join(each.argv),
            place=each.device_slot,
            hit=False,
            state="unverified",
            was="unverified",
            message="its results were not compared on this GPU yet: "
            + verify(folder, facts, each.argv),
        )
        for key, each in manifest.warmups.items()
        if each.unverified and each.device_slot in here
    ]
    built = {key: each for key, each in entries.items() if each.build is not None}
    return results + _run(folder, built, facts, quiet=quiet)


def request_for(folder: Path, facts: Facts, entries: Iterable[Entry] = ()) -> BuildRequest:
    """What the proving processes are started with. Raises `AttnDoctorError` where it is no use.

    The masks of `entries` are looked for where they were found before.
    """
    from attn_doctor.kernels.builder.devices import DeviceError, children_environment
    from attn_doctor.kernels.builder.items import mask_folders
    from attn_doctor.kernels.builder.plan import BuildRequest

    try:
        environ, _ = children_environment(os.environ, str(folder))
    except DeviceError as error:
        raise AttnDoctorError(str(error)) from None
    return BuildRequest(
        specs=(),
        devices=(),
        facts=facts,
        folder=folder,
        environ=environ,
        sys_path=(*mask_folders(entries), os.getcwd()),
    )


def _run(folder: Path, built: Mapping[str, Entry], facts: Facts, *, quiet: bool) -> list[Proof]:
    from attn_doctor.kernels.caches.file_tree import read_tree
    from attn_doctor.kernels.verify.entries import proved, unwritable, write_down
    from attn_doctor.pool.pool import PoolError

    if not built:
        return []
    request = request_for(folder, facts, built.values())
    obstacle = unwritable(folder)
    if obstacle:
        return [_itself(folder, f"{folder} cannot be written ({obstacle}): {_NEEDS_TO_WRITE}")]
    if not quiet:
        count = "1 kernel" if len(built) == 1 else f"{len(built)} kernels"
        sys.stderr.write(f"Running {count} of {folder}, each in a fresh process …\n")
    # A job that is told to stop must not leave its children behind.
    signal.signal(signal.SIGTERM, _stop)
    before = read_tree(str(folder)).nodes
    try:
        entries = proved(request, built)
    except PoolError as error:
        raise AttnDoctorError(f"{facts.python.path} cannot run kernels: {error.message}") from None
    after = read_tree(str(folder)).nodes
    waiting = {key: one for key, one in entries.items() if built[key].state == "unverified"}
    if waiting:
        write_down(request, waiting)
    results = [
        _ran(folder, key, entry, entries[key], request)
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
        results.append(_itself(folder, message))
    return results


_NEEDS_TO_WRITE = (
    "torch writes the choices of its autotuning there, and ends the first backward with OSError"
    " where it cannot; mount it writable at least until the proof was made"
)


def _ran(folder: Path, key: str, was: Entry, now: Entry, request: BuildRequest) -> Proof:
    """What came of one entry that was run; a miss with its reasons."""
    from attn_doctor.kernels.verify.misses import misses
    from attn_doctor.record import store
    from attn_doctor.record.environment import environment_from_facts

    hit = now.state in ("built", "unverified")
    reasons: tuple[Miss, ...] = ()
    if now.state == "not-reused":
        manifest = store.load(folder)
        built_in = manifest.environments.get(was.device_slot) if manifest else None
        here = environment_from_facts(
            request.facts, was.device_slot.partition(" ")[0], request.environ, built_in
        )
        reasons = misses(now.message, built_in, here)
    return _proof(
        folder, key, now, now.message, hit=hit, was=was.state, state=now.state, misses=reasons
    )


def _itself(folder: Path, message: str) -> Proof:
    return Proof(folder=str(folder), title="the cache itself", hit=False, message=message)


def _proof(folder: Path, key: str, entry: Entry, message: str, **more: object) -> Proof:
    from msgspec.structs import replace

    build = entry.build
    plain = Proof(
        folder=str(folder),
        key=key,
        title=entry.spec.title,
        place=entry.device_slot,
        hit=False,
        seconds=None if build is None else build.reuse_seconds,
        errors={} if build is None else build.errors,
        message=message,
        state=entry.state,
        was=entry.state,
    )
    return replace(plain, **more)


def _stop(number: int, _: object) -> None:
    raise typer.Exit(128 + number)
