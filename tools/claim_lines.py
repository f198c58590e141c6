"""Opens the files of wheels that the claims of rules name, and prints what is not there.

    python tools/claim_lines.py
    python tools/claim_lines.py flash/dtype triton/c-compiler-missing

A line is printed for a release that the index lacks, a file that no wheel of the release has, a
line after the end of its file or without text, and a text that a claim says is absent. Whether the
lines prove the claim is for a reader. Wheels are read in parts. Binary files are left out, and so
are releases without wheels.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.request
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

sys.path.insert(0, str(Path(__file__).parents[1]))

from attn_doctor.rulebook.rule_files import read_folder
from attn_doctor.wheels.archive import content, open_archive
from attn_doctor.wheels.ranges import RemoteFile, WheelError

RULES = Path(__file__).parents[1] / "rules"
_SOURCE = re.compile(
    r"(?P<package>[\w.-]+)==(?P<version>\S+) (?P<path>[\w./+-]+)"
    r"(?::(?P<lines>\d[\d,-]*)|(?::? without (?P<absent>.+))|(?P<gone>,? (?:absent|missing)$))?"
)
#: Files whose lines can be read.
_TEXT = (".py", ".c", ".cpp", ".cu", ".cuh", ".h", ".jinja", ".md", ".yaml", "METADATA")
#: Bytes of a file that are read, and of a wheel that are fetched.
_MOST, _FETCHED = 4 << 20, 64 << 20
#: A line that can prove nothing.
_BARE = re.compile(r"[\s()\[\]{},;:\"']*")


class Source(NamedTuple):
    """A place in a wheel that a claim names."""

    rule: str
    package: str
    version: Version
    path: str
    lines: tuple[int, ...] = ()
    """The last line of each part that is named, and of a single line that line."""
    single: tuple[int, ...] = ()
    said: str = ""
    """Words after the path, which may be in the file."""
    absent: str = ""
    gone: bool = False
    """The release is said not to have the file."""


def sources(claims: Iterable[tuple[str, str]]) -> Iterator[Source]:
    """The places that can be opened, of pairs of a rule and a claim's source."""
    for rule, text in claims:
        match = _SOURCE.match(text)
        if match and match["path"].endswith(_TEXT):
            parts = (match["lines"] or "").strip(",-").split(",")
            ends = tuple(int(part.rpartition("-")[2]) for part in parts if part)
            single = tuple(int(part) for part in parts if part.isdigit())
            absent = (match["absent"] or "").strip('"`')
            version = Version(Version(match["version"]).public)
            place = (rule, match["package"], version, match["path"])
            said = text[match.end("path") :].lstrip(":").strip().strip('"`')
            yield Source(*place, ends, single, said, absent, gone=match["gone"] is not None)


def fault(source: Source, text: str) -> str:
    """What is wrong with a place, in the text of its file; empty if nothing is."""
    if source.gone:
        return "the file is there"
    lines = text.splitlines()
    for number in source.lines:
        if number > len(lines):
            return f"line {number} is after the end, line {len(lines)}"
    for number in source.single:
        if _BARE.fullmatch(lines[number - 1]):
            return f"line {number} has no text"
    if source.absent and source.absent in text:
        return f"{source.absent} is in it"
    return ""


def faults(places: Iterable[Source]) -> Iterator[str]:
    """A sentence for each place with a fault; a release is opened once."""
    releases: dict[tuple[str, Version], list[Source]] = defaultdict(list)
    for place in places:
        releases[place.package, place.version].append(place)
    for (package, version), named in sorted(releases.items()):
        try:
            wheels = _wheels(package, version)
            texts = _texts(wheels, {place.path for place in named})
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            yield f"{package}=={version}: {error}"
            continue
        for place in named if wheels else ():
            text = texts.get(place.path)
            missing = "" if place.gone else "no wheel has this file"
            wrong = missing if text is None else fault(place, text)
            if wrong:
                yield f"{place.rule}: {package}=={version} {place.path}: {wrong}"


def texts(package: str, version: Version, paths: set[str]) -> dict[str, str]:
    """The text of each of these files of a release that a wheel has."""
    return _texts(_wheels(package, version), paths)


def _wheels(package: str, version: Version) -> list[str]:
    """The addresses of the wheels of a release, those for Linux first."""
    request = urllib.request.Request(
        f"https://pypi.org/simple/{package}/",
        headers={"Accept": "application/vnd.pypi.simple.v1+json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 (a fixed address)
        files = json.load(answer)["files"]
    urls = [file["url"] for file in files if _version(file["filename"]) == version]
    if not urls:
        raise WheelError("the index has no such release")
    wheels = [url for url in urls if url.endswith(".whl")]
    return sorted(wheels, key=lambda url: ("linux" not in url, "aarch64" in url, url))


def _version(filename: str) -> Version | None:
    try:
        if filename.endswith(".whl"):
            return parse_wheel_filename(filename)[1]
        return parse_sdist_filename(filename)[1]
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None


def _texts(urls: list[str], paths: set[str]) -> dict[str, str]:
    """The text of each file, from the first wheel that has it; at most four wheels are opened."""
    found: dict[str, str] = {}
    for url in urls[:1] + urls[1:-1:8][:2] + urls[1:][-1:]:
        missing = paths - found.keys()
        if not missing:
            break
        archive = open_archive(RemoteFile(url, limit=_FETCHED))
        for info in archive.infolist():
            for path in missing:
                named = info.filename == path or info.filename.endswith(f".dist-info/{path}")
                if named and info.file_size <= _MOST:
                    found[path] = content(archive, info).decode("utf-8", "replace")
    return found


def main() -> int:
    """Print the faults; the exit code is 1 if there are some."""
    parser = argparse.ArgumentParser(description="Open the wheels that claims name.")
    parser.add_argument("rule", nargs="*", help="only these rules")
    asked = parser.parse_args().rule
    claims = (
        (rule.id, source)
        for rule in read_folder(RULES)
        if not asked or rule.id in asked
        for claim in rule.claims
        if claim.how == "wheel"
        for source in claim.source
    )
    found = 0
    for line in faults(sources(claims)):
        print(line, flush=True)
        found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
