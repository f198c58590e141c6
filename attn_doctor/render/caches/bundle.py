"""The output of `cache export` and `cache import`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attn_doctor.render.grouping import plural
from attn_doctor.render.humanize import size
from attn_doctor.render.json_text import result
from attn_doctor.render.terminal import Terminal, clean
from attn_doctor.shell import commands

if TYPE_CHECKING:
    from attn_doctor.kernels.bundle.artifact import Artifact
    from attn_doctor.kernels.bundle.compatibility import Compatibility
    from attn_doctor.kernels.bundle.import_entries import Imported
    from attn_doctor.kernels.bundle.pack import Exported
    from attn_doctor.record.manifest import Entry

Fits = Mapping[str, "Compatibility"]

#: Layer → mark and explanation, for --dry-run.
_LAYERS = {
    "exact": ("✓", "graphs and kernels fit this machine"),
    "kernels": ("!", "only Triton's kernels fit; all graphs would be lowered again"),
    "absent": ("·", "that GPU is not here: import it unverified, with --no-verify"),
    "elsewhere": ("·", "not needed here"),
    "nothing": ("✗", "nothing would be reused"),
}


def exported_text(one: Exported, terminal: Terminal, signature: Path | None = None) -> str:
    """What was written, what was left out, and the command for the other machine."""
    return terminal.page(map(clean, _exported(one, signature)))


def _exported(one: Exported, signature: Path | None) -> Iterator[str]:
    artifact, digest = one.artifact, one.digest
    yield f"{one.file}: {_counted(artifact)}, {size(one.bytes)}"
    yield f"  sha256  {digest}"
    if signature is not None:
        yield f"  signed  {signature}"
    for place in artifact.environments:
        yield f"  for     {_machine(artifact, place)}"
    for name, reason in one.left_out.items():
        yield f"  left out: {name}: {reason}"
    waiting = sum(entry.state == "unverified" for entry in artifact.entries.values())
    if waiting:
        verb = "is" if waiting == 1 else "are"
        yield f"{plural(waiting, 'kernel')} {verb} unverified; the import verifies them on the GPU."
    yield "On the other machine:"
    yield f"  {commands.attn_doctor('cache', 'import', one.file.name, '--sha256', digest)}"


def _counted(artifact: Artifact) -> str:
    counts = [plural(len(artifact.entries), "kernel")] if artifact.entries else []
    counts += [plural(len(artifact.warmups), "warm-up")] if artifact.warmups else []
    return " and ".join(counts)


def exported_json(one: Exported) -> str:
    """The same as JSON."""
    entries = one.artifact.entries
    return result(
        file=str(one.file),
        bytes=one.bytes,
        sha256=one.digest,
        kernels=[entry.spec.title for entry in entries.values()],
        unverified=[key for key, entry in entries.items() if entry.state == "unverified"],
        warmups=[warmup.argv for warmup in one.artifact.warmups.values()],
        environments=one.artifact.environments,
        left_out=one.left_out,
    )


def exported_plain(one: Exported) -> dict[str, Any]:
    """The same in short, for the result of a build."""
    return {
        "file": str(one.file),
        "sha256": one.digest,
        "bytes": one.bytes,
        "kernels": len(one.artifact.entries),
        "left_out": one.left_out,
    }


def preview_text(artifact: Artifact, file: Path, fits: Fits, terminal: Terminal) -> str:
    """What an artifact holds, and whether it fits this machine."""
    lines = [f"{file}: {_counted(artifact)}, made {artifact.made}"]
    lines += [
        f"  {one.spec.title} ({one.device_slot}"
        + ("), unverified" if one.state == "unverified" else ")")
        for one in artifact.entries.values()
    ]
    lines += [f"  {' '.join(one.argv)} ({one.device_slot})" for one in artifact.warmups.values()]
    return terminal.page(map(clean, [*lines, *_fit(artifact, fits)]))


def _fit(artifact: Artifact, fits: Fits) -> Iterator[str]:
    for place, one in fits.items():
        mark, words = _LAYERS[one.layer.value]
        yield f"built for {_machine(artifact, place)}"
        yield f"  {mark} {words}"
        if one.why:
            yield f"    {one.why}"
    layers = {one.layer.value for one in fits.values()}
    if layers == {"nothing"}:
        yield "Nothing would be reused here. Build instead: attn-doctor build-kernels"
    elif layers <= {"nothing", "absent"}:
        yield (
            "Nothing can be verified here. For an image, use the same command with --no-verify;"
            " then run `attn-doctor cache verify` on the machine with the GPU."
        )


def preview_json(artifact: Artifact, file: Path, fits: Fits, code: int) -> str:
    """The same as JSON."""
    return result(
        exit_code=code,
        file=str(file),
        made=artifact.made,
        kernels=[_entry(one) for one in artifact.entries.values()],
        warmups=[one.argv for one in artifact.warmups.values()],
        fits=[*fits.values()],
    )


def imported_text(done: Imported, fits: Fits, folder: str, terminal: Terminal) -> str:
    """What was imported and verified, what is still unverified, and what was not imported."""
    return terminal.page(map(clean, _imported(done, fits, folder)))


def _imported(done: Imported, fits: Fits, folder: str) -> Iterator[str]:
    for entry in done.verified.values():
        yield f"✓ {_title(entry)}: every cache hit, error {_errors(entry)}{_first(entry)}"
    for entry in done.unverified.values():
        yield f"! {_title(entry)}: imported, unverified"
    for entry in done.kernels.values():
        served = ", and all of them were found" if entry.build and entry.build.hits else ""
        yield f"! {_title(entry)}: {entry.message}{served}{_first(entry)}"
    for warmup in done.warmups.values():
        alone = f": {warmup.message}" if warmup.message else ": imported, unverified"
        yield f"! {' '.join(warmup.argv)} ({warmup.device_slot}){alone}"
    for entry in done.refused.values():
        yield f"✗ {_title(entry)}: {entry.message or entry.state}"
    for place, one in fits.items():
        if one.layer.value in ("nothing", "absent", "elsewhere"):
            mark = "✗" if one.layer.value == "nothing" else "·"
            # Without a run, a missing GPU is not an obstacle.
            if not (one.layer.value == "absent" and (done.unverified or done.present)):
                yield f"{mark} for {place}, not imported: {one.why}"
    if done.present:
        verb = "was" if len(done.present) == 1 else "were"
        yield f"{plural(len(done.present), 'kernel')} {verb} already here"
    yield from _sums(done, folder)


def _sums(done: Imported, folder: str) -> Iterator[str]:
    files = f"{plural(done.files, 'file')}, {size(done.bytes)}"
    if done.verified:
        yield f"{plural(len(done.verified), 'kernel')} ready ({files}) in {folder}"
    elif done.anything:
        yield f"{files} now in {folder}"
    elif not done.present:
        yield f"Nothing was imported; {folder} is unchanged."
    if done.helpers:
        place = commands.word(folder)
        yield f"Start programs with TORCHINDUCTOR_CACHE_DIR={place} TRITON_HOME={place}"
    if done.kernels:
        yield (
            "Triton's kernels, which take most of the build time, are imported. Build the rest:"
            f" {commands.build(folder)}"
        )
    if done.unverified:
        yield f"Verify them on their GPU before use: {commands.verify(folder)}"
    if any(one.unverified for one in done.warmups.values()):
        yield f"Verify warm-ups by running their program: {commands.verify(folder)} -- COMMAND"


def _title(entry: Entry) -> str:
    return f"{entry.spec.title} ({entry.device_slot})"


def _errors(entry: Entry) -> str:
    errors = entry.build.errors if entry.build else {}
    return ", ".join(f"{name} {error:.1e}" for name, error in errors.items())


def _first(entry: Entry) -> str:
    seconds = entry.build.reuse_seconds if entry.build else None
    return f", first call {seconds:.2f} s" if seconds else ""


def imported_json(done: Imported, fits: Fits, folder: str, code: int) -> str:
    """The same as JSON."""
    return result(
        exit_code=code,
        folder=folder,
        verified=[_entry(one) for one in done.verified.values()],
        unverified=[_entry(one) for one in done.unverified.values()],
        kernels_only=[_entry(one) for one in done.kernels.values()],
        warmups=[one.argv for one in done.warmups.values()],
        refused=[_entry(one) for one in done.refused.values()],
        present=done.present,
        files=done.files,
        bytes=done.bytes,
        fits=[*fits.values()],
    )


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "title": entry.spec.title,
        "device_slot": entry.device_slot,
        "state": entry.state,
        "errors": entry.build.errors if entry.build else {},
        "seconds": entry.build.reuse_seconds if entry.build else None,
        "message": entry.message,
    }


def _machine(artifact: Artifact, place: str) -> str:
    was = artifact.environments[place]
    parts = [f"torch {was.torch}", f"triton {was.triton}" if was.triton else ""]
    return f"{place} with {', '.join(part for part in parts if part)}"
