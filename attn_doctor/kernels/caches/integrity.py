"""Finds entries that are truncated or corrupt, incomplete files of writers, and a wrong record.

Files are read, never loaded: pickles as lists of instructions, libraries by their headers. torch
keeps graphs as pickles, which run their writer's code when they are loaded. A complete file with
wrong content is not detected here; the builder's verification does that.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from attn_doctor.binaries import elf
from attn_doctor.facts.kinds import CacheFolder
from attn_doctor.files import DATA, open_binary
from attn_doctor.json_files import JsonError, decode
from attn_doctor.kernels.caches import groups, pickles
from attn_doctor.kernels.caches.contents import JITERATOR, Contents, Entry, Part, sort, writer
from attn_doctor.kernels.caches.file_tree import Tree, read_tree
from attn_doctor.record.manifest import NAME, Manifest
from attn_doctor.shell import commands

if TYPE_CHECKING:
    from attn_doctor.facts import Facts
    from attn_doctor.kernels.caches.survey import Survey


class EmbeddedPath(Struct, frozen=True, kw_only=True):
    """One folder whose path graphs contain.

    A graph with Triton kernels of several configurations keeps the path of its code. torch
    reads and writes the fastest configuration there. If that folder cannot be created, the first
    such kernel raises OSError in the user's backward pass. Measured with torch 2.11. Whether a
    graph has such kernels is not examined; those of FlexAttention in training have them.
    """

    path: str
    count: int
    """Entries and warm-ups that contain it."""
    writable: bool | None
    """This user can write there, or create it. None: not known."""

    @property
    def sentence(self) -> str:
        """The consequence, and the fixes."""
        number = "1 entry was" if self.count == 1 else f"{self.count} entries were"
        return (
            f"{number} built in {self.path}, and their graphs contain that path: torch writes the"
            " results of its autotuning there. This user cannot create it, so the first backward"
            f" ends with OSError. Import into that folder (--cache-dir {self.path}), create it for"
            f" this user (sudo install -d -o $USER {self.path}), or build here"
        )


def embedded_paths(
    manifest: Manifest, writable: Callable[[str], bool | None]
) -> tuple[EmbeddedPath, ...]:
    """Return the folders, other than the cache's own, whose paths graphs for a GPU contain."""
    counts: dict[str, int] = {}
    for path in _paths(manifest):
        counts[path] = counts.get(path, 0) + 1
    return tuple(
        EmbeddedPath(path=path, count=count, writable=writable(path))
        for path, count in sorted(counts.items())
    )


def _paths(manifest: Manifest) -> Iterator[str]:
    for entry in manifest.entries.values():
        if entry.device_slot != "cpu" and entry.build is not None and entry.build.root:
            yield entry.build.root
    for warmup in manifest.warmups.values():
        if warmup.device_slot != "cpu" and warmup.root:
            yield warmup.root


#: Seconds after which the writer of an incomplete file cannot be running any more.
ABANDONED = 3600.0
#: Bytes of a library that are read: its header.
_HEADER = 64


class Damage(Struct, frozen=True, kw_only=True):
    """One file that cannot be used."""

    path: str
    """Relative to the cache's root."""
    what: str
    remove: tuple[str, ...]
    """The files to delete with it, so that the entry is compiled again. None if it is only possible
    that it is broken."""
    harmless: bool = False
    """Nothing reads it: it only takes space."""


def damage(kind: CacheFolder, root: str) -> tuple[Damage, ...]:
    """Return all damage in the cache at `root`; nothing if it is not recognised as that cache."""
    tree = read_tree(root)
    found = sort(kind, tree)
    if found.unrecognised or os.path.islink(root):
        return ()
    return (*damaged_files(found, tree), *leftovers(found, tree))


def damaged_files(contents: Contents, tree: Tree) -> Iterator[Damage]:
    """Find files of entries that are truncated or corrupt."""
    for entry in contents.entries:
        for path in entry.files:
            if tree.nodes[path].kind != "file":
                continue
            try:
                what = _fault(tree, entry, path)
            except OSError as error:
                # Whether it is broken is not known, so nothing may delete it.
                what = f"it cannot be read: {error.strerror or error}"
                yield Damage(path=path, what=what, remove=())
                continue
            if what:
                yield Damage(path=path, what=what, remove=_together(entry, path))


def leftovers(contents: Contents, tree: Tree) -> Iterator[Damage]:
    """Find incomplete files whose writer is not running any more."""
    for path in contents.leftovers:
        node = tree.nodes[path]
        pid = writer(path)
        age = time.time() - node.mtime
        if age < ABANDONED and (pid is None or _runs(pid)):
            continue
        what = "left by a process that was killed while it wrote"
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


def _check(part: Part, path: str) -> Callable[[Tree, str], str] | None:
    """Return the check for such a file; None if its form is unknown."""
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
    if tree.nodes[path].size <= DATA:
        return pickles.fault(tree.read(path, DATA))
    # All of it would take the memory of the machine. torch's graphs are a hundredth as large.
    with open_binary(tree.full(path), follow=False) as file:
        first = file.read(1)
        file.seek(-1, os.SEEK_END)
        return pickles.fault_of_ends(first, file.read(1))


def _filled(tree: Tree, path: str) -> str:
    return "" if tree.nodes[path].size else "it is empty"


def _json(tree: Tree, path: str) -> str:
    data = tree.read(path)
    try:
        decode(data)
    except JsonError:
        return "it is not complete JSON" if data else "it is empty"
    return ""


def _group(tree: Tree, path: str) -> str:
    """Check Triton's list of a kernel's files."""
    named = groups.children(tree.read(path))
    if named is None:
        return "it does not list the files of a kernel"
    lost = groups.missing(tree, path, named)
    return f"it names {lost}, which does not exist" if lost else ""


def _library(tree: Tree, path: str) -> str:
    return _elf(tree, path, cubin=False)


def _cubin(tree: Tree, path: str) -> str:
    return _elf(tree, path, cubin=True)


def _elf(tree: Tree, path: str, *, cubin: bool) -> str:
    if not tree.nodes[path].size:
        return "it is empty"
    head = tree.read(path, _HEADER)
    if not cubin and head[:4] in (b"\xcf\xfa\xed\xfe", b"MZ\x90\x00"):
        return ""  # libraries of macOS and Windows have other forms
    return elf.fault(head, tree.nodes[path].size, cubin=cubin)


def _runs(pid: int) -> bool:
    """A process with that number runs here; a number of another machine may match any process."""
    if os.name == "nt":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


class Integrity(Struct, frozen=True, kw_only=True):
    """The result of checking one cache."""

    kind: CacheFolder
    root: str
    checked: int
    """Number of files."""
    damage: tuple[Damage, ...] = ()
    """Files that make a process fail, or compile again."""
    leftovers: tuple[Damage, ...] = ()
    """Files that only take space."""
    unreadable: tuple[str, ...] = ()
    unrecognised: str = ""
    entries: int = 0
    """Kernels in the builder's record."""
    obstacles: tuple[str, ...] = ()
    """What prevents torch from using the cache, in sentences."""
    unverified_elsewhere: dict[str, int] = {}
    """Device slot that is not here → number of kernels and warm-ups to verify there."""
    verify_commands: tuple[str, ...] = ()
    """Commands that verify warm-ups for devices of this machine."""

    @property
    def ok(self) -> bool:
        """Nothing is broken, every file could be read, and torch can use the cache."""
        return not (self.damage or self.unreadable or self.unrecognised or self.obstacles)


def check(survey: Survey, facts: Facts) -> Integrity:
    """Check every file of a cache. Nothing is loaded, run or changed."""
    found = survey
    contents = found.contents
    if contents.unrecognised:
        return Integrity(
            kind=found.location.kind,
            root=found.location.path,
            checked=0,
            unrecognised=contents.unrecognised,
            unreadable=contents.unreadable,
        )
    broken = [*damaged_files(contents, found.tree)]
    broken += _record(found, {one.path for one in broken})
    return Integrity(
        kind=found.location.kind,
        root=found.location.path,
        checked=sum(len(entry.files) for entry in contents.entries),
        damage=tuple(broken),
        leftovers=tuple(leftovers(contents, found.tree)),
        unreadable=contents.unreadable,
        entries=0 if found.manifest is None else len(found.manifest.entries),
        obstacles=tuple(_obstacles(found)),
        unverified_elsewhere=_elsewhere(found),
        verify_commands=tuple(_verify_commands(found, facts)),
    )


def _obstacles(found: Survey) -> Iterator[str]:
    from attn_doctor.host.local import LocalHost
    from attn_doctor.probes.machine.mounts import writable

    if found.manifest is None:
        if found.record_unreadable:
            yield found.record_unreadable
        return
    host = LocalHost()
    for one in embedded_paths(found.manifest, lambda path: writable(host, path)):
        if one.writable is False:
            yield one.sentence
    if any(one.unverified for one in found.built) and writable(host, found.location.path) is False:
        yield (
            "this user cannot write here: torch writes the results of its autotuning beside the"
            " kernels, and otherwise the first backward ends with OSError; mount the folder"
            " writable until the kernels are verified"
        )


def _elsewhere(found: Survey) -> dict[str, int]:
    """What only another machine can verify."""
    absent = {
        one.device_slot: one.unverified
        for one in found.built
        if one.device_present is False and one.unverified
    }
    return {str(place): int(count) for place, count in absent.items() if count}


def _verify_commands(found: Survey, facts: Facts) -> Iterator[str]:
    """Warm-ups are programs of the user, who has to start them."""
    here = {one.device_slot for one in found.built if one.device_present is not False}
    for one in found.manifest.warmups.values() if found.manifest else ():
        if one.unverified and one.device_slot in here:
            yield commands.verify(found.location.path, facts, program=one.argv)


def _record(found: Survey, known: set[str]) -> Iterator[Damage]:
    """Files of the builder's record that are missing or have another size."""
    manifest = found.manifest
    if manifest is None:
        if found.record_damaged:
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
            yield Damage(path=path, what="the record names it, but it is missing", remove=())
        else:
            what = f"it has {node.size} bytes, the record says {size}"
            yield Damage(path=path, what=what, remove=(path,))
