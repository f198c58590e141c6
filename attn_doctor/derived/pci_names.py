"""Names NVIDIA devices on the PCI bus by their ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from attn_doctor.facts import PciDevice


def named(found: tuple[PciDevice, ...], table: Mapping[str, Any]) -> tuple[PciDevice, ...]:
    """Return `found` with names and capabilities from `rules/tables/pci-nvidia.toml`."""
    return tuple(_named(device, table) for device in found)


def _named(device: PciDevice, table: Mapping[str, Any]) -> PciDevice:
    if device.vendor != "nvidia" or not device.device_id:
        return device
    for chip in table["chips"].values():
        # Each chip has a block of lines such as `2684 GeForce RTX 4090`; searching it is faster.
        _, hit, rest = ("\n" + chip["ids"]).partition(f"\n{device.device_id} ")
        if hit:
            name = device.name or rest.partition("\n")[0]
            return msgspec.structs.replace(device, name=name, sm=chip["sm"])
    return device
