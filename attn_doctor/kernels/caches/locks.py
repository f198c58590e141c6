"""Locks in caches: which are held, by whom, and which were left behind by the dead.

torch's extension builds make a file `lock` and remove it at the end; whoever finds it waits, for
ever if its maker was killed. All other lock files lie there for good and count only while the
kernel holds them locked. Our own builds say in the file who they are.
"""

from __future__ import annotations

import time
from pathlib import Path

from msgspec import Struct

from attn_doctor.kernels.caches.entry import Contents
from attn_doctor.kernels.caches.file_tree import Tree
from attn_doctor.kernels.caches.lock_holders import holders, locked

#: Seconds after which an extension's lock that no process has open is its dead maker's. Nothing
#: compiles for an hour in one go.
STALE = 3600.0


class Lock(Struct, frozen=True, kw_only=True):
    """A lock that matters now: one that is held, or one that holds others up for nothing."""

    path: str
    """Relative to the cache's root."""
    holder: str
    """Who holds it; empty if nobody does."""
    stale: bool = False
    """Its owner is gone, and it has to be removed."""
    doubt: str = ""
    """Why it cannot be told whether it is stale."""


def locks(contents: Contents, tree: Tree, network: bool | None = None) -> tuple[Lock, ...]:
    """Held and stale locks. `network`: the cache lies on another machine's disk."""
    if contents.kind == "extensions":
        return tuple(_batons(contents, tree, network))
    found = [*_builder(contents)]
    held = [path for path in contents.locks if locked(tree.full(path))]
    owners = holders(map(tree.full, held)).by_path if held else {}
    for path in held:
        owner = owners.get(tree.full(path))
        found.append(Lock(path=path, holder=str(owner) if owner else "a process"))
    return tuple(found)


def _batons(contents: Contents, tree: Tree, network: bool | None) -> list[Lock]:
    """The `lock` files of extension builds."""
    paths = {path: tree.full(path) for path in contents.locks}
    seen = holders(paths.values())
    found = []
    for path, full in paths.items():
        owner = seen.by_path.get(full)
        age = time.time() - tree.nodes[path].mtime
        if owner is not None:
            found.append(Lock(path=path, holder=str(owner)))
        elif network:
            doubt = "it lies on a network disk, so a build on another machine may hold it"
            found.append(Lock(path=path, holder="", doubt=doubt))
        elif age > STALE or seen.whole:
            found.append(Lock(path=path, holder="", stale=True))
        else:
            doubt = "not all processes could be looked at, and it is less than an hour old"
            found.append(Lock(path=path, holder="", doubt=doubt))
    return found


def _builder(contents: Contents) -> list[Lock]:
    """The lock of `build-kernels`, unless its owner is known to be dead."""
    if contents.kind != "inductor" or not contents.record:
        return []
    from attn_doctor.record.lock import FOLDER, alive, owner

    holder = owner(Path(contents.root))
    if holder is None or alive(holder) is False:
        return []
    where = "" if alive(holder) else f" on {holder.host}"
    text = f"attn-doctor build-kernels, process {holder.pid}{where}, since {holder.since}"
    return [Lock(path=FOLDER, holder=text)]
