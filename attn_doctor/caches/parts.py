"""The parts of torch's keys that a builder saved beside the record, so that a miss is explained.

Each entry and each warm-up has a file of its own below `attn-doctor/keys`. What wrote them is
`builder/child/keys.py` for kernels and torch's trace for programs.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from attn_doctor.builder.lock import FOLDER
from attn_doctor.builder.manifest import Entry, Manifest
from attn_doctor.builder.plan import key, parts_name
from attn_doctor.builder.trace import Lookup

__all__ = ["known_keys", "names_of_parts", "parts_of"]


def names_of_parts(entry: Entry) -> tuple[str, ...]:
    """Where an entry's key parts may lie below the cache folder, the likeliest first.

    Kernels for several GPUs have a list each; earlier versions kept one for each spec.
    """
    own = parts_name(key(entry.spec, entry.place))
    return tuple(dict.fromkeys(f"{FOLDER}/keys/{name}.json" for name in (own, entry.spec.id)))


def parts_of(folder: Path, entry: Entry) -> str:
    """The file with an entry's key parts; empty if there is none."""
    return next((name for name in names_of_parts(entry) if (folder / name).is_file()), "")


def known_keys(manifest: Manifest, folder: Path) -> dict[str, list[Lookup]]:
    """Title of a kernel → its keys with their components, as the builder saved them."""
    found: dict[str, list[Lookup]] = {}
    several = len({one.place for one in manifest.entries.values()}) > 1
    named = [
        (parts_of(folder, one), f"{one.spec.title} ({one.place})" if several else one.spec.title)
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
        saved = msgspec.json.decode(path.read_bytes(), type=_Saved)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
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
