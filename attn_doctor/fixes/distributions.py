"""Lists the distributions of an environment and the files that belong to them, from metadata.

Only names of folders and RECORD files are read, so that this also works in an environment whose
interpreter or installer no longer starts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from attn_doctor.files import DATA, read_bytes, read_text
from attn_doctor.requirement import normal_name

#: pip renames what it is removing, so that it begins with `~`.
_INFO = re.compile(
    r"(?P<name>[A-Za-z0-9][^-]*)-(?P<version>[^-]+?)(?:-py[\d.]+)?\.(?:dist|egg)-info"
)


class Installed(Struct, frozen=True):
    """One distribution."""

    version: str
    mark: str
    """Differs after a new installation, even of the same version."""


class Change(Struct, frozen=True):
    """A distribution that was added, removed or changed. `old` or `new` is empty if absent."""

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
    """Return the distributions in some site-packages folders, by normalised name."""
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
                found.setdefault(normal_name(match["name"]), one)
    return found


def installed_by(folders: Iterable[str]) -> dict[str, str]:
    """Return what installed each distribution, by INSTALLER: `pip`, `uv`, `conda` or empty."""
    found: dict[str, str] = {}
    for folder in folders:
        for entry in os.listdir(folder) if os.path.isdir(folder) else ():
            if match := _INFO.fullmatch(entry):
                try:
                    text = read_text(os.path.join(folder, entry, "INSTALLER"), 1 << 10)
                    text = text.strip().lower()
                except OSError:
                    text = ""
                found.setdefault(normal_name(match["name"]), text)
    return found


def compared(old: Mapping[str, Installed], new: Mapping[str, Installed]) -> list[Change]:
    """Return the changes from `old` to `new`, by name."""
    nothing = Installed("", "")
    return [
        Change(name, old.get(name, nothing).version, new.get(name, nothing).version)
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def owners(folder: str, base: str) -> dict[str, list[str]]:
    """Return the distributions of each file named by metadata in `folder`, by absolute path.

    Several may have the same file; then the last one that was installed has written it.
    `base` is the folder that the metadata was installed in; `folder` may be a copy of it.
    """
    import csv

    found: dict[str, list[str]] = {}
    for name, info in sorted(info_folders(folder).items()):
        try:
            text = read_text(os.path.join(info, "RECORD"), DATA)
            for row in csv.reader(text.splitlines()):
                if row:
                    found.setdefault(os.path.normpath(os.path.join(base, row[0])), []).append(name)
        except (OSError, csv.Error):
            continue
    return found


def info_folders(folder: str) -> dict[str, str]:
    """Return the path of each distribution's metadata in a site-packages folder, by name."""
    try:
        entries = os.listdir(folder)
    except OSError:
        return {}
    return {
        normal_name(match["name"]): os.path.join(folder, entry)
        for entry in entries
        if (match := _INFO.fullmatch(entry))
    }


def info_name(entry: str) -> str:
    """Return the distribution whose metadata is in a folder of this name; empty if none is."""
    match = _INFO.fullmatch(entry)
    return normal_name(match["name"]) if match else ""


def _mark(info: str) -> str:
    import hashlib

    mark = hashlib.sha256()
    for name in ("RECORD", "direct_url.json", "INSTALLER"):
        try:
            mark.update(read_bytes(os.path.join(info, name), DATA))
        except OSError:
            mark.update(b"-")
    return mark.hexdigest()[:16]
