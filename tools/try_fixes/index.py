"""What package indexes have, for each Python and system: asked once, then kept in a file.

PyPI is asked (PEP 691), and the metadata of a wheel are read where its dependencies matter.
PyTorch's own indexes are answered from `rules/tables/`, whose tests compare them with the wheels.
"""

from __future__ import annotations

import contextlib
import email
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from attn_doctor.wheels.archive import content, open_archive
from attn_doctor.wheels.ranges import RemoteFile

#: Minor releases of Python 3 that are looked at.
MINORS = range(8, 16)
PYPI = "https://pypi.org/simple/"
#: Packages whose place in the environment a fix must not change unasked.
KEPT = ("torch", "triton")
_PLATFORMS = (
    ("linux-x86_64", re.compile(r"(many)?linux.*_x86_64")),
    ("linux-aarch64", re.compile(r"(many)?linux.*_aarch64")),
    ("windows-x86_64", re.compile(r"win_amd64")),
    ("macos-arm64", re.compile(r"macosx_.*_(arm64|universal2)")),
)


class Release(NamedTuple):
    """One release of a package, without yanked files."""

    version: str
    wheels: dict[str, list[int]]
    """Minor releases of Python 3 by platform; `any` is a platform."""
    source: list[int]
    """Those that a source distribution allows."""

    def fits(self, platform: str, minor: int) -> bool:
        """A wheel is for this system and Python."""
        return any(minor in self.wheels.get(one, ()) for one in (platform, "any"))


class Answers:
    """Answers of PyPI. With `ask=False` those of the file `path` are given, and no others."""

    def __init__(self, path: Path, *, ask: bool = True) -> None:
        self.path = path
        self.ask = ask
        kept = {} if ask else json.loads(path.read_text("utf-8"))
        self._releases = {
            name: [*_unfolded(rows)] for name, rows in kept.get("releases", {}).items()
        }
        self._needs: dict[str, list[str]] = kept.get("needs", {})

    def keep(self) -> None:
        """Write what was asked, one package a line."""
        tables: dict[str, dict[str, Any]] = {
            "releases": {name: _folded(found) for name, found in self._releases.items()},
            "needs": self._needs,
        }
        parts = []
        for key, table in tables.items():
            rows = (f"{json.dumps(name)}: {json.dumps(table[name])}" for name in sorted(table))
            parts.append(f'"{key}": {{\n' + ",\n".join(rows) + "\n}")
        self.path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")

    def has(self, name: str) -> bool:
        """Whether there is an answer about a package; a rule may be newer than those kept."""
        return self.ask or name in self._releases

    def releases(self, name: str) -> list[Release]:
        """Return all releases, the newest first; empty for a package that does not exist.

        Raises `LookupError` for one that was not asked about and must not be.
        """
        if name not in self._releases:
            if not self.ask:
                raise LookupError(f"no answer about {name} is stored")
            self._releases[name] = _asked(name)
        return self._releases[name]

    def needs(self, name: str, version: str) -> list[str]:
        """Return what a release requires of `KEPT` by its metadata; empty if that is not known."""
        key = f"{name}=={version}"
        if key not in self._needs:
            if not self.ask:
                return []
            self._needs[key] = _requirements(name, version)
        return self._needs[key]


def _folded(found: Iterable[Release]) -> list[list[Any]]:
    """Releases as they are kept: those in a row with the same files share one entry."""
    rows = groupby(found, key=lambda one: (one.wheels, one.source))
    return [[wheels, source, [one.version for one in same]] for (wheels, source), same in rows]


def _unfolded(rows: Iterable[Any]) -> Iterator[Release]:
    for wheels, source, versions in rows:
        yield from (Release(version, wheels, source) for version in versions)


def newest(
    answers: Answers, name: str, specifier: str, platform: str, minor: int, *, pre: bool
) -> tuple[str, str]:
    """The release that pip takes, and how: `wheel`, `source`, or both texts empty if none fits."""
    accepted = SpecifierSet(specifier)
    found = [
        one
        for one in answers.releases(name)
        if accepted.contains(one.version, prereleases=True)
        and (one.fits(platform, minor) or minor in one.source)
    ]
    final = [one for one in found if not Version(one.version).is_prerelease]
    best = next(iter(found if pre or not final else final), None)
    if best is None:
        return "", ""
    return best.version, "wheel" if best.fits(platform, minor) else "source"


def _asked(name: str) -> list[Release]:
    """Every release of the index's page of a package, the newest first."""
    try:
        page = _json(f"{PYPI}{name}/")
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return []
    found: dict[Version, Release] = {}
    for file in page["files"]:
        if file.get("yanked"):
            continue
        try:
            version, wheels = _file(file["filename"])
        except (InvalidVersion, InvalidWheelFilename, ValueError):
            continue
        asked = SpecifierSet(file.get("requires-python") or "")
        allowed = {minor for minor in MINORS if asked.contains(f"3.{minor}.99")}
        row = found.setdefault(version, Release(str(version), {}, []))
        if wheels is None:
            row.source.extend(sorted(allowed - {*row.source}))
        for platform, minors in (wheels or {}).items():
            there = row.wheels.setdefault(platform, [])
            there.extend(sorted((minors & allowed) - {*there}))
    newest_first = (found[version] for version in sorted(found, reverse=True))
    return [
        Release(one.version, {key: sorted(one.wheels[key]) for key in one.wheels}, one.source)
        for one in newest_first
        if one.wheels or one.source
    ]


def _file(name: str) -> tuple[Version, dict[str, set[int]] | None]:
    """The version of a file, and the Pythons of a wheel by platform; None for a source archive."""
    if not name.endswith(".whl"):
        return parse_sdist_filename(name)[1], None
    _, version, _, tags = parse_wheel_filename(name)
    found: dict[str, set[int]] = {}
    for tag in tags:
        match = re.fullmatch(r"(cp|py)3(\d*)", tag.interpreter)
        platform = _platform(tag.platform)
        if match is None or not platform:
            continue
        first = int(match[2] or 0)
        later = match[1] == "py" or tag.abi == "abi3"
        fitting = {one for one in MINORS if one == first or (later and one > first)}
        # `cp313t` is another ABI than `cp313`.
        if not tag.abi.endswith("t"):
            found[platform] = found.get(platform, set()) | fitting
    return version, found


def _platform(tag: str) -> str:
    if tag == "any":
        return "any"
    return next((name for name, pattern in _PLATFORMS if pattern.fullmatch(tag)), "")


def _requirements(name: str, version: str) -> list[str]:
    """The lines of a release's metadata about `KEPT`; empty without a wheel that can be read."""
    for file in _json(f"{PYPI}{name}/")["files"]:
        with contextlib.suppress(InvalidVersion, InvalidWheelFilename, ValueError):
            found, wheels = _file(file["filename"])
            if wheels and str(found) == version:
                lines = email.message_from_string(_metadata(file["url"]))
                return [*_about(lines.get_all("Requires-Dist", []))]
    return []


def _metadata(url: str) -> str:
    """The metadata of a wheel, of which some kilobytes are fetched. Raises `WheelError`."""
    archive = open_archive(RemoteFile(url, limit=8 << 20))
    info = next(one for one in archive.infolist() if one.filename.endswith(".dist-info/METADATA"))
    return content(archive, info).decode("utf-8", "replace")


def _about(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        try:
            if Requirement(line).name in KEPT:
                yield line
        except InvalidRequirement:
            continue


@cache
def _json(url: str) -> Any:
    accept = {"Accept": "application/vnd.pypi.simple.v1+json"}
    asked = urllib.request.Request(url, headers=accept)  # noqa: S310 (its address is above)
    with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310
        return json.load(answer)
