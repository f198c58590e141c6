"""From a cache folder to an artifact: everything in it that was proven and still lies there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path, PurePath

from msgspec import Struct

from attn_doctor import __version__
from attn_doctor.builder import plan, stamp
from attn_doctor.builder.manifest import Entry, Manifest
from attn_doctor.caches.portable import artifact as artifacts
from attn_doctor.caches.portable.artifact import Artifact, ArtifactError, Packed

__all__ = ["Choice", "choose", "pack"]


class Choice(Struct, frozen=True, kw_only=True):
    """What of a cache folder goes into an artifact."""

    manifest: Manifest
    entries: dict[str, Entry]
    left_out: dict[str, str]
    """Title of an entry or command of a warm-up → why it stays behind."""


def choose(folder: Path) -> Choice:
    """What can be exported from a cache folder. Raises `ArtifactError` if nothing can."""
    manifest = stamp.load(folder)
    if manifest is None:
        raise ArtifactError(
            f"{folder} has no kernels that attn-doctor built: run `attn-doctor build-kernels` first"
        )
    entries: dict[str, Entry] = {}
    left_out: dict[str, str] = {}
    for key, entry in manifest.entries.items():
        reason = _obstacle(folder, entry)
        if reason:
            left_out[f"{entry.spec.title} ({entry.place})"] = reason
        else:
            entries[key] = entry
    for warmup in manifest.warmups.values():
        told = "it can only be proven by running its program, which does not travel along"
        left_out[" ".join(warmup.argv)] = told
    if not entries:
        why = "".join(f"\n  {name}: {reason}" for name, reason in left_out.items())
        raise ArtifactError(f"nothing in {folder} can be exported{why}")
    return Choice(manifest=manifest, entries=entries, left_out=left_out)


def _obstacle(folder: Path, entry: Entry) -> str:
    build = entry.build
    if entry.state != "built" or build is None or not build.proven:
        return {"failed": "it failed", "not-reused": "it is not reused"}.get(
            entry.state, "it was not proven"
        )
    if entry.mask_source:
        return "its mask is your own function, and an import could not prove it without that file"
    gone = plan.missing(folder, build.files)
    return f"{gone[0]} is missing or has another size" if gone else ""


def pack(folder: Path, choice: Choice, target: Path) -> tuple[Artifact, str]:
    """Write the artifact. Returns what it says of itself, and the SHA-256 of the whole file.

    Raises `ArtifactError` if a file cannot be read or the artifact not be written.
    """
    names = sorted(
        {name for one in choice.entries.values() if one.build for name in one.build.files}
    )
    names += sorted(_key_parts(folder, choice.entries))
    described: dict[str, Packed] = {}
    for name in names:
        data, holds_path = _content(folder, name)
        described[PurePath(name).as_posix()] = Packed(
            bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), holds_path=holds_path
        )
    places = {entry.place for entry in choice.entries.values()}
    made = Artifact(
        schema=artifacts.SCHEMA,
        attn_doctor=__version__,
        made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        surroundings={
            place: one for place, one in choice.manifest.surroundings.items() if place in places
        },
        entries=choice.entries,
        files=described,
    )
    digest = artifacts.write(target, made, _contents(folder, described))
    return made, digest


def _key_parts(folder: Path, entries: Mapping[str, Entry]) -> Iterator[str]:
    """The lists of key parts that lie beside the manifest, by which a miss is explained."""
    for id in dict.fromkeys(entry.spec.id for entry in entries.values()):
        name = f"attn-doctor/keys/{id}.json"
        if (folder / name).is_file():
            yield name


def _contents(folder: Path, described: Mapping[str, Packed]) -> Iterator[tuple[str, bytes]]:
    for name, packed in described.items():
        data, _ = _content(folder, name)
        if len(data) != packed.bytes:
            raise ArtifactError(f"{folder / name} changed while it was packed: try again")
        yield name, data


def _content(folder: Path, name: str) -> tuple[bytes, bool]:
    """A file as it is packed, and whether the folder's path was in it."""
    try:
        data = (folder / name).read_bytes()
    except OSError as error:
        raise ArtifactError(f"{folder / name} cannot be read: {error.strerror}") from None
    # Only Triton's group files are read by path; elsewhere a path is a comment or a debug line.
    if not PurePath(name).name.startswith("__grp__"):
        return data, False
    packed = artifacts.without_folder(data, folder)
    return packed, packed != data
