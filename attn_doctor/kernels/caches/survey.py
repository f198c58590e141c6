"""Every cache of this machine with its location, its entries, their states, and its remarks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.facts import BuiltKernels, Cache, Facts
from attn_doctor.facts.kinds import CacheFolder
from attn_doctor.host import Host
from attn_doctor.kernels.caches.contents import Contents, EvaluatedEntry, State, guess, sort
from attn_doctor.kernels.caches.file_tree import Tree, read_tree
from attn_doctor.kernels.caches.locks import Lock, locks
from attn_doctor.kernels.caches.states import (
    StateReason,
    current_environment,
    evaluate_entries,
    prevailing,
)
from attn_doctor.probes.machine.caches import cute, locate
from attn_doctor.record.manifest import NAME
from attn_doctor.worker import reach
from attn_doctor.worker.ownership import Danger, user_name, within

if TYPE_CHECKING:
    from attn_doctor.record.manifest import EntryState, Manifest, Warmup


class CacheLocation(Struct, frozen=True):
    """A cache's folder, and the variable that names it (or `default`)."""

    kind: CacheFolder
    path: str
    source: str


def locations(host: Host) -> tuple[CacheLocation, ...]:
    """Return the folders of all caches, whether they exist or not; each folder once."""
    found = [
        CacheLocation(one.kind, one.path, one.source)
        for one in locate(host)
        if one.kind != "fxgraph" and one.kind != "aotautograd"  # parts of Inductor's folder
    ]
    if not any(one.kind == "cute" for one in found):
        # An earlier setting of FlashAttention 4 left it; the current environment does not use it.
        path, source = cute(host)
        if host.is_dir(path):
            found.append(CacheLocation("cute", path, source))
    found.append(CacheLocation("hub", *_hub(host)))
    inside = host.join(found[0].path, "triton")
    # Triton's folder may lie in Inductor's folder, where it is already counted.
    return tuple(
        one
        for one in found
        if one.kind != "triton" or not host.join(one.path, "").startswith(host.join(inside, ""))
    )


def _hub(host: Host) -> tuple[str, str]:
    """Like the `kernels` package: its own variable, else the folder of the Hub's downloads."""
    for name in ("KERNELS_CACHE", "HF_KERNELS_CACHE", "HF_HUB_CACHE"):
        if host.environ.get(name):
            return host.join(host.platform.cwd, host.environ[name]), name
    if host.environ.get("HF_HOME"):
        return host.join(host.platform.cwd, host.environ["HF_HOME"], "hub"), "HF_HOME"
    home = host.environ.get("XDG_CACHE_HOME") or host.join(host.platform.home, ".cache")
    return host.join(home, "huggingface", "hub"), "default"


class Survey(Struct, frozen=True, kw_only=True):
    """One cache folder in its present state."""

    location: CacheLocation
    exists: bool = False
    real: str = ""
    """The real path, if the location is a link."""
    owner: str = ""
    danger: Danger | None = None
    """Through what another user decides which code is in it; its record is then not believed."""
    tree: Tree
    contents: Contents
    evaluated: tuple[EvaluatedEntry, ...] = ()
    locks: tuple[Lock, ...] = ()
    facts: Cache = Cache()
    """Facts about its folder: file system, network, volatile, noexec."""
    manifest: Manifest | None = None
    record_unreadable: str = ""
    """Why the record cannot be used: a newer attn-doctor wrote it, or it may not be read."""
    built: tuple[BuiltKernels, ...] = ()
    """What the record says, one for each device, compared with the present environment."""

    @property
    def record_damaged(self) -> bool:
        """There is a record, but it is truncated or not JSON."""
        unread = self.record_unreadable or self.danger
        return self.manifest is None and not unread and NAME in self.contents.record

    def count(self, state: State) -> int:
        """Count the entries in a state."""
        return sum(one.state is state for one in self.evaluated)


def selected_locations(
    host: Host, kinds: Iterable[CacheFolder] = (), path: str = ""
) -> tuple[CacheLocation, ...]:
    """Return the selected caches; all if nothing is selected.

    `path`: a folder. If it is not the folder of a known cache, its content determines its kind.
    """
    every = locations(host)
    wanted = set(kinds)
    if not path:
        return tuple(one for one in every if not wanted or one.kind in wanted)
    full = os.path.abspath(path)
    known = [one for one in every if one.path == full and (not wanted or one.kind in wanted)]
    if known:
        return tuple(known)
    # Reading through a link is harmless; deletion refuses links.
    reach.refuse(full)
    kind = next(iter(wanted), None) or guess(os.path.realpath(full))
    return (CacheLocation(kind, full, "named"),) if kind else ()


def survey(location: CacheLocation, facts: Facts, seconds: float = float("inf")) -> Survey:
    """The cache at `location` and compare it with the facts; entries are opened for `seconds`."""
    try:
        reach.refuse(location.path)
        found = os.stat(location.path)
    except OSError:
        empty = Tree(location.path)
        return Survey(
            location=location, tree=empty, contents=Contents(kind=location.kind, root=location.path)
        )
    tree = read_tree(location.path)
    contents = sort(location.kind, tree)
    known = next(
        (
            one
            for one in facts.caches or ()
            if (one.kind, one.path) == (location.kind, location.path)
        ),
        Cache(),
    )
    danger = within(location.path)
    manifest, unreadable = _manifest(location) if danger is None else (None, "")
    built = _built(location, facts) if manifest is not None else ()
    real = os.path.realpath(location.path)
    return Survey(
        location=location,
        exists=True,
        real=real if real != os.path.abspath(location.path) else "",
        owner="" if os.name == "nt" else user_name(found.st_uid),
        danger=danger,
        tree=tree,
        contents=contents,
        evaluated=evaluate_entries(
            contents, tree, current_environment(facts), recorded(manifest, built), seconds
        ),
        locks=locks(contents, tree, known.network),
        facts=known,
        manifest=manifest,
        record_unreadable=unreadable,
        built=built,
    )


def _built(location: CacheLocation, facts: Facts) -> tuple[BuiltKernels, ...]:
    """The record of this folder, which need not be the folder that torch would use now."""
    from attn_doctor.derived.kernel_drift import manifests
    from attn_doctor.host.local import LocalHost
    from attn_doctor.probes.gaps import Gaps
    from attn_doctor.probes.machine.manifests import of_folder

    found = of_folder(LocalHost(), location.path, Gaps())
    return manifests(replace(facts, manifests=found), {}) or ()


def _manifest(location: CacheLocation) -> tuple[Manifest | None, str]:
    """The builder's record of a cache, and why it cannot be used."""
    if location.kind != "inductor":
        return None, ""
    from attn_doctor.errors import AttnDoctorError
    from attn_doctor.record.store import load

    try:
        return load(Path(location.path)), ""
    except AttnDoctorError as error:
        return None, str(error)


def recorded(manifest: Manifest | None, built: Iterable[BuiltKernels]) -> Mapping[str, StateReason]:
    """Path of a file → its state and the reason, from the builder's record.

    Several entries may use one file: a live one keeps it live, an unknown one keeps it unknown.
    """
    said: dict[str, StateReason] = {}
    if manifest is None:
        return said
    drift = {one.device_slot: one for one in built if one.error == ""}
    named = [
        (one.device_slot, one.build.files, one.state, one.build.at)
        for one in manifest.entries.values()
        if one.build is not None
    ]
    named += [
        (one.device_slot, one.files, _state(one), one.at) for one in manifest.warmups.values()
    ]
    for place, files, state, day in named:
        known = drift.get(place)
        if known is None or known.drift is None:
            one: StateReason = (
                State.UNKNOWN,
                f"built for {place}; whether it still fits is unknown",
            )
        elif known.drift:
            one = (State.STALE, known.drift)
        elif not known.device_present:
            one = (State.UNKNOWN, f"built for {place}, which is not on this machine")
        elif state == "built":
            one = (State.LIVE, f"built and verified {day[:10]}")
        elif state == "unverified":
            one = (State.UNKNOWN, "built without its GPU, and not verified on it yet")
        else:
            one = (State.UNKNOWN, "built, but not reused by a fresh process")
        for path in files:
            said[path] = prevailing(filter(None, (said.get(path), one)))
    return said


def _state(warmup: Warmup) -> EntryState:
    if warmup.unverified:
        return "unverified"
    return "built" if warmup.verified else "not-reused"
