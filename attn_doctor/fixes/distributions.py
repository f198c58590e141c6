"""Which distributions an environment holds and which files belong to them, from their metadata.

Only names of folders and RECORD files are read, so that this also works in an environment whose
interpreter or installer no longer starts.
"""

from __future__ import annotations

import csv
import hashlib
import os
import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

_INFO = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+?)(?:-py[\d.]+)?\.(?:dist|egg)-info")


class Installed(Struct, frozen=True):
    """One distribution."""

    version: str
    mark: str
    """Changes when it is installed anew, even in the same version."""


class Change(Struct, frozen=True):
    """A distribution that came, went or changed. `old` or `new` is empty where there is none."""

    name: str
    old: str = ""
    new: str = ""

    @property
    def sign(self) -> str:
        """`+`, `-`, `~`, or `=` for the same version installed anew."""
        if not self.old or not self.new:
            return "-" if self.old else "+"
        return "~" if self.old != self.new else "="


def installed(folders: Iterable[str]) -> dict[str, Installed]:
    """The distributions in some site-packages folders, by normalised name."""
    found: dict[str, Installed] = {}
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for entry in names:
            if match := _INFO.fullmatch(entry):
                info = os.path.join(folder, entry)
                one = Installed(match["version"], _mark(info))
                found.setdefault(normal(match["name"]), one)
    return found


def installed_by(folders: Iterable[str]) -> dict[str, str]:
    """What installed each distribution, by its INSTALLER file: `pip`, `uv`, `conda`; else empty."""
    found: dict[str, str] = {}
    for folder in folders:
        for entry in os.listdir(folder) if os.path.isdir(folder) else ():
            if match := _INFO.fullmatch(entry):
                try:
                    with open(os.path.join(folder, entry, "INSTALLER"), encoding="utf-8") as file:
                        text = file.read().strip().lower()
                except (OSError, UnicodeDecodeError):
                    text = ""
                found.setdefault(normal(match["name"]), text)
    return found


def compared(old: Mapping[str, Installed], new: Mapping[str, Installed]) -> list[Change]:
    """What changed from `old` to `new`, by name."""
    nothing = Installed("", "")
    return [
        Change(name, old.get(name, nothing).version, new.get(name, nothing).version)
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def owners(folder: str) -> dict[str, str]:
    """For each file named in a RECORD below `folder`, the distribution; paths relative to it."""
    found: dict[str, str] = {}
    for entry in os.listdir(folder) if os.path.isdir(folder) else ():
        match = _INFO.fullmatch(entry)
        if match is None:
            continue
        name = normal(match["name"])
        try:
            with open(os.path.join(folder, entry, "RECORD"), newline="", encoding="utf-8") as file:
                for row in csv.reader(file):
                    if row:
                        found[os.path.normpath(row[0])] = name
        except (OSError, UnicodeDecodeError, csv.Error):
            continue
    return found


def normal(name: str) -> str:
    """A distribution's name in lower case with single hyphens, as PEP 503 has it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _mark(info: str) -> str:
    mark = hashlib.sha256()
    for name in ("RECORD", "direct_url.json", "INSTALLER"):
        try:
            with open(os.path.join(info, name), "rb") as file:
                mark.update(file.read())
        except OSError:
            mark.update(b"-")
    return mark.hexdigest()[:16]
