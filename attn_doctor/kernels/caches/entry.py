"""What a cache holds, as values: entries, their state, and what is broken about them."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class State(str, Enum):
    """Whether an entry can still serve this machine and environment."""

    LIVE = "live"
    STALE = "stale"
    UNKNOWN = "unknown"


class Entry(Struct, frozen=True, kw_only=True):
    """Files that a cache keeps and loses together. Paths are relative to the cache's root."""

    part: str
    """The part of the cache, such as `fxgraph`, `triton`, `code`."""
    name: str
    """Its key or folder, as the cache names it."""
    files: tuple[str, ...]
    bytes: int = 0
    newest: float = 0.0
    """When its newest file was written, seconds since 1970."""


class Judged(Struct, frozen=True, kw_only=True):
    """An entry with its state and the reason for it."""

    entry: Entry
    state: State
    why: str


class Contents(Struct, frozen=True, kw_only=True):
    """A recognised cache folder."""

    kind: str
    root: str
    entries: tuple[Entry, ...] = ()
    locks: tuple[str, ...] = ()
    """Lock files, which hold no kernels."""
    leftovers: tuple[str, ...] = ()
    """Half-written files of writers, under their temporary names."""
    record: tuple[str, ...] = ()
    """Our own manifest, locks and logs."""
    strangers: tuple[str, ...] = ()
    """What the cache never writes: left alone whatever is cleared."""
    bytes: int = 0
    files: int = 0
    complete: bool = True
    unreadable: tuple[str, ...] = ()
    unrecognised: str = ""
    """Why this folder is not taken for that cache; then nothing in it may be deleted."""
