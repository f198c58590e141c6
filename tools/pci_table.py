"""Prints `rules/tables/pci-nvidia.toml` from a `pci.ids` file: `python tools/pci_table.py pci.ids`.

The database (https://pci-ids.ucw.cz) names the chip and the product of each device id; the chip
decides the compute capability. A product without a public name is listed under its chip's code.
"""

from __future__ import annotations

import datetime
import re
import sys
from pathlib import Path

#: Compute capability ×10 by chip, for what NVIDIA lists at https://developer.nvidia.com/cuda-gpus
#: and https://developer.nvidia.com/cuda-legacy-gpus, and for the B100 (GB102), a smaller B200.
#: Chips without a product are left out: GB112 (10.3 by its kinship with GB110), GB120, GR100.
CAPABILITY = {
    "GM107": 50,
    "GM108": 50,
    "GM200": 52,
    "GM204": 52,
    "GM206": 52,
    "GP100": 60,
    "GP102": 61,
    "GP104": 61,
    "GP106": 61,
    "GP107": 61,
    "GP108": 61,
    "GV100": 70,
    "TU102": 75,
    "TU104": 75,
    "TU106": 75,
    "TU116": 75,
    "TU117": 75,
    "GA100": 80,
    "GA102": 86,
    "GA103": 86,
    "GA104": 86,
    "GA106": 86,
    "GA107": 86,
    "GA10B": 87,
    "AD102": 89,
    "AD103": 89,
    "AD104": 89,
    "AD106": 89,
    "AD107": 89,
    "GH100": 90,
    "GB100": 100,
    "GB102": 100,
    "GB110": 103,
    "GB10B": 110,
    "GB202": 120,
    "GB203": 120,
    "GB205": 120,
    "GB206": 120,
    "GB207": 120,
    "GB20B": 121,
}

#: Functions of a GPU that are not GPUs, and switches.
_OTHER = re.compile(r"Audio|USB|UCSI|NVSwitch|bridge|host|Controller", re.IGNORECASE)
#: Names that no shop has used.
_INTERNAL = re.compile(
    r"SKU|Engineering Sample|Reserved Dev|Initial DevID|FAKE|^PG\d|^D17U|Graphics Device"
    r"|Desktop Device|Generic|Skinny"
)

HEADER = """\
# NVIDIA's PCI device ids: product name, and compute capability x10 by chip (`sm`).
# Printed by tools/pci_table.py; do not edit by hand.
#
# Names are facts from the PCI ID database; if it has no product name, the chip's code is used
# instead. Capabilities: https://developer.nvidia.com/cuda-gpus and /cuda-legacy-gpus.
schema  = 1
source  = "https://github.com/pciutils/pciids (pci.ids of {version})"
checked = {today}
"""


def rows(text: str) -> dict[str, list[tuple[str, str]]]:
    """(device id, name) of NVIDIA's GPUs by chip, from the text of a pci.ids file."""
    found: dict[str, list[tuple[str, str]]] = {chip: [] for chip in CAPABILITY}
    ours = False
    for line in text.splitlines():
        if line[:1] not in ("\t", "#", ""):
            ours = line.startswith("10de ")
        # 	2684  AD102 [GeForce RTX 4090]
        # 	2717  AD103M / GN21-X11 [GeForce RTX 4090 Laptop GPU]
        match = re.match(r"\t([0-9a-f]{4})  ([A-Z]{2}\d\d[0-9A-F])(.*)$", line)
        if not ours or match is None or match[2] not in found or _OTHER.search(match[3]):
            continue
        bracket = re.search(r"\[(.+)\]$", match[3])
        name = bracket[1] if bracket else match[2]
        if re.match(r"[A-Z]{2}\d\d[0-9A-F] (?:INT|CS|SKU)", name):
            continue  # `GM204 [GM107 INT52]`: the chip itself is in doubt
        found[match[2]].append((match[1], match[2] if _INTERNAL.search(name) else name))
    return found


def table(text: str, today: str) -> str:
    """The table as TOML: one block of lines for each chip."""
    version = re.search(r"Version: ([\d.]+)", text)
    parts = [HEADER.format(version=version[1] if version else "unknown date", today=today)]
    for chip, devices in rows(text).items():
        if devices:
            lines = "".join(f"{number} {name}\n" for number, name in devices)
            parts.append(f"[chips.{chip}]\nsm  = {CAPABILITY[chip]}\nids = '''\n{lines}'''\n")
    return "\n".join(parts)


if __name__ == "__main__":
    source = Path(sys.argv[1]).read_text(encoding="utf-8", errors="replace")
    sys.stdout.write(table(source, datetime.date.today().isoformat()))
