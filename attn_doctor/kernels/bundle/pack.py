"""Packs the built kernels of a cache folder into an artifact.

Kernels that were built without their GPU stay `unverified`, until they are verified on that GPU.
Kernels for several GPUs, and for several indices of one GPU, are packed into the same file.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import IO

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor import files
from attn_doctor._version import __version__
from attn_doctor.kernels.builder.devices import TRITON
from attn_doctor.kernels.builder.plan import missing
from attn_doctor.kernels.bundle import artifact as artifacts
from attn_doctor.kernels.bundle.artifact import Artifact, ArtifactError, Packed
from attn_doctor.kernels.caches.triton_kernels import FILE, KEY
from attn_doctor.record import store
from attn_doctor.record.key_parts import parts_of
from attn_doctor.record.manifest import Entry, Manifest, Warmup
from attn_doctor.redact import presentable, redact_arguments

#: States of entries that are worth something elsewhere.
_STATES = ("built", "unverified")
_OBSTACLES = {
    "failed": "it failed",
    "not-reused": "it is not reused",
    "cleared": "its files were cleared",
    "cubins": "only its Triton kernels are here, from another artifact: export that one",
}


class Choice(Struct, frozen=True, kw_only=True):
    """What of a cache folder goes into an artifact."""

    manifest: Manifest
    entries: dict[str, Entry]
    left_out: dict[str, str]
    """Title of an entry or command of a warm-up → why it stays behind."""
    warmups: dict[str, Warmup] = {}


class Exported(Struct, frozen=True, kw_only=True):
    """An artifact that was written, and where."""

    artifact: Artifact
    file: Path
    digest: str
    """SHA-256 of the whole file."""
    bytes: int
    left_out: dict[str, str] = {}
    """What stayed behind → why."""


def export(folder: Path, file: Path, places: Collection[str] | None = None) -> Exported:
    """Write what can be exported from a cache folder to one file. Raises `ArtifactError`."""
    choice = choose(folder, places)
    artifact, digest = pack(folder, choice, file)
    return Exported(
        artifact=artifact,
        file=file,
        digest=digest,
        bytes=file.stat().st_size,
        left_out=choice.left_out,
    )


def choose(folder: Path, places: Collection[str] | None = None) -> Choice:
    """What can be exported from a cache folder, for all places in it or for `places`.

    Raises `ArtifactError` if nothing can.
    """
    manifest = store.load(folder)
    if manifest is None:
        raise ArtifactError(
            f"{folder} has no kernels that attn-doctor built: run `attn-doctor build-kernels` first"
        )
    entries: dict[str, Entry] = {}
    warmups: dict[str, Warmup] = {}
    left_out: dict[str, str] = {}
    for key, entry in sorted(manifest.entries.items()):
        if places is not None and entry.device_slot not in places:
            continue
        reason = _obstacle(folder, entry)
        if reason:
            left_out[f"{entry.spec.title} ({entry.device_slot})"] = reason
        else:
            entries[key] = entry
    for key, warmup in sorted(manifest.warmups.items()):
        if places is not None and warmup.device_slot not in places:
            continue
        reason = _lacking(folder, warmup)
        if reason:
            left_out[" ".join(warmup.argv)] = reason
        else:
            warmups[key] = warmup
    if not entries and not warmups:
        why = (f"  {name}: {reason}" for name, reason in left_out.items())
        raise ArtifactError(f"nothing in {folder} can be exported", *why)
    return Choice(manifest=manifest, entries=entries, left_out=left_out, warmups=warmups)


def _obstacle(folder: Path, entry: Entry) -> str:
    build = entry.build
    if entry.state not in _STATES or build is None or not build.verified:
        return _OBSTACLES.get(entry.state, "no second process has shown that it is reused")
    return _gone(folder, build.files)


def _lacking(folder: Path, warmup: Warmup) -> str:
    if not warmup.verified:
        return f"it is not reused: {warmup.message}" if warmup.message else "it is not reused"
    return _gone(folder, warmup.files) if warmup.files else "it left nothing in the cache"


def _gone(folder: Path, files: Mapping[str, int]) -> str:
    gone = missing(folder, files)
    return f"{gone[0]} is missing or has another size" if gone else ""


def pack(folder: Path, choice: Choice, target: Path) -> tuple[Artifact, str]:
    """Write the artifact. Returns what it says of itself, and the SHA-256 of the whole file.

    The same content of the folder gives the same bytes. Raises `ArtifactError` if a file cannot be
    read or the artifact not be written.
    """
    described: dict[str, Packed] = {}
    for name in _names(folder, choice):
        described[PurePath(name).as_posix()] = _described(folder, name)
    entries = {key: _rooted(one, folder) for key, one in choice.entries.items()}
    used = {one.device_slot for one in choice.entries.values()}
    used |= {one.device_slot for one in choice.warmups.values()}
    made = Artifact(
        schema=artifacts.SCHEMA,
        attn_doctor=__version__,
        made=_newest(choice),
        environments={
            place: one
            for place, one in sorted(choice.manifest.environments.items())
            if place in used
        },
        entries=entries,
        files=described,
        warmups={
            key: replace(
                one,
                argv=tuple(redact_arguments(one.argv)),
                message=presentable(one.message),
                root=one.root or str(folder),
            )
            for key, one in choice.warmups.items()
        },
    )
    digest = artifacts.write(target, made, _contents(folder, described))
    return made, digest


def _names(folder: Path, choice: Choice) -> list[str]:
    """Every file that goes along, in an order of its own."""
    built = [one.build.files for one in choice.entries.values() if one.build]
    wanted = {name for files in (*built, *(one.files for one in choice.warmups.values()))
             for name in files}  # fmt: skip
    return sorted(wanted | _helpers(folder)) + sorted(_key_parts(folder, choice))


def _helpers(folder: Path) -> set[str]:
    """What a build without the GPU had Triton keep beside the kernels (`TRITON_HOME`).

    Triton compiles its connection to the driver before any kernel, and elsewhere than Inductor
    keeps them; without it a machine needs a C compiler at its first start.
    """
    found = set()
    for path in (folder / TRITON / "cache").glob("*/*"):
        known = KEY.fullmatch(path.parent.name) and FILE.fullmatch(path.name)
        if known and path.is_file() and not path.is_symlink():
            found.add(path.relative_to(folder).as_posix())
    return found


def _key_parts(folder: Path, choice: Choice) -> set[str]:
    """The lists of key parts that lie beside the manifest, by which a miss is explained."""
    found = {parts_of(folder, one) for one in choice.entries.values()}
    found |= {f"attn-doctor/keys/{id}.json" for id in choice.warmups}
    return {name for name in found if name and (folder / name).is_file()}


def _rooted(entry: Entry, folder: Path) -> Entry:
    """The entry with the folder whose path its graphs hold, which moves nowhere.

    Where the builder kept its masks means nothing on another machine.
    """
    entry = replace(entry, mask_folder="", message=presentable(entry.message))
    if entry.build is None:
        return entry
    return replace(entry, build=replace(entry.build, root=entry.build.root or str(folder)))


def _newest(choice: Choice) -> str:
    days = [one.build.at for one in choice.entries.values() if one.build]
    return max([*days, *(one.at for one in choice.warmups.values())], default="")


def _described(folder: Path, name: str) -> Packed:
    with _content(folder, name) as (data, holds_path):
        while data.read(1 << 20):
            pass
        return Packed(bytes=data.count, sha256=data.sha256, holds_path=holds_path)


def _contents(
    folder: Path, described: Mapping[str, Packed]
) -> Iterator[tuple[str, int, artifacts.Source]]:
    for name, packed in described.items():
        with _content(folder, name) as (data, _):
            yield name, packed.bytes, data
            if data.read(1) or data.sha256 != packed.sha256:
                raise ArtifactError(f"{folder / name} changed while it was packed: try again")


@contextmanager
def _content(folder: Path, name: str) -> Iterator[tuple[_Counted, bool]]:
    """A file as it is packed, and whether the folder's path was in it."""
    try:
        with files.open_binary(folder / name) as file:
            # Only Triton's group files are read by path; elsewhere a path is a comment or a debug
            # line.
            if not PurePath(name).name.startswith("__grp__"):
                yield _Counted(file), False
                return
            data = files.read_bytes(folder / name, files.DATA)
            packed = artifacts.without_folder(data, folder)
            yield _Counted(io.BytesIO(packed)), packed != data
    except OSError as error:
        raise ArtifactError(f"{folder / name} cannot be read: {error.strerror or error}") from None


class _Counted:
    """Passes a file on, and knows the size and the digest of what was read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.count = 0

    def read(self, size: int = -1, /) -> bytes:
        """Read at most `size` bytes."""
        data = self._file.read(size)
        self._digest.update(data)
        self.count += len(data)
        return data

    @property
    def sha256(self) -> str:
        """The digest in hex."""
        return self._digest.hexdigest()
