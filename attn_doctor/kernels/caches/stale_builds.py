"""Finds entries of the record that are stale, what rebuilding them costs, and their files.

The manifest holds the build environment of each device slot; `changed_components` compares it with
the present one. A file that a valid entry uses too is never deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from attn_doctor.kernels.caches.deletion import ClearedFile
from attn_doctor.record.drift import (
    ChangedComponent,
    changed_components,
    stale_reason,
)

if TYPE_CHECKING:
    from attn_doctor.record.manifest import BuildEnvironment, Manifest


class Stale(Struct, frozen=True, kw_only=True):
    """What is stale for one device slot of one cache folder."""

    moved: tuple[ChangedComponent, ...] = ()
    """Every component that changed, also those that need no rebuild."""
    specs: dict[str, str] = {}
    """Manifest key of an entry → why it is stale."""
    warmups: dict[str, str] = {}
    """Manifest key of a warm-up → why it is stale."""
    files: tuple[ClearedFile, ...] = ()
    seconds: float = 0.0
    """What building the stale entries took; the next start takes as long again."""


def stale(
    manifest: Manifest,
    place: str,
    now: BuildEnvironment,
    root: str,
    *,
    only: Iterable[str] = (),
    jiterator: str = "",
    sms: tuple[int, ...] | None = None,
) -> Stale:
    """Find what to delete of `place`, a device slot, in the cache folder `root`.

    `only`: manifest keys that are stale for another reason, such as a changed source of a mask.
    `jiterator`: that cache's folder; if torch's version or CUDA changed, its files for another
    CUDA (and, if `sms` are given, for other GPUs) are stale too.
    """
    was = manifest.environments.get(place)
    changes = changed_components(was, now) if was is not None else ()
    reason = stale_reason(changes)
    changed = set(only)
    specs = {
        key: "what it was built from has changed" if key in changed else reason
        for key, entry in manifest.entries.items()
        if key in changed or (entry.device_slot == place and reason)
    }
    warmups = {
        key: reason for key, one in manifest.warmups.items() if one.device_slot == place and reason
    }
    files = [*_files(manifest, specs, warmups, root)]
    if jiterator and {"torch", "torch_cuda"} & {one.component for one in changes}:
        files += _stale_small_kernels(jiterator, now.torch_cuda, sms)
    builds = [manifest.entries[key].build for key in specs]
    return Stale(
        moved=changes,
        specs=specs,
        warmups=warmups,
        files=tuple(files),
        seconds=sum(one.seconds for one in builds if one is not None),
    )


def _stale_small_kernels(
    root: str, cuda: str | None, sms: tuple[int, ...] | None
) -> tuple[ClearedFile, ...]:
    """Find files of `~/.cache/torch/kernels` that were built for another CUDA or GPU."""
    from attn_doctor.kernels.caches.contents import State, contents
    from attn_doctor.kernels.caches.file_tree import Tree
    from attn_doctor.kernels.caches.states import CurrentEnvironment, evaluate_entries

    found = contents("jiterator", root)
    if found.unrecognised:
        return ()
    evaluated = evaluate_entries(found, Tree(root), CurrentEnvironment(cuda=cuda, sms=sms))
    return tuple(
        ClearedFile(path=str(Path(root, path)), bytes=one.entry.bytes, why=one.why)
        for one in evaluated
        if one.state is State.STALE
        for path in one.entry.files
    )


def _files(
    manifest: Manifest, specs: Mapping[str, str], warmups: Mapping[str, str], root: str
) -> Iterable[ClearedFile]:
    """Find files of stale entries that no valid entry uses."""
    kept: set[str] = set()
    to_delete: dict[str, tuple[int, str]] = {}
    for key, entry in manifest.entries.items():
        files = entry.build.files if entry.build is not None else {}
        if key not in specs:
            kept |= set(files)
        to_delete.update({path: (size, specs[key]) for path, size in files.items() if key in specs})
    for key, one in manifest.warmups.items():
        if key not in warmups:
            kept |= set(one.files)
        else:
            to_delete.update({path: (size, warmups[key]) for path, size in one.files.items()})
    for path, (size, why) in sorted(to_delete.items()):
        if path not in kept:
            yield ClearedFile(path=str(Path(root, path)), bytes=size, why=why)
