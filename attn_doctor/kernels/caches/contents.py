"""Recognises what lies in a cache folder, by the structure that each cache gives itself.

A folder counts as a cache only if something in it has exactly the form that this cache writes.
Even then, only files of that form belong to an entry; all other files are unrelated, wherever they
lie. The forms are those in the sources of torch 2.5 to 2.15 and Triton 3.0 to 3.9: a pattern that
is too narrow costs disk space, and one that is too wide could cost a user's file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Literal

from msgspec import Struct

from attn_doctor.facts.kinds import CacheFolder
from attn_doctor.kernels.caches.file_tree import Node, Tree, read_tree
from attn_doctor.kernels.caches.triton_kernels import TRITON_NAME, TritonKernels

#: Parts of caches, each with entries of one form.
Part = Literal[
    "triton", "code", "autotune", "fxgraph", "aotautograd", "dynamo", "headers", "extension",
    "kernel", "driver", "download",
]  # fmt: skip


class State(str, Enum):
    """Whether an entry can still serve this machine and environment."""

    LIVE = "live"
    STALE = "stale"
    UNKNOWN = "unknown"


class Entry(Struct, frozen=True, kw_only=True):
    """Files that a cache keeps and loses together. Paths are relative to the cache's root."""

    part: Part
    name: str
    """Its key or folder, as the cache names it."""
    files: tuple[str, ...]
    bytes: int = 0
    newest: float = 0.0
    """When its newest file was written, seconds since 1970."""


class EvaluatedEntry(Struct, frozen=True, kw_only=True):
    """An entry with its state and the reason for it."""

    entry: Entry
    state: State
    why: str


class Contents(Struct, frozen=True, kw_only=True):
    """A recognised cache folder."""

    kind: CacheFolder
    root: str
    entries: tuple[Entry, ...] = ()
    locks: tuple[str, ...] = ()
    """Lock files, which hold no kernels."""
    leftovers: tuple[str, ...] = ()
    """Incomplete files of writers, under their temporary names."""
    record: tuple[str, ...] = ()
    """Our own manifest, locks and logs."""
    unrelated_files: tuple[str, ...] = ()
    """Files that the cache did not write. They are never deleted."""
    trash: int = 0
    """Bytes of what `cache clear` took, which are part of `bytes`."""
    bytes: int = 0
    files: int = 0
    complete: bool = True
    unreadable: tuple[str, ...] = ()
    unrecognised: str = ""
    """Why this folder is not that cache; then nothing in it may be deleted."""


_HASH = r"[a-z2-7]{50,52}"
FX_KEY = re.compile(rf"f{_HASH}")
AOT_KEY = re.compile(rf"a{_HASH}")
_GRAPHS: dict[Part, re.Pattern[str]] = {"fxgraph": FX_KEY, "aotautograd": AOT_KEY}
#: Keys of generated code, as other entries mention them.
CODE_KEY = re.compile(rb"\bc[a-z2-7]{51}\b")
#: `3f/c3fakd….main.cpp`: the folder is the second and third letter of the name.
CODE = re.compile(
    r"(?P<two>[a-z0-9]{2})/(?:__pycache__/)?(?P<key>[a-z](?P=two)[a-z2-7]{48,50})(?:\.[\w.-]+)?"
)
#: `add_kernel_arch9.0_nvrtc13.0_sass_7012_<sha1>`; on ROCm `_archgfx942:sramecc+…`.
JITERATOR = re.compile(
    r"(?P<kernel>\w+)_arch(?P<arch>[\w.:+-]+?)_nvrtc(?P<nvrtc>\d+\.\d+)_(?P<form>sass|ptx)_\d+_[0-9a-f]{40}"
)
DRIVER = re.compile(r"index|[0-9a-f]/[0-9a-f]/[0-9a-f]{10,32}")
CUTE = re.compile(r"[0-9a-f]{64}/(?:\w+/)?[0-9a-f]{64}\.o")
EXTENSION_FOLDER = re.compile(
    r"py(?P<python>\d{2,3})t?_(?P<build>cu\d{2,4}|cpu|rocm[\w.]*|xpu[\w.]*)"
)
#: What torch and ninja write into the folder of an extension; a user's own sources lie elsewhere.
EXTENSION_FILE = re.compile(
    r"build\.ninja|\.ninja_log|\.ninja_deps|(?:main|cuda|sycl)\.(?:cpp|cu|sycl|hip)"
    r"|[\w.+-]+\.(?:o|obj|d|so|pyd|dll|lib|exp)"
)
HUB_REPO = re.compile(r"(?:models|kernels)--[\w.-]+--[\w.-]+")
HUB_VARIANT = re.compile(
    r"torch(?P<torch>\d{2,3})-(?:cxx11-)?(?P<build>cu\d{2,3}|rocm\d+|xpu\w*|cpu)-[\w-]+"
)

#: Temporary names under which entries are written before they are renamed, with the writer's
#: process where the name tells it: torch, Triton, jiterator, FlashAttention 4.
LEFTOVER = re.compile(
    r"(?:^|/)(?:\.(?P<torch>\d+)\.\d+\.tmp|tmp\.pid_(?P<triton>\d+)_[\w-]+(?:/[^/]+)?"
    rf"|tmp\.[0-9a-f-]{{36}}(?:/(?:__grp__)?{TRITON_NAME})?"
    r"|\w+_nvrtc[\w.]+_tmp_(?P<jiterator>\d+)"
    r"|\.[0-9a-f]{64}\.[0-9a-f]{16}\.tmp\.o)$"
)


def writer(path: str) -> int | None:
    """The process that was writing a leftover; None if its name does not tell."""
    found = LEFTOVER.search(path)
    number = next(filter(None, found.groups()), None) if found else None
    return int(number) if number else None


#: What each kind of cache holds.
KINDS: dict[CacheFolder, str] = {
    "inductor": "torch.compile: graphs, generated code and the Triton kernels of FlexAttention",
    "triton": "Triton kernels that torch.compile does not make (SageAttention, xformers, users)",
    "extensions": "C++ and CUDA extensions that torch builds while a program runs",
    "jiterator": "torch's own small run-time kernels; none of FlexAttention's",
    "driver": "machine code that the driver makes of PTX; none of FlexAttention's",
    "cute": "kernels of FlashAttention 4",
    "hub": "kernels downloaded from the Hugging Face Hub",
}

#: The part and the name of the entry that a node belongs to; None for an unrelated file.
Sorter = Callable[[Node], "tuple[Part, str] | None"]

_OURS = "attn-doctor"
#: Below every cache: what `cache clear` took, until it is restored or deleted for good.
TRASH = ".attn-doctor-trash"


def contents(kind: CacheFolder, root: str, seconds: float = float("inf")) -> Contents:
    """Read the folder `root` as a cache of that kind. Reading stops after `seconds`."""
    if os.path.islink(root):
        return Contents(kind=kind, root=root, unrecognised="it is a symbolic link")
    return sort(kind, read_tree(root, seconds))


def sort(kind: CacheFolder, tree: Tree) -> Contents:
    """Sort the files of a folder that was read already into entries."""
    sorter = _SORTERS[kind](tree)
    members: dict[tuple[Part, str], list[Node]] = {}
    locks: list[str] = []
    leftovers: list[str] = []
    record: list[str] = []
    unrelated: list[str] = []
    trash = 0
    for node in tree.nodes.values():
        if node.kind == "dir":
            continue
        if node.path.startswith(f"{TRASH}/"):
            trash += node.size
        elif kind == "inductor" and node.path.startswith(f"{_OURS}/"):
            (record if node.kind == "file" else unrelated).append(node.path)
        elif node.kind == "file" and LEFTOVER.search(node.path) and kind != "hub":
            leftovers.append(node.path)
        elif _is_lock(kind, node):
            locks.append(node.path)
        else:
            place = sorter(node) if node.kind == "file" or kind == "hub" else None
            if place is None:
                unrelated.append(node.path)
            else:
                members.setdefault(place, []).append(node)
    entries = tuple(_entry(*place, nodes) for place, nodes in sorted(members.items()))
    nothing = not (entries or record)
    return Contents(
        kind=kind,
        root=tree.root,
        entries=entries,
        locks=() if nothing and kind != "extensions" else tuple(locks),
        leftovers=() if nothing else tuple(leftovers),
        record=tuple(record),
        unrelated_files=tuple(unrelated),
        trash=trash,
        bytes=sum(node.size for node in tree.files),
        files=sum(1 for _ in tree.files),
        complete=tree.complete,
        unreadable=tree.unreadable,
        unrecognised=_unrecognised(kind, tree, nothing=nothing),
    )


def guess(root: str) -> CacheFolder | None:
    """Return the kind of the cache at `root`; None if it has the form of none."""
    if os.path.islink(root) or not os.path.isdir(root):
        return None
    tree = read_tree(root)
    found = {kind: len(sort(kind, tree).entries) for kind in KINDS}
    best = max(KINDS, key=lambda kind: found[kind])
    if found[best]:
        return best
    for path in sorted(tree.nodes, reverse=True):
        if path.startswith(f"{TRASH}/") and path.count("/") == 2 and path.endswith(".json"):
            return _kind_in_trash(tree, path)  # all of it was cleared
    # A build that was killed before it compiled anything leaves only its record.
    return "inductor" if f"{_OURS}/manifest.json" in tree.nodes else None


def _kind_in_trash(tree: Tree, path: str) -> CacheFolder | None:
    try:
        kind = json.loads(tree.read(path))["kind"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return next((one for one in KINDS if one == kind), None)


def _unrecognised(kind: CacheFolder, tree: Tree, *, nothing: bool) -> str:
    if tree.unreadable and not tree.nodes:
        return "it cannot be read"
    if not nothing or not any(
        node.kind != "dir" and not path.startswith(f"{TRASH}/") for path, node in tree.nodes.items()
    ):
        return ""  # entries, or an empty folder in which nothing can be lost
    return f"nothing in it has the form of {KINDS[kind].split(':')[0]}"


def _entry(part: Part, name: str, nodes: Iterable[Node]) -> Entry:
    listed = sorted(nodes, key=lambda node: node.path)
    return Entry(
        part=part,
        name=name,
        files=tuple(node.path for node in listed),
        bytes=sum(node.size for node in listed),
        newest=max(node.mtime for node in listed),
    )


def _is_lock(kind: CacheFolder, node: Node) -> bool:
    if node.kind != "file":
        return False
    if kind == "inductor":
        return bool(re.fullmatch(r"(?:.+/)?locks/[\w.-]+\.lock", node.path)) or (
            node.name.endswith(".lock") and node.size == 0
        )
    if kind == "triton":
        return node.name == "lock"
    if kind == "extensions":
        return node.name == "lock" and node.size == 0
    return kind == "cute" and bool(re.fullmatch(r"[0-9a-f]{64}\.lock", node.name))


# One for each kind


def _inductor(tree: Tree) -> Sorter:
    kernels = TritonKernels(tree)

    def place(node: Node) -> tuple[Part, str] | None:
        first, *rest = node.path.split("/")
        if first == "triton":
            return kernels.place(node, rest[1:] if rest and rest[0].isdigit() else rest)
        if (first, rest[:1]) == (".triton", ["cache"]):
            return kernels.place(node, rest[1:])  # Triton's own folder, in a build without its GPU
        if found := CODE.fullmatch(node.path):
            return "code", found["key"]
        if found := re.fullmatch(r"(?P<two>[a-z0-9]{2})/[\w.-]+\.best_config", node.path):
            return "autotune", node.path
        if first in _GRAPHS:
            return _graph(first, rest)
        if first == "cache" and re.fullmatch(r"[0-9a-z]{32,64}", "/".join(rest)):
            return ("autotune", node.path) if _is_timings(tree, node) else None
        if first == "dynamo":
            known = re.fullmatch(r"code_state_.+\.pkl|[0-9a-f]{64}/.+", "/".join(rest))
            return ("dynamo", node.path) if known else None
        if first == "precompiled_headers":
            known = re.search(r"(?:^|/)[a-z2-7]{40,60}(?:\.\w+)*$", node.path)
            return ("headers", first) if known else None
        return None

    return place


def _graph(folder: str, rest: list[str]) -> tuple[Part, str] | None:
    key = rest[-2] if len(rest) >= 2 else ""
    nested = len(rest) == 3 and rest[0] == key[1:3] if folder == "fxgraph" else len(rest) == 2
    if not (nested and re.fullmatch(r"[a-z2-7]{40,60}", rest[-1])):
        return None
    parts = (part for part, form in _GRAPHS.items() if part == folder and form.fullmatch(key))
    return next(((part, key) for part in parts), None)


def _is_timings(tree: Tree, node: Node) -> bool:
    """`{"system": …, "cache": …}`, as torch writes it, also if its end is missing."""
    return bool(re.match(rb'\s*\{\s*"(?:system|cache)"', _head(tree, node)))


def _triton(tree: Tree) -> Sorter:
    kernels = TritonKernels(tree)
    return lambda node: kernels.place(node, node.path.split("/"))


def _extensions(tree: Tree) -> Sorter:
    """What a build writes into a folder that holds a `build.ninja` of torch's own making."""
    built = {
        node.folder
        for node in tree.files
        if node.name == "build.ninja"
        and node.path.count("/") in (1, 2)
        and re.match(rb"ninja_required_version = [\d.]+\r?\ncxx = ", _head(tree, node))
    }

    def place(node: Node) -> tuple[Part, str] | None:
        known = node.folder in built and EXTENSION_FILE.fullmatch(node.name)
        return ("extension", node.folder) if known else None

    return place


def _head(tree: Tree, node: Node) -> bytes:
    try:
        return tree.read(node.path, 200)
    except OSError:
        return b""


def _jiterator(_: Tree) -> Sorter:
    return lambda node: ("kernel", node.path) if JITERATOR.fullmatch(node.path) else None


def _driver(tree: Tree) -> Sorter:
    # A file called index alone may be unrelated, and entries need their index.
    kept = [path for path in tree.nodes if DRIVER.fullmatch(path)]
    whole = "index" in kept and len(kept) > 1
    return lambda node: ("driver", "index") if whole and DRIVER.fullmatch(node.path) else None


def _cute(_: Tree) -> Sorter:
    return lambda node: ("kernel", node.path) if CUTE.fullmatch(node.path) else None


def _hub(tree: Tree) -> Sorter:
    """Downloads that hold build variants of kernels; models in the same folder are unrelated."""
    kernels = set()
    for node in tree.nodes.values():
        parts = node.path.split("/")
        if len(parts) == 5 and parts[1] == "snapshots" and parts[3] == "build":
            kernels |= {
                repo
                for repo in parts[:1]
                if HUB_REPO.fullmatch(repo) and HUB_VARIANT.fullmatch(parts[4])
            }

    def place(node: Node) -> tuple[Part, str] | None:
        first = node.path.partition("/")[0]
        return ("download", first) if first in kernels else None

    return place


_SORTERS: dict[CacheFolder, Callable[[Tree], Sorter]] = {
    "inductor": _inductor,
    "triton": _triton,
    "extensions": _extensions,
    "jiterator": _jiterator,
    "driver": _driver,
    "cute": _cute,
    "hub": _hub,
}
