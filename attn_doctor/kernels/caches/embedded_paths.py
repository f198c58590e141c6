"""Graphs that were built in another folder, whose path they hold.

A graph with Triton kernels of several configurations keeps the path of the generated code beside
which torch looks for, and writes, the configuration that was fastest. Where that folder cannot be
made, the first such kernel raises OSError out of the user's backward pass. Measured with torch
2.11; whether a graph has such kernels is not looked up, those of FlexAttention in training do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from attn_doctor.record.manifest import Manifest


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
