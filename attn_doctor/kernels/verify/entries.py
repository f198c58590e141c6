"""Proving on its own GPU what was built without it, and writing down that it was.

Each kernel runs in a fresh process, must hit every cache, and is compared with a float64 reference,
gradients included. Until then an entry is `unverified`: the compiler is the same, but nothing that
was computed on a stub GPU is worth comparing.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError
from attn_doctor.kernels.builder.plan import BuildRequest
from attn_doctor.kernels.builder.verification import prove
from attn_doctor.kernels.builder.watcher import Watcher
from attn_doctor.record import store
from attn_doctor.record.environment import environment_from_facts
from attn_doctor.record.lock import FOLDER, Lock
from attn_doctor.record.manifest import (
    Build,
    BuildEnvironment,
    Entry,
    Manifest,
)

#: The message of a proof in which nothing but C compilers ran.
_HELPER = re.compile(r"\d+ compilers? ran in a fresh process: (?:[\w+.-]*(?:cc|clang)[\d.-]*)")
#: What moves without making a kernel stale, and is that of the machine where it was verified.
_STAMPED = ("driver", "python", "cc", "cxx")


def stamped(was: BuildEnvironment, now: BuildEnvironment) -> BuildEnvironment:
    """The surroundings something was built in, with those it was verified in where that is known.

    No key holds the driver; the builder had none. Settings are those of the keys, and stay.
    """
    told = {name: value for name in _STAMPED if (value := getattr(now, name)) is not None}
    return replace(was, **told, environment=now.environment)


def unverified(manifest: Manifest, places: Iterable[str]) -> dict[str, Entry]:
    """Manifest key → entry for one of these places that waits for its proof."""
    wanted = set(places)
    return {
        key: one
        for key, one in manifest.entries.items()
        if one.state == "unverified" and one.device_slot in wanted
    }


def proved(
    request: BuildRequest, keys: Iterable[str], watcher: Watcher | None = None
) -> dict[str, Entry]:
    """Run entries of the record in fresh processes, as `builder.run.prove` does.

    On a machine where Triton never ran, the first process compiles Triton's own connection to the
    driver, a small C library that belongs to no kernel. Whatever only that kept from passing is
    run once more; a kernel that is missing would show as a Triton kernel.
    """
    found = prove(request, keys, watcher)
    again = [key for key, one in found.items() if _HELPER.fullmatch(one.message)]
    return {**found, **prove(request, again, watcher)} if again else found


def unwritable(folder: Path) -> str:
    """Why nothing can be written in a cache folder; empty if it can."""
    place = folder / FOLDER
    try:
        place.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def write_down(request: BuildRequest, found: Mapping[str, Entry]) -> list[str]:
    """Record what a proof of unverified entries came to. Returns the keys that count as built now.

    An entry that failed stays in the record with what was wrong, so that nothing takes it for good.
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
                entries[key] = _judged(own, one)
                built += [key] if one.state == "built" else []
            surroundings = dict(manifest.environments)
            for place in {entries[key].device_slot for key in built}:
                was = surroundings.get(place, BuildEnvironment())
                now = environment_from_facts(
                    request.facts, place.partition(" ")[0], request.environ, was
                )
                surroundings[place] = stamped(was, now)
            lock.check()
            store.save(folder, replace(manifest, entries=entries, environments=surroundings))
    except OSError as error:
        raise AttnDoctorError(
            f"{error.filename or folder} cannot be written, so the proof is not recorded:"
            f" {error.strerror}"
        ) from None
    return built


def _judged(own: Entry, found: Entry) -> Entry:
    """The recorded entry after its proof. A miss says nothing against the kernels themselves."""
    if found.state not in ("built", "failed") or own.build is None or found.build is None:
        return replace(own, message=found.message)
    build = measured(own.build, found.build, verified=found.state == "built")
    return replace(own, state=found.state, build=build, message=found.message)


def measured(own: Build, found: Build, *, verified: bool) -> Build:
    """The recorded build with what its proof measured: files and keys stay as they are."""
    return replace(
        own,
        at=found.at,
        reuse_seconds=found.reuse_seconds,
        errors=found.errors,
        hits=found.hits,
        verified=verified,
    )
