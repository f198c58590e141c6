"""What `cache export` and `cache import` say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from attn_doctor.render.grouping import plural
from attn_doctor.render.paper import clean
from attn_doctor.render.sizes import size

if TYPE_CHECKING:
    from attn_doctor.builder.manifest import Entry
    from attn_doctor.caches.drift import Moved
    from attn_doctor.caches.portable.artifact import Artifact
    from attn_doctor.caches.portable.unpacking import Imported

__all__ = [
    "exported_json", "exported_text", "imported_json", "imported_text", "looked_json",
    "looked_text",
]  # fmt: skip

Moves = Mapping[str, "tuple[Moved, ...]"]


def exported_text(
    artifact: Artifact,
    file: Path,
    digest: str,
    bytes: int,
    left_out: Mapping[str, str],
    signature: Path | None,
) -> str:
    """What was written, what was not, and the command for the other side."""
    return _text(_exported(artifact, file, digest, bytes, left_out, signature))


def _exported(
    artifact: Artifact,
    file: Path,
    digest: str,
    bytes: int,
    left_out: Mapping[str, str],
    signature: Path | None,
) -> Iterator[str]:
    yield f"{file}: {plural(len(artifact.entries), 'kernel')}, {size(bytes)}"
    yield f"  sha256  {digest}"
    if signature is not None:
        yield f"  signed  {signature}"
    for place in artifact.surroundings:
        yield f"  for     {_machine(artifact, place)}"
    for name, reason in left_out.items():
        yield f"  left out: {name}: {reason}"
    yield "On the other machine:"
    yield f"  attn-doctor cache import {file.name} --sha256 {digest}"


def exported_json(
    artifact: Artifact, file: Path, digest: str, bytes: int, left_out: Mapping[str, str]
) -> str:
    """The same for programs."""
    return _json(
        file=str(file),
        bytes=bytes,
        sha256=digest,
        kernels=[one.spec.title for one in artifact.entries.values()],
        surroundings=artifact.surroundings,
        left_out=left_out,
    )


def looked_text(artifact: Artifact, file: Path, moved: Moves) -> str:
    """What an artifact holds, and whether it fits this machine."""
    lines = [f"{file}: {plural(len(artifact.entries), 'kernel')}, made {artifact.made}"]
    lines += [f"  {one.spec.title} ({one.place})" for one in artifact.entries.values()]
    return _text([*lines, *_fit(artifact, moved)])


def _fit(artifact: Artifact, moved: Moves) -> Iterator[str]:
    for place, found in moved.items():
        yield f"built for {_machine(artifact, place)}"
        if not found:
            yield "  ✓ this machine is alike"
        for one in found:
            yield f"  ✗ {one.component}: {one.was or 'none'} there, {one.now or 'none'} here"
    if moved and all(moved.values()):
        yield "Nothing of it would be reused here. Build instead: attn-doctor build-kernels"


def looked_json(artifact: Artifact, file: Path, moved: Moves, code: int) -> str:
    """The same for programs."""
    return _json(
        exit_code=code,
        file=str(file),
        made=artifact.made,
        kernels=[_entry(one) for one in artifact.entries.values()],
        differences=moved,
    )


def imported_text(done: Imported, moved: Moves, folder: str) -> str:
    """What was proven and is in use now, and what was not taken."""
    return _text(_imported(done, moved, folder))


def _imported(done: Imported, moved: Moves, folder: str) -> Iterator[str]:
    for entry in done.proven.values():
        build = entry.build
        errors = build.errors if build else {}
        told = ", ".join(f"{name} {error:.1e}" for name, error in errors.items())
        first = f", first call {build.reuse_seconds:.2f} s" if build and build.reuse_seconds else ""
        yield f"✓ {entry.spec.title} ({entry.place}): every cache hit, error {told}{first}"
    for entry in done.refused.values():
        yield f"✗ {entry.spec.title} ({entry.place}): {entry.message or entry.state}"
    for place, found in moved.items():
        for one in found:
            values = f"{one.was or 'none'} there, {one.now or 'none'} here"
            yield f"✗ for {place} not taken: {one.component}: {values}"
    if done.present:
        yield f"{plural(len(done.present), 'kernel')} of it were here already"
    if done.proven:
        files = plural(done.files, "file")
        yield f"{plural(len(done.proven), 'kernel')} ({files}, {size(done.bytes)}) now in {folder}"
    elif not done.present:
        yield f"Nothing was taken in; {folder} is as it was."


def imported_json(done: Imported, moved: Moves, folder: str, code: int) -> str:
    """The same for programs."""
    return _json(
        exit_code=code,
        folder=folder,
        proven=[_entry(one) for one in done.proven.values()],
        refused=[_entry(one) for one in done.refused.values()],
        present=done.present,
        files=done.files,
        bytes=done.bytes,
        differences=moved,
    )


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "title": entry.spec.title,
        "place": entry.place,
        "state": entry.state,
        "errors": entry.build.errors if entry.build else {},
        "seconds": entry.build.reuse_seconds if entry.build else None,
        "message": entry.message,
    }


def _machine(artifact: Artifact, place: str) -> str:
    was = artifact.surroundings[place]
    parts = [f"torch {was.torch}", f"triton {was.triton}" if was.triton else ""]
    return f"{place} with {', '.join(part for part in parts if part)}"


def _text(lines: Iterator[str] | list[str]) -> str:
    return "".join(f"{clean(line)}\n" for line in lines)


def _json(**data: object) -> str:
    return msgspec.json.format(msgspec.json.encode({"schema": 1, **data}), indent=2).decode() + "\n"
