"""Reads display and compute devices from the PCI bus, which works without any GPU driver.

The bus gives vendor id, device id and the bound kernel driver; the product name comes from a table
(`derived.pci_names`). GPUs that are not on the bus (Jetson, Apple) and GPUs that Windows shares
with WSL are not seen here.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from attn_doctor.facts import PciDevice
from attn_doctor.facts.kinds import PciVendor
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps

BUS = "/sys/bus/pci/devices"
PNPUTIL_SECONDS = 2.0
_VENDORS: dict[str, PciVendor] = {"10de": "nvidia", "1002": "amd", "8086": "intel"}
#: Display controllers (VGA, XGA, 3D) and processing accelerators (some AMD Instinct).
_CLASSES = ("0x03", "0x12")
_ID_FILES = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")


def read(host: Host, site: Site, gaps: Gaps) -> dict[str, Any]:
    """The field `pci` of `Facts`."""
    found, reason = look(host)
    if reason:
        gaps.add("pci", reason)
        return {"pci": None}
    for number, device in enumerate(found):
        if device.kernel_driver is None:
            gaps.add(f"pci[{number}].kernel_driver", "Windows names only the .inf file of a driver")
    return {"pci": _with_system_names(host, found)}


def devices(host: Host) -> tuple[PciDevice, ...]:
    """Return the devices on the bus; none if the bus cannot be read (see `look`)."""
    return look(host)[0]


def look(host: Host) -> tuple[tuple[PciDevice, ...], str]:
    """Return the devices on the bus, and why they could not be read; empty if they were."""
    if host.windows:
        return _windows(host)
    if host.platform.os == "macos":
        apple = host.platform.machine == "arm64"  # its GPU is not a PCI device
        return (), "" if apple else "the PCI bus of a Mac is not read"
    try:
        addresses = host.list(BUS)
    except FileNotFoundError:
        # Without a PCI bus the kernel still has /sys/bus; without /sys the devices are unknown.
        return (), "" if host.try_list("/sys/bus") else "/sys is not mounted"
    except OSError as error:
        return (), f"{BUS} cannot be read: {error.strerror}"
    found = (_linux(host, address) for address in addresses)
    return tuple(device for device in found if device is not None), ""


def _linux(host: Host, address: str) -> PciDevice | None:
    folder = f"{BUS}/{address}"
    # 0x030200
    if not host.try_read(f"{folder}/class", 32).startswith(_CLASSES):
        return None
    # /sys/bus/pci/drivers/nvidia
    driver = host.real(f"{folder}/driver").rpartition("/")[2]
    return PciDevice(
        address=address,
        vendor=_VENDORS.get(_hex(host, f"{folder}/vendor"), "other"),
        device_id=_hex(host, f"{folder}/device"),
        name="",
        kernel_driver="" if driver == "driver" else driver,
    )


def _hex(host: Host, path: str) -> str:
    # 0x10de
    return host.try_read(path, 32).strip().removeprefix("0x").lower()


def _windows(host: Host) -> tuple[tuple[PciDevice, ...], str]:
    # Instance ID:                PCI\VEN_10DE&DEV_2684&SUBSYS_40961458&REV_A1\4&2283F625&0&0008
    # Device Description:         NVIDIA GeForce RTX 4090
    # The labels are translated on other Windows languages; the instance id is not.
    root = host.environ.get("SYSTEMROOT", "C:\\Windows")
    program = host.join(root, "System32", "pnputil.exe")
    ran = host.run([program, "/enum-devices", "/connected", "/class", "Display"], PNPUTIL_SECONDS)
    if not ran.ok:
        return (), ran.why_not("pnputil", PNPUTIL_SECONDS)
    pattern = r"PCI\\VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})[^\r\n]*\r?\n[^:\r\n]*:[ \t]*([^\r\n]*)"
    return tuple(
        PciDevice(
            vendor=_VENDORS.get(match[1].lower(), "other"),
            device_id=match[2].lower(),
            name=match[3].strip(),
        )
        for match in re.finditer(pattern, ran.out, re.IGNORECASE)
    ), ""


def _with_system_names(host: Host, found: tuple[PciDevice, ...]) -> tuple[PciDevice, ...]:
    """Add names from the system's id database; it is read only for a GPU without a driver."""
    wanted = {one.vendor for one in found if one.kernel_driver == "" and one.vendor != "other"}
    if not wanted:
        return found
    text = next(filter(None, (host.try_read(path, 1 << 22) for path in _ID_FILES)), "")
    for number, vendor in _VENDORS.items():
        if vendor in wanted:
            names = _vendor_part(text, number)
            found = tuple(
                msgspec.structs.replace(one, name=names.get(one.device_id or "", ""))
                if one.vendor == vendor
                else one
                for one in found
            )
    return found


def _vendor_part(text: str, vendor: str) -> dict[str, str]:
    """Return names by device id in a vendor's part of pci.ids, without subsystems (two tabs)."""
    # 10de  NVIDIA Corporation
    # 	2684  AD102 [GeForce RTX 4090]
    names: dict[str, str] = {}
    for line in ("\n" + text).partition(f"\n{vendor}  ")[2].splitlines()[1:]:
        if line[:1] not in ("\t", "#"):
            break
        if line[:1] == "\t" and line[1:2] != "\t":
            number, _, name = line[1:].partition("  ")
            bracket = re.search(r"\[(.+)\]$", name)
            names[number] = bracket[1] if bracket else name
    return names
