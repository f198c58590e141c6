"""Files of an artifact on their way from the room where they were verified to where torch looks."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from attn_doctor.kernels.builder.devices import TRITON
from attn_doctor.kernels.bundle import artifact as artifacts
from attn_doctor.kernels.bundle.artifact import Artifact
from attn_doctor.record.key_parts import names_of_parts
from attn_doctor.record.manifest import Entry, Warmup


class Moving:
    """Moves each file once, whatever number of entries name it."""

    def __init__(self, room: Path, folder: Path, artifact: Artifact) -> None:
        self._room, self._folder, self._artifact = room, folder, artifact
        self.sizes: dict[str, int] = {}
        """Path below the cache folder → bytes that were moved there."""

    def entry(self, entry: Entry, only: str = "") -> None:
        """Move the files of an entry, those that begin with `only`, and its key parts."""
        if entry.build is None:
            return
        self._move(name for name in entry.build.files if name.startswith(only))
        if not only:
            self._move(names_of_parts(entry))

    def warmup(self, key: str, warmup: Warmup) -> None:
        """Move the files of a warm-up and its key parts."""
        self._move([*warmup.files, f"attn-doctor/keys/{key}.json"])

    def helpers(self) -> None:
        """Move what lies in Triton's own folder: modules that belong to no kernel."""
        self._move(name for name in self._artifact.files if name.startswith(f"{TRITON}/"))

    def sized(self, entry: Entry) -> Entry:
        """The entry with the sizes that its files have here: a longer path makes a file longer."""
        if entry.build is None:
            return entry
        files = {name: self.sizes.get(name) or size for name, size in entry.build.files.items()}
        build = replace(entry.build, files=files, root=self._foreign(entry.build.root))
        return replace(entry, build=build)

    def sized_warmup(self, warmup: Warmup) -> Warmup:
        """The same of a warm-up."""
        files = {name: self.sizes.get(name) or size for name, size in warmup.files.items()}
        return replace(warmup, files=files, root=self._foreign(warmup.root))

    def _foreign(self, root: str) -> str:
        return "" if root == str(self._folder) else root

    def _move(self, names: Iterable[str]) -> None:
        for name in sorted(names):
            packed = self._artifact.files.get(Path(name).as_posix())
            source, target = self._room / name, self._folder / name
            if name in self.sizes or packed is None or not source.is_file():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if packed.holds_path:
                data = artifacts.without_folder(source.read_bytes(), self._room)
                source.write_bytes(artifacts.with_folder(data, self._folder))
            self.sizes[name] = source.stat().st_size
            os.replace(source, target)
