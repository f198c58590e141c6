"""Writes `rules/tables/pythons.toml`: the versions of Python that each release can be installed on.

Reads the index pages of PyPI (PEP 691). Nothing is downloaded. Run it when releases come out.

    python tools/python_table.py            write the table
    python tools/python_table.py --check    exit 1 if the table differs
"""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections import defaultdict
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

TABLE = Path(__file__).parent.parent / "rules" / "tables" / "pythons.toml"
#: The packages that fixes install by a version.
PACKAGES = (
    "torch", "torchvision", "torchaudio", "torchao", "triton", "xformers", "flash-attn",
    "sageattention", "diffusers", "transformers", "accelerate", "kernels", "finetrainers",
    "flash-attn-4", "nvidia-cutlass-dsl", "flashinfer-python", "flash-linear-attention",
)  # fmt: skip
#: The minor releases of Python 3 that are looked at.
MINORS = range(7, 16)
HEAD = """\
# The versions of Python that releases on PyPI can be installed on, for Linux.
#
# since  from this release on: the oldest Python, and the newest one if wheels alone are published
# pure   its newest release has a file for every system, so that this is valid for all of them
#
# Written by tools/python_table.py from the pages of the index: `requires-python` of the files, and
# the tags of the wheels where a release has no source distribution. Prereleases are left out where
# there are others.
"""


class Span(NamedTuple):
    """The minor releases of Python 3 with a file of one release."""

    oldest: int
    newest: int
    """The last of `MINORS` if there is no limit."""


@cache
def page(name: str) -> Any:
    """Return PyPI's page of a package."""
    asked = urllib.request.Request(
        f"https://pypi.org/simple/{name}/",
        headers={"Accept": "application/vnd.pypi.simple.v1+json"},
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310 (its address is above)
        return json.load(answer)


def spans(name: str) -> dict[Version, Span]:
    """Return the Pythons of each release that is not withdrawn, from the oldest release on."""
    found: dict[Version, set[int]] = defaultdict(set)
    for file in page(name)["files"]:
        try:
            release, minors = _minors(file["filename"])
        except (InvalidVersion, InvalidWheelFilename, InvalidSdistFilename):
            continue
        if file.get("yanked"):
            continue
        asked = SpecifierSet(file.get("requires-python") or "")
        found[release] |= {minor for minor in minors if asked.contains(f"3.{minor}.99")}
    there = [one for one in sorted(found) if found[one]]
    final = [one for one in there if not one.is_prerelease]
    return {one: Span(min(found[one]), max(found[one])) for one in final or there}


def pure(name: str, newest: Version) -> bool:
    """Return whether a release has a wheel for every system."""
    names = (file["filename"] for file in page(name)["files"])
    return any(one.endswith("-any.whl") and _minors(one)[0] == newest for one in names)


def _minors(name: str) -> tuple[Version, set[int]]:
    """The release of a file, and the minor releases of Python that its tags allow on Linux."""
    if not name.endswith(".whl"):
        return parse_sdist_filename(name)[1], {*MINORS}
    _, release, _, tags = parse_wheel_filename(name)
    minors: set[int] = set()
    for tag in tags:
        if tag.platform != "any" and "linux" not in tag.platform:
            continue
        match = re.fullmatch(r"(cp|py)3(\d*)", tag.interpreter)
        if match is None:
            continue
        first = int(match[2] or 0)
        later = match[1] == "py" or tag.abi == "abi3"
        minors |= {one for one in MINORS if one == first or (later and one > first)}
    return release, minors


def rows(found: dict[Version, Span]) -> list[list[str]]:
    """Return the releases from which on the span is another one."""
    listed: list[list[str]] = []
    before = None
    for release, span in found.items():
        if span != before:
            newest = "" if span.newest == MINORS[-1] else f"3.{span.newest}"
            listed.append([str(release), f"3.{span.oldest}", newest])
        before = span
    return listed


def table(day: str) -> str:
    """Return the table as TOML."""
    lines = [HEAD + f"schema  = 1\nchecked = {day}"]
    for name in PACKAGES:
        found = spans(name)
        listed = ",\n    ".join(json.dumps(row) for row in rows(found))
        everywhere = "pure   = true\n" if pure(name, max(found)) else ""
        lines.append(
            f'[[package]]\nname   = "{name}"\n{everywhere}since  = [\n    {listed},\n]\n'
            f'source = "https://pypi.org/simple/{name}/"'
        )
    return "\n\n".join(lines) + "\n"


def main() -> int:
    """Write the table, or compare it."""
    before = TABLE.read_text(encoding="utf-8") if TABLE.exists() else ""
    if "--check" in sys.argv[1:]:
        day = re.search(r"checked = (\S+)", before)
        return int(table(day[1] if day else "") != before)
    TABLE.write_text(table(f"{datetime.now(timezone.utc):%Y-%m-%d}"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
