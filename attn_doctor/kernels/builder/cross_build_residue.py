"""What compiling without a GPU leaves in a cache folder and a machine with one must not find."""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path

from msgspec.structs import replace

from attn_doctor.kernels.caches.deletion import ClearedFile
from attn_doctor.record.manifest import Entry

#: How files with Inductor's choices among tiles end.
CHOICES = ".best_config"


def leavings(folder: Path, kept: Container[str] = ()) -> Iterator[ClearedFile]:
    """Choices among tiles timed on nothing, and locks of processes that have ended."""
    for path in sorted((*folder.glob(f"*/*{CHOICES}"), *folder.glob("locks/*"))):
        name = path.relative_to(folder).as_posix()
        if name in kept or path.is_symlink() or not path.is_file():
            continue
        why = (
            "a lock that nobody holds"
            if name.startswith("locks/")
            else "a choice of tiles that was timed without a GPU"
        )
        yield ClearedFile(path=str(path), bytes=path.stat().st_size, why=why)


def without_choices(entry: Entry) -> Entry:
    """The entry without choices among tiles, which are removed at the end."""
    build = entry.build
    if build is None:
        return entry
    files = {name: size for name, size in build.files.items() if not name.endswith(CHOICES)}
    return replace(entry, build=replace(build, files=files))
