"""Devices on the PCI bus, and the table that names NVIDIA's."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from attn_doctor.derived import pci_names
from attn_doctor.facts import PciDevice
from attn_doctor.host.local import LocalHost
from attn_doctor.host.recorded import RecordedHost, key
from attn_doctor.probes.distributions import Distributions, Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.machine import pci

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[3]
TABLE = tomllib.loads((ROOT / "rules/tables/pci-nvidia.toml").read_text(encoding="utf-8"))

PCI_IDS = """\
# a comment
1002  Advanced Micro Devices, Inc. [AMD/ATI]
\t744c  Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M]
10de  NVIDIA Corporation
\t2330  GH100 [H100 SXM5 80GB]
\t2684  AD102 [GeForce RTX 4090]
\t\t1043 889d  ROG Strix
\t2717  AD103M / GN21-X11 [GeForce RTX 4090 Laptop GPU]
\t22a3  GH100 [H100 NVSwitch]
\t10f0  GP104 High Definition Audio Controller
\t2900  GB100 [Reserved Dev ID A]
\t13ad  GM204 [GM107 INT52]
\t3021  GR100 [PCIe Faber]
10df  Emulex Corporation
\t2684  Not a GPU
"""


def machine(*devices: tuple[str, str, str, str], **more: Any) -> RecordedHost:
    """A Linux machine with (class, vendor, device, driver) in each slot."""
    answers: dict[str, Any] = {
        "platform": {"answer": {"os": "linux", "machine": "x86_64", "release": "6.8.0"}},
        "list /sys/bus/pci/devices": {"answer": [f"0000:0{n}:00.0" for n in range(len(devices))]},
    }
    for number, (kind, vendor, device, driver) in enumerate(devices):
        folder = f"/sys/bus/pci/devices/0000:0{number}:00.0"
        answers[f"read {folder}/class"] = {"answer": f"0x{kind}\n"}
        answers[f"read {folder}/vendor"] = {"answer": f"0x{vendor}\n"}
        answers[f"read {folder}/device"] = {"answer": f"0x{device}\n"}
        end = f"/sys/bus/pci/drivers/{driver}" if driver else f"/sys/devices/pci0/{number}/driver"
        answers[key("real", f"{folder}/driver")] = {"answer": end}
    return RecordedHost({**answers, **more})


def read(host: RecordedHost) -> tuple[tuple[PciDevice, ...] | None, dict[str, str]]:
    gaps = Gaps()
    fields = pci.read(host, Site(folders=(), distributions=Distributions(host, ())), gaps)
    return fields["pci"], gaps.reasons


def test_only_gpus_of_the_bus_are_listed() -> None:
    found, gaps = read(
        machine(
            ("060000", "8086", "0d57", ""),  # host bridge
            ("030000", "10de", "2684", "nvidia"),
            ("040300", "10de", "22ba", "snd_hda_intel"),  # the card's sound
            ("030200", "10de", "2330", "nvidia"),
            ("068000", "10de", "22a3", "nvidia-nvswitch"),
            ("120000", "1002", "74a1", "amdgpu"),  # Instinct MI300X
            ("030000", "1a03", "2000", "ast"),
        )
    )
    assert found is not None
    assert gaps == {}
    assert [(one.vendor, one.device_id, one.kernel_driver) for one in found] == [
        ("nvidia", "2684", "nvidia"),
        ("nvidia", "2330", "nvidia"),
        ("amd", "74a1", "amdgpu"),
        ("other", "2000", "ast"),
    ]
    assert found[0] == PciDevice(
        address="0000:01:00.0", vendor="nvidia", device_id="2684", name="", kernel_driver="nvidia"
    )


def test_a_device_without_a_driver_gets_the_systems_name() -> None:
    ids = {key("read", "/usr/share/misc/pci.ids"): {"answer": PCI_IDS}}
    gpu, audio = ("030000", "10de", "2684"), ("030000", "1002", "744c")
    found, _ = read(machine((*gpu, ""), (*audio, "amdgpu"), **ids))
    assert found is not None
    assert [(one.name, one.kernel_driver) for one in found] == [
        ("GeForce RTX 4090", ""),
        ("", "amdgpu"),
    ]
    found, _ = read(machine((*gpu, "nvidia"), **ids))
    assert found is not None
    assert found[0].name == ""


def test_a_machine_without_a_bus_and_one_that_hides_it() -> None:
    platform = {"answer": {"os": "linux", "machine": "aarch64", "release": "6.8.0"}}
    bare = {"platform": platform, "list /sys/bus": {"answer": ["cpu", "usb"]}}
    assert read(RecordedHost(bare)) == ((), {})
    assert read(RecordedHost({"platform": platform})) == (None, {"pci": "/sys is not mounted"})
    hidden = {"platform": platform, "list /sys/bus/pci/devices": {"error": "EACCES"}}
    found, gaps = read(RecordedHost(hidden))
    assert found is None
    assert "/sys/bus/pci/devices cannot be read" in gaps["pci"]


def test_windows_in_any_language() -> None:
    # German labels; the second adapter is a remote desktop's, on no PCI bus.
    out = (
        "Microsoft PnP-Dienstprogramm\r\n\r\n"
        "Instanz-ID:                PCI\\VEN_10DE&DEV_1E93&SUBSYS_12BC1462&REV_A1\\4&443&0&0008\r\n"
        "Gerätebeschreibung:        NVIDIA GeForce RTX 2080 Super\r\n"
        "Klassenname:               Display\r\n\r\n"
        "Instanz-ID:                ROOT\\DISPLAY\\0000\r\n"
        "Gerätebeschreibung:        Virtual Display Driver\r\n\r\n"
        "Instanz-ID:                PCI\\VEN_8086&DEV_9BC4&SUBSYS_12BC1462&REV_05\\3&115&1&10\r\n"
        "Gerätebeschreibung:        Intel(R) UHD Graphics\r\n"
    )
    program = "C:\\Windows\\System32\\pnputil.exe"
    argv = [program, "/enum-devices", "/connected", "/class", "Display"]
    host = RecordedHost(
        {
            "platform": {"answer": {"os": "windows", "machine": "AMD64", "release": "11"}},
            key("run", argv): {"answer": {"outcome": "done", "code": 0, "out": out}},
        }
    )
    found, gaps = read(host)
    assert found == (
        PciDevice(vendor="nvidia", device_id="1e93", name="NVIDIA GeForce RTX 2080 Super"),
        PciDevice(vendor="intel", device_id="9bc4", name="Intel(R) UHD Graphics"),
    )
    assert {"pci[0].kernel_driver", "pci[1].kernel_driver"} <= gaps.keys()


def test_this_machine() -> None:
    host = LocalHost()
    found, reason = pci.look(host)
    assert found == pci.devices(host)
    for device in found:
        assert device.device_id is not None
        assert len(device.device_id) == 4
    assert reason == "" or found == ()


@pytest.mark.parametrize(
    ("device", "name", "sm"),
    [
        ("1380", "GeForce GTX 750 Ti", 50),
        ("17c8", "GeForce GTX 980 Ti", 52),
        ("15f8", "Tesla P100 PCIe 16GB", 60),
        ("1b06", "GeForce GTX 1080 Ti", 61),
        ("1db4", "Tesla V100 PCIe 16GB", 70),
        ("1eb8", "Tesla T4", 75),
        ("21c4", "GeForce GTX 1660 SUPER", 75),
        ("20b2", "A100 SXM4 80GB", 80),
        ("2204", "GeForce RTX 3090", 86),
        ("2235", "A40", 86),
        ("2684", "GeForce RTX 4090", 89),
        ("26b9", "L40S", 89),
        ("2717", "GeForce RTX 4090 Laptop GPU", 89),
        ("2330", "H100 SXM5 80GB", 90),
        ("2335", "H200 SXM 141GB", 90),
        ("2901", "B200", 100),
        ("3182", "B300 SXM6 AC", 103),
        ("2b85", "GeForce RTX 5090", 120),
        ("2bb1", "RTX PRO 6000 Blackwell Workstation Edition", 120),
        ("2d04", "GeForce RTX 5060 Ti", 120),
        ("2e12", "GB10", 121),
        ("2302", "GH100", 90),  # no product name is known
        ("ffff", "", None),
    ],
)
def test_the_table_names_gpus_and_their_compute_capability(
    device: str, name: str, sm: int | None
) -> None:
    seen = PciDevice(vendor="nvidia", device_id=device, name="")
    (found,) = pci_names.named((seen,), TABLE)
    assert (found.name, found.sm) == (name, sm)


def test_the_table_is_nvidias_and_keeps_a_name_that_is_known() -> None:
    amd = PciDevice(vendor="amd", device_id="2684", name="")
    windows = PciDevice(vendor="nvidia", device_id="2684", name="NVIDIA GeForce RTX 4090")
    found = pci_names.named((amd, windows), TABLE)
    assert found[0] == amd
    assert (found[1].name, found[1].sm) == ("NVIDIA GeForce RTX 4090", 89)


def test_the_table_is_whole() -> None:
    lines = [line for chip in TABLE["chips"].values() for line in chip["ids"].splitlines()]
    numbers = [line.partition(" ")[0] for line in lines]
    assert len(numbers) == len(set(numbers)) >= 600
    assert all(
        int(number, 16) and line[4:].strip() for number, line in zip(numbers, lines, strict=True)
    )
    assert TABLE["schema"] == 1
    assert TABLE["source"].startswith("https://")


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pci_table", ROOT / "tools/pci_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_made_from_pci_ids() -> None:
    made = tomllib.loads(generator().table(PCI_IDS, "2026-11-21"))
    assert {chip: (one["sm"], one["ids"].splitlines()) for chip, one in made["chips"].items()} == {
        "AD102": (89, ["2684 GeForce RTX 4090"]),
        "AD103": (89, ["2717 GeForce RTX 4090 Laptop GPU"]),
        "GH100": (90, ["2330 H100 SXM5 80GB"]),
        "GB100": (100, ["2900 GB100"]),
    }
