"""What no process could use: entries that are cut short or corrupt, and leftovers of writers.

Files are read, never loaded: pickles as lists of instructions, libraries by their headers. A file
that is whole but wrong inside is not seen here; the builder's proof is for that.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator

from msgspec import Struct

from attn_doctor.binaries import whole_file
from attn_doctor.kernels.caches import file_names, pickles
from attn_doctor.kernels.caches.contents import sort
from attn_doctor.kernels.caches.entry import Contents, Entry
from attn_doctor.kernels.caches.file_tree import Tree, read_tree

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
        pid = file_names.writer(path)
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
        if "_sass_" in name and file_names.JITERATOR.fullmatch(name):
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
    return whole_file.fault(head, tree.nodes[path].size, cubin=cubin)


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
