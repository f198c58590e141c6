"""The parts of torch's keys that a builder saved beside the record, so that a miss is explained.

Each entry and each warm-up has a file of its own below `attn-doctor/keys`. What wrote them is
`worker/kernels/cache_keys.py` for kernels and torch's trace for programs.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from msgspec import Struct

from attn_doctor.files import DATA, read_bytes
from attn_doctor.json_files import JsonError, decode
from attn_doctor.record.lock import FOLDER
from attn_doctor.record.manifest import Entry, Manifest
from attn_doctor.record.spec import KernelSpec
from attn_doctor.record.trace import Lookup


def key(spec: KernelSpec, place: str) -> str:
    """The key of a spec's entry in the manifest."""
    return f"{spec.id}@{place}"


def parts_name(key: str) -> str:
    """Name, without ending, of the file with an entry's key parts: the GPU is among those."""
    spec, _, place = key.partition("@")
    if place in ("", "cpu"):
        return spec
    return f"{spec}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"


def names_of_parts(entry: Entry) -> tuple[str, ...]:
    """The paths of an entry's key parts below the cache folder: each device slot has its own."""
    return (f"{FOLDER}/keys/{parts_name(key(entry.spec, entry.device_slot))}.json",)


def parts_of(folder: Path, entry: Entry) -> str:
    """The file with an entry's key parts; empty if there is none."""
    return next((name for name in names_of_parts(entry) if (folder / name).is_file()), "")


def known_keys(manifest: Manifest, folder: Path) -> dict[str, list[Lookup]]:
    """Title of a kernel → its keys with their components, as the builder saved them."""
    found: dict[str, list[Lookup]] = {}
    several = len({one.device_slot for one in manifest.entries.values()}) > 1
    named = [
        (
            parts_of(folder, one),
            f"{one.spec.title} ({one.device_slot})" if several else one.spec.title,
        )
        for one in manifest.entries.values()
    ]
    named += [
        (f"{FOLDER}/keys/{key}.json", " ".join(one.argv)) for key, one in manifest.warmups.items()
    ]
    for name, title in named:
        keys = _keys_in(folder / name) if name else []
        if keys:
            found[title] = keys
    return found


def _keys_in(path: Path) -> list[Lookup]:
    try:
        saved = decode(read_bytes(path, DATA), _Saved)
    except (OSError, JsonError):
        return []
    return [
        Lookup(kind=kind, what="miss", key=one.key, components=tuple(one.lines))
        for kind, keys in saved.keys.items()
        for one in keys
    ]


class _Key(Struct):
    key: str
    lines: list[str]


class _Saved(Struct):
    keys: dict[str, list[_Key]]
