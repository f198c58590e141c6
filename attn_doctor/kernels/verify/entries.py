"""Verifies kernels on their own GPU that were built without it, and records the results.

Each kernel runs in a fresh process, must hit every cache, and is compared with a float64 reference,
gradients included. Until then an entry is `unverified`: the compiler is the same, but numbers that
come from a stub GPU mean nothing.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError
from attn_doctor.kernels.builder.plan import BuildRequest
from attn_doctor.kernels.builder.progress import Watcher
from attn_doctor.kernels.builder.verification import verify_entries
from attn_doctor.record import store
from attn_doctor.record.environment import environment_from_facts
from attn_doctor.record.lock import FOLDER, Lock
from attn_doctor.record.manifest import (
    Build,
    BuildEnvironment,
    Entry,
    Manifest,
)

#: The message of a run in which only C compilers ran.
_HELPER = re.compile(r"\d+ compilers? ran in a fresh process: (?:[\w+.-]*(?:cc|clang)[\d.-]*)")
#: Components that differ without making a kernel stale; recorded as on the verifying machine.
_OF_VERIFICATION = ("driver", "python", "cc", "cxx")


def verified_in(was: BuildEnvironment, now: BuildEnvironment) -> BuildEnvironment:
    """Return the build environment with the known components of the verifying environment.

    No key holds the driver; the builder had none. Settings are part of the keys, and stay.
    """
    known = {name: value for name in _OF_VERIFICATION if (value := getattr(now, name)) is not None}
    return replace(was, **known, environment=now.environment)


def unverified(manifest: Manifest, slots: Iterable[str]) -> dict[str, Entry]:
    """Manifest key → unverified entry for one of these device slots."""
    wanted = set(slots)
    return {
        key: one
        for key, one in manifest.entries.items()
        if one.state == "unverified" and one.device_slot in wanted
    }


def run_in_fresh_processes(
    request: BuildRequest, keys: Iterable[str], watcher: Watcher | None = None
) -> dict[str, Entry]:
    """Run entries of the record in fresh processes, each compared with a float64 reference.

    On a machine where Triton never ran, the first process compiles Triton's own connection to the
    driver, a small C library that belongs to no kernel. An entry that failed only for that is run
    once more; a missing kernel would show as a Triton kernel.
    """
    found = verify_entries(request, keys, watcher)
    again = [key for key, one in found.items() if _HELPER.fullmatch(one.message)]
    return {**found, **verify_entries(request, again, watcher)} if again else found


def unwritable(folder: Path) -> str:
    """Say why this process cannot write in a cache folder; empty if it can."""
    place = folder / FOLDER
    try:
        place.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def record(request: BuildRequest, found: Mapping[str, Entry]) -> list[str]:
    """Record the verification of unverified entries. Returns the keys that are verified now.

    An entry that failed stays in the record with its fault, so that it is not treated as valid.
    Raises `AttnDoctorError` if the record cannot be written.
    """
    folder = request.folder
    try:
        with Lock(folder, Watcher().waiting) as lock:
            manifest = store.load(folder) or store.empty()
            entries, built = dict(manifest.entries), []
            for key, one in found.items():
                own = entries.get(key)
                if own is None or own.state != "unverified":
                    continue
                entries[key] = _after(own, one)
                built += [key] if one.state == "built" else []
            environments = dict(manifest.environments)
            for place in {entries[key].device_slot for key in built}:
                was = environments.get(place, BuildEnvironment())
                now = environment_from_facts(
                    request.facts, place.partition(" ")[0], request.environ, was
                )
                environments[place] = verified_in(was, now)
            lock.check()
            store.save(folder, replace(manifest, entries=entries, environments=environments))
    except OSError as error:
        raise AttnDoctorError(
            f"{error.filename or folder} cannot be written, so the verification is not recorded:"
            f" {error.strerror}"
        ) from None
    return built


def _after(own: Entry, found: Entry) -> Entry:
    """The recorded entry after its run. A miss does not mean that the kernels are wrong."""
    if found.state not in ("built", "failed") or own.build is None or found.build is None:
        return replace(own, message=found.message)
    build = measured(own.build, found.build, verified=found.state == "built")
    return replace(own, state=found.state, build=build, message=found.message)


def measured(own: Build, found: Build, *, verified: bool) -> Build:
    """The recorded build with the measurements of its verification; files and keys stay."""
    return replace(
        own,
        at=found.at,
        reuse_seconds=found.reuse_seconds,
        errors=found.errors,
        compared=found.compared,
        hits=found.hits,
        verified=verified,
    )
