"""Requests to build again what the manifest of a cache folder names."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.kernels.builder.devices import devices
from attn_doctor.kernels.builder.plan import BuildRequest, mask_folders
from attn_doctor.kernels.gpus.descriptor import identifier
from attn_doctor.record import store
from attn_doctor.record.environment import slot_of
from attn_doctor.record.manifest import Entry, Manifest
from attn_doctor.shell import commands

_WHAT = (
    "say what to build: --preset NAME (--list-presets shows them), --spec FILE, --heads and"
    " --head-dim with --seq-len, or -- COMMAND with a warm-up of your own"
)


def recorded(request: BuildRequest, device: str) -> tuple[BuildRequest, tuple[str, ...]]:
    """Add to a request all that was built in its folder for its target, or for this machine.

    `device`: names of devices, as given to `--device`, to which this machine is limited. Returns
    the request and remarks. Raises `AttnDoctorError` if nothing was built, and `DeviceError` if a
    device is missing.
    """
    facts, folder, target = request.facts, request.folder, request.target
    manifest = store.load(folder)
    if manifest is None or not (manifest.entries or manifest.warmups):
        raise AttnDoctorError(f"nothing was built in {folder} yet: {_WHAT}")
    if target is not None:
        named = target.devices
        entries = {
            name: entry
            for name, entry in manifest.entries.items()
            if entry.device_slot in target.slots
        }
        if not entries:
            raise AttnDoctorError(f"nothing was built in {folder} for {target.name} yet: {_WHAT}")
    else:
        named, entries = _of_machine(manifest, facts, folder, device)
    request = replace(
        request,
        specs=tuple({entry.spec.id: entry.spec for entry in entries.values()}.values()),
        devices=named,
        only=frozenset(entries),
        sys_path=(*mask_folders(entries.values()), os.getcwd()),
    )
    # Warm-ups are the user's programs: they are named, and run only on demand.
    again = _programs(manifest, facts, folder)
    return request, tuple(f"warm-ups are run again only on demand: {line}" for line in again)


def _of_machine(
    manifest: Manifest, facts: Facts, folder: Path, device: str
) -> tuple[tuple[str, ...], dict[str, Entry]]:
    """The devices of this machine, and the entries that were built for them."""
    if not manifest.entries:
        raise AttnDoctorError(
            f"{folder} holds only what warm-ups compiled; these are programs of yours and run only"
            " on demand:",
            *(f"  {line}" for line in _programs(manifest, facts, folder)),
        )
    here = {
        entry.device_slot.partition(" ")[0]
        for entry in manifest.entries.values()
        if not _elsewhere(facts, entry)
    }
    if not here and not device:
        names = sorted({entry.device_slot.partition(" ")[2] for entry in manifest.entries.values()})
        words = [word for name in names for word in ("--target", identifier(name))]
        raise AttnDoctorError(
            f"{folder} holds only kernels for {', '.join(names)}, built without a GPU. This builds"
            f" them again: {commands.build(folder, facts, *words)}"
        )
    named = devices(facts, device or ",".join(sorted(here)) or "cpu")
    entries = {
        name: entry
        for name, entry in manifest.entries.items()
        if (own := entry.device_slot.partition(" ")[0]) in named
        and slot_of(facts, own) in (entry.device_slot, None)
    }
    if not entries:
        slots = ", ".join(sorted({entry.device_slot for entry in manifest.entries.values()}))
        raise AttnDoctorError(f"{folder} holds kernels for {slots}, not for this machine: {_WHAT}")
    return named, entries


def _elsewhere(facts: Facts, entry: Entry) -> bool:
    """Whether it was built for a GPU of another machine, without one."""
    here = slot_of(facts, entry.device_slot.partition(" ")[0])
    unknown = here is None and bool(facts.gpus)
    return entry.state == "unverified" and here != entry.device_slot and not unknown


def _programs(manifest: Manifest, facts: Facts, folder: Path) -> tuple[str, ...]:
    """The commands that repeat the recorded warm-ups."""
    here = {gpu.name for gpu in facts.gpus or () if gpu.visible is not False}

    def target(slot: str) -> tuple[str, ...]:
        name = slot.partition(" ")[2]
        return ("--target", identifier(name)) if name and name not in here else ()

    return tuple(
        commands.build(folder, facts, *target(warmup.device_slot), program=warmup.argv)
        for warmup in manifest.warmups.values()
    )
