"""Every cache of this machine with its location, its entries, their states, and its remarks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.facts import BuiltKernels, Cache, Facts
from attn_doctor.host import Host
from attn_doctor.kernels.caches.contents import Contents, Judged, State, guess, sort
from attn_doctor.kernels.caches.file_tree import Tree, read_tree
from attn_doctor.kernels.caches.locks import Lock, locks
from attn_doctor.kernels.caches.states import Said, judge, longest_lived, now
from attn_doctor.probes.machine.caches import cute, locate
from attn_doctor.record.manifest import NAME

if TYPE_CHECKING:
    from attn_doctor.record.manifest import Manifest, Warmup


class Place(Struct, frozen=True):
    """A cache's folder, and the variable that names it (or `default`)."""

    kind: str
    path: str
    source: str


def places(host: Host) -> tuple[Place, ...]:
    """The folders of all caches, whether they exist or not."""
    found = [
        Place(one.kind, one.path, one.source)
        for one in locate(host)
        if one.kind not in ("fxgraph", "aotautograd")  # parts of Inductor's folder
    ]
    if not any(one.kind == "cute" for one in found):
        # Kept earlier, when FlashAttention 4 was told to; it is no longer.
        path, source = cute(host)
        if host.is_dir(path):
            found.append(Place("cute", path, source))
    found.append(Place("hub", *_hub(host)))
    inside = host.join(found[0].path, "triton")
    # Triton's folder may be named to lie in Inductor's, where it is counted already.
    return tuple(
        one
        for one in found
        if one.kind != "triton" or not host.join(one.path, "").startswith(host.join(inside, ""))
    )


def _hub(host: Host) -> tuple[str, str]:
    """As the `kernels` package: its own variable, else the folder of the Hub's downloads."""
    for name in ("KERNELS_CACHE", "HF_KERNELS_CACHE", "HF_HUB_CACHE"):
        if host.environ.get(name):
            return host.join(host.platform.cwd, host.environ[name]), name
    if host.environ.get("HF_HOME"):
        return host.join(host.platform.cwd, host.environ["HF_HOME"], "hub"), "HF_HOME"
    home = host.environ.get("XDG_CACHE_HOME") or host.join(host.platform.home, ".cache")
    return host.join(home, "huggingface", "hub"), "default"


class Survey(Struct, frozen=True, kw_only=True):
    """One cache folder as it is now."""

    place: Place
    exists: bool = False
    real: str = ""
    """Where it really lies, if a link leads there."""
    owner: str = ""
    mine: bool | None = None
    """It belongs to this user. None: this system does not tell."""
    tree: Tree
    contents: Contents
    judged: tuple[Judged, ...] = ()
    locks: tuple[Lock, ...] = ()
    facts: Cache = Cache()
    """What the probe says of its place: file system, network, volatile, noexec."""
    manifest: Manifest | None = None
    unread: str = ""
    """Why there is a record and it says nothing to us: a newer attn-doctor wrote it, it may not be
    read."""
    built: tuple[BuiltKernels, ...] = ()
    """What the record says, one for each device, held against today."""

    @property
    def torn(self) -> bool:
        """There is a record, and nobody could read it: it is cut short or no JSON."""
        return self.manifest is None and not self.unread and NAME in self.contents.record

    def count(self, state: State) -> int:
        """How many entries are in that state."""
        return sum(one.state is state for one in self.judged)


def chosen(host: Host, kinds: Iterable[str] = (), path: str = "") -> tuple[Place, ...]:
    """The caches that were asked for; all if none were named.

    `path`: a folder, whose kind is told by what lies in it if no cache is known to lie there.
    """
    every = places(host)
    wanted = set(kinds)
    if not path:
        return tuple(one for one in every if not wanted or one.kind in wanted)
    full = os.path.abspath(path)
    known = [one for one in every if one.path == full and (not wanted or one.kind in wanted)]
    if known:
        return tuple(known)
    # To look through a link is harmless; what deletes refuses links by itself.
    kind = next(iter(wanted), "") or guess(os.path.realpath(full))
    return (Place(kind, full, "named"),) if kind else ()


def survey(place: Place, facts: Facts, seconds: float = float("inf")) -> Survey:
    """The cache at `place`, held against the facts. Entries are opened for at most `seconds`."""
    try:
        found = os.stat(place.path)
    except OSError:
        empty = Tree(place.path)
        return Survey(place=place, tree=empty, contents=Contents(kind=place.kind, root=place.path))
    tree = read_tree(place.path)
    contents = sort(place.kind, tree)
    known = next(
        (one for one in facts.caches or () if (one.kind, one.path) == (place.kind, place.path)),
        Cache(),
    )
    manifest, unread = _manifest(place)
    built = _built(place, facts) if manifest is not None else ()
    real = os.path.realpath(place.path)
    return Survey(
        place=place,
        exists=True,
        real=real if real != os.path.abspath(place.path) else "",
        owner=_name(found.st_uid),
        mine=found.st_uid == os.geteuid() if hasattr(os, "geteuid") else None,
        tree=tree,
        contents=contents,
        judged=judge(contents, tree, now(facts), recorded(manifest, built), seconds),
        locks=locks(contents, tree, known.network),
        facts=known,
        manifest=manifest,
        unread=unread,
        built=built,
    )


def _built(place: Place, facts: Facts) -> tuple[BuiltKernels, ...]:
    """The record of this very folder, which need not be the one that torch would use now."""
    from attn_doctor.derived.kernel_drift import manifests
    from attn_doctor.host.local import LocalHost
    from attn_doctor.probes.gaps import Gaps
    from attn_doctor.probes.machine.manifests import of_folder

    found = of_folder(LocalHost(), place.path, Gaps())
    return manifests(replace(facts, manifests=found), {}) or ()


def _manifest(place: Place) -> tuple[Manifest | None, str]:
    """The builder's record of a cache, and why it says nothing."""
    if place.kind != "inductor":
        return None, ""
    from attn_doctor.errors import AttnDoctorError
    from attn_doctor.record.store import load

    try:
        return load(Path(place.path)), ""
    except AttnDoctorError as error:
        return None, str(error)


def recorded(manifest: Manifest | None, built: Iterable[BuiltKernels]) -> Mapping[str, Said]:
    """Path of a file → its state and the reason, from the builder's record.

    Several entries may use one file: a live one keeps it live, an unknown one keeps it unknown.
    """
    said: dict[str, Said] = {}
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
            one: Said = (State.UNKNOWN, f"built for {place}; what moved since is not known")
        elif known.drift:
            one = (State.STALE, known.drift)
        elif not known.device_present:
            one = (State.UNKNOWN, f"built for {place}, which is not on this machine")
        elif state == "built":
            one = (State.LIVE, f"built and verified {day[:10]}")
        elif state == "unverified":
            one = (State.UNKNOWN, "built without its GPU, and not yet verified on it")
        else:
            one = (State.UNKNOWN, "built, and not reused by a fresh process")
        for path in files:
            said[path] = longest_lived(filter(None, (said.get(path), one)))
    return said


def _state(warmup: Warmup) -> str:
    if warmup.unverified:
        return "unverified"
    return "built" if warmup.verified else "not-reused"


def _name(uid: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return f"uid {uid}" if uid else ""
