"""What was built in a cache folder before, as a wish to have it built again."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.kernels.builder.devices import devices
from attn_doctor.kernels.builder.items import mask_folders
from attn_doctor.kernels.builder.target import Target
from attn_doctor.kernels.gpus.descriptor import identifier
from attn_doctor.record import store
from attn_doctor.record.environment import slot_of
from attn_doctor.record.manifest import Entry, Manifest
from attn_doctor.record.spec import KernelSpec
from attn_doctor.shell import commands

_SAY = (
    "say what to build: --preset NAME (--list-presets shows them), --spec FILE, --heads and"
    " --head-dim with --length, or -- COMMAND with a warm-up of your own"
)


class Recorded(Struct, frozen=True, kw_only=True):
    """Specs of the manifest, and the devices they were built for."""

    specs: tuple[KernelSpec, ...]
    devices: tuple[str, ...]
    keys: frozenset[str]
    sys_path: tuple[str, ...] = ()
    """Folders that the user's own masks were imported from."""
    notes: tuple[str, ...] = ()


def recorded(facts: Facts, folder: Path, asked: str, target: Target | None = None) -> Recorded:
    """All that was built in `folder` for devices of this machine (or for `asked` ones alone).

    With a `target`, all that was built for its devices; `facts` are then as they are there. Raises
    `AttnDoctorError` if nothing was, and `DeviceError` if its device is missing.
    """
    manifest = store.load(folder)
    if manifest is None or not (manifest.entries or manifest.warmups):
        raise AttnDoctorError(f"nothing was built in {folder} yet: {_SAY}")
    if target is not None:
        return _of_target(manifest, facts, folder, target)
    if not manifest.entries:
        raise AttnDoctorError(
            f"{folder} holds nothing but what warm-ups compiled, which are programs of yours and"
            " run only if asked for:\n  " + "\n  ".join(_programs(manifest, facts, folder))
        )
    named = {
        entry.device_slot.partition(" ")[0]
        for entry in manifest.entries.values()
        if not _elsewhere(facts, entry)
    }
    if manifest.entries and not named and not asked:
        names = sorted({entry.device_slot.partition(" ")[2] for entry in manifest.entries.values()})
        words = [word for name in names for word in ("--target", identifier(name))]
        raise AttnDoctorError(
            f"{folder} holds kernels for {', '.join(names)} alone, built without a GPU. This builds"
            f" them again: {commands.build(folder, facts, *words)}"
        )
    targets = devices(facts, asked or ",".join(sorted(named)) or "cpu")
    entries = {
        name: entry
        for name, entry in manifest.entries.items()
        if (device := entry.device_slot.partition(" ")[0]) in targets
        and slot_of(facts, device) in (entry.device_slot, None)
    }
    if not entries:
        places = ", ".join(sorted({entry.device_slot for entry in manifest.entries.values()}))
        raise AttnDoctorError(f"{folder} holds kernels for {places}, not for this machine: {_SAY}")
    return Recorded(
        specs=tuple({entry.spec.id: entry.spec for entry in entries.values()}.values()),
        devices=targets,
        keys=frozenset(entries),
        sys_path=mask_folders(entries.values()),
        notes=_warmups(manifest, facts, folder),
    )


def _elsewhere(facts: Facts, entry: Entry) -> bool:
    """It was built for a GPU of another machine, without one."""
    here = slot_of(facts, entry.device_slot.partition(" ")[0])
    unknown = here is None and bool(facts.gpus)
    return entry.state == "unverified" and here != entry.device_slot and not unknown


def _of_target(manifest: Manifest, facts: Facts, folder: Path, target: Target) -> Recorded:
    entries = {
        name: entry
        for name, entry in manifest.entries.items()
        if entry.device_slot in target.places
    }
    if not entries:
        raise AttnDoctorError(f"nothing was built in {folder} for {target.name} yet: {_SAY}")
    return Recorded(
        specs=tuple({entry.spec.id: entry.spec for entry in entries.values()}.values()),
        devices=target.devices,
        keys=frozenset(entries),
        sys_path=mask_folders(entries.values()),
        notes=_warmups(manifest, facts, folder),
    )


def _warmups(manifest: Manifest, facts: Facts, folder: Path) -> tuple[str, ...]:
    """Warm-ups are programs of the user's: they are named, not run unasked."""
    again = _programs(manifest, facts, folder)
    return tuple(f"warm-ups are not repeated unasked: {one}" for one in again)


def _programs(manifest: Manifest, facts: Facts, folder: Path) -> tuple[str, ...]:
    """The commands that repeat the recorded warm-ups."""
    return tuple(
        commands.build(folder, facts, *_target(one.device_slot, facts), program=one.argv)
        for one in manifest.warmups.values()
    )


def _target(place: str, facts: Facts) -> tuple[str, ...]:
    """`--target NAME` for a place whose GPU this machine does not have."""
    name = place.partition(" ")[2]
    here = {gpu.name for gpu in facts.gpus or () if gpu.visible is not False}
    return ("--target", identifier(name)) if name and name not in here else ()
