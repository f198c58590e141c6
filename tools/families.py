"""Finds the model families of SimpleTuner that call Diffusers' dispatcher, from its wheels.

    python tools/families.py record FOLDER     write tests/configs/simpletuner/families.json
    python tools/families.py compare FOLDER    compare it with rules/tables/families.toml; exit 1

FOLDER contains wheels of SimpleTuner and Diffusers (`pip download --no-deps simpletuner==4.8.0`).
They are read, never installed, by `attn_doctor/configs/simpletuner/source_code.py`.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

from attn_doctor.configs.diffusers.pipelines import Source as Diffusers
from attn_doctor.configs.simpletuner.source_code import MODELS, Source

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests" / "configs" / "simpletuner" / "families.json"


class Wheel:
    """The files of one wheel."""

    def __init__(self, path: Path) -> None:
        self.name, self.version = path.name.split("-")[:2]
        self._archive = zipfile.ZipFile(path)
        self.files = frozenset(self._archive.namelist())

    def text(self, path: str) -> str:
        """A file as text."""
        return self._archive.read(path).decode()


def source(wheel: Wheel, diffusers: Wheel) -> Source:
    """The source in a wheel, beside that of Diffusers."""

    def text(name: str) -> str | None:
        return wheel.text(name) if name in wheel.files else None

    def library(name: str) -> str | None:
        path = f"diffusers/{name}"
        return diffusers.text(path) if path in diffusers.files else None

    def names(folder: str) -> list[str]:
        below = [one for one in wheel.files if one.startswith(f"{folder}/") and one.endswith(".py")]
        return [one.removeprefix(f"{folder}/") for one in sorted(below)]

    return Source(text, names, Diffusers(library))


def floor(wheel: Wheel) -> Version:
    """The least Diffusers that a SimpleTuner asks for."""
    metadata = next(one for one in wheel.files if one.endswith(".dist-info/METADATA"))
    for line in wheel.text(metadata).splitlines():
        if line.startswith("Requires-Dist: diffusers"):
            asked = Requirement(line.partition(": ")[2])
            return max(
                (Version(one.version) for one in asked.specifier if one.operator == ">="),
                default=Version("0"),
            )
    return Version("0")


def record(folder: Path) -> dict[str, Any]:
    """What the wheels in a folder say, by SimpleTuner's version."""
    wheels = [Wheel(path) for path in sorted(folder.glob("*.whl"))]
    library = sorted(
        (one for one in wheels if one.name == "diffusers"), key=lambda one: Version(one.version)
    )
    found: dict[str, Any] = {}
    trainers = [one for one in wheels if one.name == "simpletuner"]
    for wheel in sorted(trainers, key=lambda one: Version(one.version)):
        least = floor(wheel)
        diffusers = next((one for one in library if Version(one.version) >= least), None)
        if diffusers is None:
            raise SystemExit(f"{folder}: no wheel of diffusers {least} or later")
        read = source(wheel, diffusers)
        families = sorted(
            path.split("/")[3]
            for path in wheel.files
            if path.startswith(MODELS) and path.endswith("/model.py") and path.count("/") == 4
        )
        ways = {one: read.way(one) for one in families}
        found[wheel.version] = {
            "diffusers": diffusers.version,
            "holds_sdpa": read.holds_sdpa,
            "kohaku": read.kohaku,
            "routed": {one: way for one, way in ways.items() if way},
            "packed": [one for one in families if read.packs(one)],
            "others": [one for one, way in ways.items() if not way],
        }
    return found


def compare(found: dict[str, Any]) -> list[str]:
    """Differences between what wheels say and the table, one sentence each."""
    from attn_doctor.configs.simpletuner.families import families, release

    differences = []
    for version, seen in found.items():
        for name in (*seen["routed"], *seen["others"]):
            family = families().get(name)
            if family is None:
                differences.append(f"{version}: the table has no {name}")
            elif family.routed_in(version) is not (name in seen["routed"]):
                routed = family.routed_in(version)
                differences.append(
                    f"{version}: {name}: the table says {routed}, the wheel does not"
                )
            elif family.packed_in(version) is not (name in seen["packed"]):
                differences.append(f"{version}: {name}: packed is {family.packed_in(version)}")
        tabled = release(version)
        differences += [
            f"{version}: {key}: the table says {getattr(tabled, key)}"
            for key in ("holds_sdpa", "kohaku")
            if getattr(tabled, key) is not seen[key]
        ]
    return differences


def main(arguments: Sequence[str]) -> int:
    """Run one of the commands."""
    if len(arguments) != 2 or arguments[0] not in ("record", "compare"):
        sys.stderr.write(f"{__doc__}\n")
        return 2
    found = record(Path(arguments[1]))
    if arguments[0] == "record":
        RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return 0
    differences = compare(found)
    text = "\n".join(differences) or f"{len(found)} releases agree with the table"
    sys.stdout.write(f"{text}\n")
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
