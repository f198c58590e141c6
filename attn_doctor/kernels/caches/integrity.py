"""Whether everything in a cache could serve: each file whole, and the record true."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from attn_doctor.kernels.caches.damage import Damage, leftovers, look
from attn_doctor.kernels.caches.survey import RECORD, Survey
from attn_doctor.shell.commands import verify as verify_command


class Verified(Struct, frozen=True, kw_only=True):
    """What was found in one cache."""

    kind: str
    root: str
    checked: int
    """Files that were looked at."""
    damage: tuple[Damage, ...] = ()
    """What a process would fall over, or compile again."""
    leftovers: tuple[Damage, ...] = ()
    """What only takes space."""
    unreadable: tuple[str, ...] = ()
    unrecognised: str = ""
    entries: int = 0
    """Kernels in the builder's record."""
    obstacles: tuple[str, ...] = ()
    """What would stop torch from using it, in sentences."""
    waiting: dict[str, int] = {}
    """Device that is not here → kernels and warm-ups to be verified there."""
    programs: tuple[str, ...] = ()
    """Commands that prove warm-ups for devices of this machine."""

    @property
    def sound(self) -> bool:
        """Nothing in it is broken or in the way, and all of it could be read."""
        return not (self.damage or self.unreadable or self.unrecognised or self.obstacles)


def verify(found: Survey) -> Verified:
    """Look at every file of a cache. Nothing is loaded, run or changed."""
    contents = found.contents
    if contents.unrecognised:
        return Verified(
            kind=found.place.kind,
            root=found.place.path,
            checked=0,
            unrecognised=contents.unrecognised,
            unreadable=contents.unreadable,
        )
    broken = [*look(contents, found.tree)]
    broken += _record(found, {one.path for one in broken})
    return Verified(
        kind=found.place.kind,
        root=found.place.path,
        checked=sum(len(entry.files) for entry in contents.entries),
        damage=tuple(broken),
        leftovers=tuple(leftovers(contents, found.tree)),
        unreadable=contents.unreadable,
        entries=0 if found.manifest is None else len(found.manifest.entries),
        obstacles=tuple(_obstacles(found)),
        waiting=_waiting(found),
        programs=tuple(_programs(found)),
    )


def _obstacles(found: Survey) -> Iterator[str]:
    from attn_doctor.host.local import LocalHost
    from attn_doctor.kernels.caches.embedded_paths import roots
    from attn_doctor.probes.machine.mounts import writable

    if found.manifest is None:
        if found.unread:
            yield found.unread
        return
    host = LocalHost()
    for one in roots(found.manifest, lambda path: writable(host, path)):
        if one.writable is False:
            yield one.sentence
    if any(one.unverified for one in found.built) and writable(host, found.place.path) is False:
        yield (
            "this user cannot write here: torch writes the choices of its autotuning beside"
            " the kernels, and ends the first backward with OSError where it cannot; mount it"
            " writable until the kernels are verified"
        )


def _waiting(found: Survey) -> dict[str, int]:
    """What only another machine can prove."""
    absent = {
        one.device_slot: one.unverified
        for one in found.built
        if one.device_present is False and one.unverified
    }
    return {str(place): int(count) for place, count in absent.items() if count}


def _programs(found: Survey) -> Iterator[str]:
    """Warm-ups are programs of the user's, which nothing but a command of theirs runs."""
    here = {one.device_slot for one in found.built if one.device_present is not False}
    for one in found.manifest.warmups.values() if found.manifest else ():
        if one.unverified and one.device_slot in here:
            yield verify_command(found.place.path, program=one.argv)


def _record(found: Survey, known: set[str]) -> Iterator[Damage]:
    """Files that the builder's record names and that are gone, or have another size."""
    manifest = found.manifest
    if manifest is None:
        if found.torn:
            what = "it cannot be read as a record of built kernels"
            yield Damage(path=RECORD, what=what, remove=(RECORD,))
        return
    files = {
        path: size
        for entry in manifest.entries.values()
        if entry.build is not None
        for path, size in entry.build.files.items()
    }
    files.update(
        (path, size) for one in manifest.warmups.values() for path, size in one.files.items()
    )
    for path, size in sorted(files.items()):
        node = found.tree.nodes.get(path)
        if path in known or (node is not None and node.size == size):
            continue
        if node is None:
            yield Damage(path=path, what="the record names it, and it is gone", remove=())
        else:
            what = f"it has {node.size} bytes, the record says {size}"
            yield Damage(path=path, what=what, remove=(path,))
