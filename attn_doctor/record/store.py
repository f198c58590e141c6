"""Reads and writes the manifest, in one step and synchronised with the disk.

The manifest is written after every kernel. The files that it names are synchronised first, so that
after a power loss no entry names an empty file.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from attn_doctor._version import __version__
from attn_doctor.errors import AttnDoctorError
from attn_doctor.files import DATA, read_bytes, sync, write_atomic
from attn_doctor.json_files import JsonError, decode
from attn_doctor.record.manifest import NAME, SCHEMA, Manifest


class _Version(msgspec.Struct):
    schema: int = 0
    attn_doctor: str = "?"


def empty() -> Manifest:
    """An empty manifest."""
    return Manifest(schema=SCHEMA, attn_doctor=__version__)


def load(folder: Path) -> Manifest | None:
    """The manifest of a cache folder; None if there is none, or it is truncated.

    Raises `AttnDoctorError` if a newer attn-doctor wrote it, or it may not be read.
    """
    path = folder / NAME
    try:
        data = read_bytes(path, DATA)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise AttnDoctorError(f"{path} cannot be read: {error.strerror}") from None
    try:
        version = decode(data, _Version)
        if version.schema > SCHEMA:
            raise AttnDoctorError(
                f"{path} was written by attn-doctor {version.attn_doctor}, which is newer than this"
                f" one ({__version__}): upgrade attn-doctor, or use another cache folder"
            )
        return decode(data, Manifest)
    except JsonError:
        return None


def save(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a cache folder, in one step and to the disk."""
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    path = folder / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, data + b"\n")


def flush(folder: Path, files: Iterable[str]) -> None:
    """Synchronise files below `folder`, and their folders, with the disk."""
    folders = set()
    for name in files:
        path = folder / name
        sync(path)
        folders.add(path.parent)
    for parent in folders:
        sync(parent)
