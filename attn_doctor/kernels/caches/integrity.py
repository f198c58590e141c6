"""Finds entries that are truncated or corrupt, incomplete files of writers, and a wrong record.

Files are read, never loaded: pickles as lists of instructions, libraries by their headers. torch
keeps graphs as pickles, which run their writer's code when they are loaded. A complete file with
wrong content is not detected here; the builder's verification does that.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from attn_doctor.binaries import elf
from attn_doctor.kernels.caches import pickles
from attn_doctor.kernels.caches.contents import JITERATOR, Contents, Entry, sort, writer
from attn_doctor.kernels.caches.file_tree import Tree, read_tree
from attn_doctor.record.manifest import NAME, Manifest
from attn_doctor.shell import commands

if TYPE_CHECKING:
    from attn_doctor.kernels.caches.survey import Survey


class Root(Struct, frozen=True, kw_only=True):
    """One folder whose path graphs hold."""

    path: str
    count: int
    """Entries and warm-ups that hold it."""
    writable: bool | None
    """This user can write there, or create it. None: not known."""

    @property
    def sentence(self) -> str:
        """What that means, and the ways out."""
        number = "1 entry was" if self.count == 1 else f"{self.count} entries were"
        return (
            f"{number} built in {self.path}, which their graphs hold: torch writes the choices of"
            " its autotuning there, and this user cannot create it, so the first backward ends with"
            f" OSError. Import into that very folder (--cache-dir {self.path}), create it for this"
            f" user (sudo install -d -o $USER {self.path}), or build here"
        )


def roots(manifest: Manifest, writable: Callable[[str], bool | None]) -> tuple[Root, ...]:
    """The folders, other than the cache's own, whose paths graphs for a GPU hold."""
    counts: dict[str, int] = {}
    for path in _held(manifest):
        counts[path] = counts.get(path, 0) + 1
    return tuple(
        Root(path=path, count=count, writable=writable(path))
        for path, count in sorted(counts.items())
    )


def _held(manifest: Manifest) -> Iterator[str]:
    for entry in manifest.entries.values():
        if entry.device_slot != "cpu" and entry.build is not None and entry.build.root:
            yield entry.build.root
    for warmup in manifest.warmups.values():
        if warmup.device_slot != "cpu" and warmup.root:
            yield warmup.root


#: Seconds after which a half-written file belongs to no writer that can still be at work.
ABANDONED = 3600.0
#: A library of this size needs no more than its header read.
_HEADER = 64


class Damage(Struct, frozen=True, kw_only=True):
    """One file that cannot serve."""

    path: str
    """Relative to the cache's root."""
    what: str
    remove: tuple[str, ...]
    """The files that have to go with it, so that the entry is compiled anew."""
    harmless: bool = False
    """Nothing reads it: it only takes space."""


def damage(kind: str, root: str) -> tuple[Damage, ...]:
    """All damage in the cache at `root`; nothing if it is not recognised as that cache."""
    tree = read_tree(root)
    found = sort(kind, tree)
    if found.unrecognised or os.path.islink(root):
        return ()
    return (*look(found, tree), *leftovers(found, tree))


def look(contents: Contents, tree: Tree) -> Iterator[Damage]:
    """Entries that are cut short or corrupt."""
    for entry in contents.entries:
        for path in entry.files:
            if tree.nodes[path].kind != "file":
                continue
            what = _fault(tree, entry, path)
            if what:
                yield Damage(path=path, what=what, remove=_together(entry, path))


def leftovers(contents: Contents, tree: Tree) -> Iterator[Damage]:
    """Half-written files whose writer has gone; those of a process that runs are left out."""
    for path in contents.leftovers:
        node = tree.nodes[path]
        pid = writer(path)
        age = time.time() - node.mtime
        if age < ABANDONED and (pid is None or _runs(pid)):
            continue
        what = "left behind by a process that was ended while it wrote"
        yield Damage(path=path, what=what, remove=(path,), harmless=True)


def _together(entry: Entry, path: str) -> tuple[str, ...]:
    """The files of one entry that depend on each other."""
    if entry.part in ("triton", "extension", "driver"):
        return entry.files
    if entry.part == "code" and not path.endswith((".so", ".pyd")):
        return entry.files
    return (path,)


def _fault(tree: Tree, entry: Entry, path: str) -> str:
    check = _check(entry.part, path)
    if check is None:
        return ""
    try:
        return check(tree, path)
    except FileNotFoundError:
        return ""  # deleted since it was listed
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"


def _check(part: str, path: str) -> Callable[[Tree, str], str] | None:
    """How to tell that such a file is whole; None if nothing is known of it."""
    name = path.rpartition("/")[2]
    if part in ("fxgraph", "aotautograd") or (part == "dynamo" and name.endswith(".pkl")):
        return _pickle
    if part == "autotune":
        return _json
    if part in ("triton", "code", "extension", "kernel"):
        if name.startswith("__grp__"):
            return _group
        suffix = name.rpartition(".")[2] if "." in name else ""
        if suffix == "json":
            return _json
        if suffix in ("so", "cubin"):
            return _cubin if suffix == "cubin" else _library
        if "_sass_" in name and JITERATOR.fullmatch(name):
            return _cubin
        if suffix in ("py", "cpp", "ttir", "ttgir", "llir", "ptx", "o", "pyd", "hsaco", "amdgcn"):
            return _filled
    return None


def _pickle(tree: Tree, path: str) -> str:
    return pickles.fault(tree.read(path, 1 << 31))


def _filled(tree: Tree, path: str) -> str:
    return "" if tree.nodes[path].size else "it is empty"


def _json(tree: Tree, path: str) -> str:
    data = tree.read(path)
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return "it is not complete JSON" if data else "it is empty"
    return ""


def _group(tree: Tree, path: str) -> str:
    """Triton's list of a kernel's files, with absolute paths."""
    try:
        children = json.loads(tree.read(path))["child_paths"]
        paths = [str(child) for child in children.values()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "it does not list the files of a kernel"
    folder = os.path.dirname(tree.full(path))
    for child in paths:
        if not os.path.lexists(child):
            return f"it leads to {child}, which is not there"
        if not _same_folder(os.path.dirname(child), folder):
            return f"it leads to another folder, {os.path.dirname(child)}"
    return ""


def _same_folder(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _library(tree: Tree, path: str) -> str:
    return _elf(tree, path, cubin=False)


def _cubin(tree: Tree, path: str) -> str:
    return _elf(tree, path, cubin=True)


def _elf(tree: Tree, path: str, *, cubin: bool) -> str:
    if not tree.nodes[path].size:
        return "it is empty"
    head = tree.read(path, _HEADER)
    if not cubin and head[:4] in (b"\xcf\xfa\xed\xfe", b"MZ\x90\x00"):
        return ""  # macOS and Windows write libraries of their own form
    return elf.fault(head, tree.nodes[path].size, cubin=cubin)


def _runs(pid: int) -> bool:
    """A process of that number is here; a number from another machine may be anybody's."""
    if os.name == "nt":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


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
            yield commands.verify(found.place.path, program=one.argv)


def _record(found: Survey, known: set[str]) -> Iterator[Damage]:
    """Files that the builder's record names and that are gone, or have another size."""
    manifest = found.manifest
    if manifest is None:
        if found.torn:
            what = "it cannot be read as a record of built kernels"
            yield Damage(path=NAME, what=what, remove=(NAME,))
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
