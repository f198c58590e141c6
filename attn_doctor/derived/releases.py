"""Looks up releases in the tables of `rules/tables/`.

A table ends at the newest release that was known when it was written. A newer release, a nightly,
and a build of a vendor or of the user have no row: `Unknown` gives the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from attn_doctor.facts import Facts

Tables = Mapping[str, Any]
Row = Mapping[str, Any]


class Unknown(Struct, frozen=True):
    """Why a derived fact is unknown, in place of its value."""

    reason: str


@cache
def parts(version: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version: `2.11.0+cu130` is 2, 11, 0."""
    plain = version.partition("+")[0]
    if all(map(str.isdecimal, plain.split("."))):  # as nearly always
        return tuple(int(one[:9]) for one in plain.split("."))
    if not plain[:1].isdecimal():
        return ()
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(one[:9]) for one in numbers[0].split(".")) if numbers is not None else ()


def post(version: str) -> int:
    """Return the number of a post-release: `2.8.3.post2` is 2, `2.8.3` is 0."""
    found = re.search(r"\.post(\d{1,9})", version)
    return int(found[1]) if found is not None else 0


@cache
def series(version: str | None) -> str | None:
    """Return the major and minor part of a version, such as `2.11`."""
    numbers = parts(version or "")
    return f"{numbers[0]}.{numbers[1]}" if len(numbers) > 1 else None


def major(version: str | None) -> int | None:
    """Return the first number of a version."""
    numbers = parts(version or "")
    return numbers[0] if numbers else None


def tag(cuda: str) -> str:
    """Return a CUDA version as wheel indexes write it: `13.0` is `cu130`."""
    return "cu" + "".join(map(str, parts(cuda)[:2]))


def is_release(version: str) -> bool:
    """Whether it is a final version, not an alpha, beta, candidate or development build."""
    plain = version.partition("+")[0]
    if all(map(str.isdecimal, plain.split("."))) and "\n" not in version:
        return True
    return re.fullmatch(r"\d+(\.\d+)*(\.?post\d+)?(\+.*)?", version) is not None


def find(table: Row, minor: str | None) -> Row | None:
    """Return the row of a minor release."""
    rows: list[Row] = table["release"]
    return next((row for row in rows if row["minor"] == minor), None)


def torch_release(facts: Facts, tables: Tables) -> Row | Unknown | None:
    """Return the row of the installed torch; None without torch or its version."""
    version = facts.torch.version
    if not facts.torch.installed or version is None:
        return None
    if not is_release(version):
        return Unknown(f"torch {version} is not a release of PyTorch")
    row = find(tables["torch"], series(version))
    if row is not None:
        return row
    newest = str(tables["torch"]["newest"])
    newer = parts(version) > parts(newest)
    end = f"end at {newest}" if newer else f"begin at {tables['torch']['release'][0]['minor']}"
    return Unknown(f"torch is {version}, and the tables of this attn-doctor {end}")


def all_of(*values: bool | None) -> bool | None:
    """Return False if one is false, else None if one is unknown, else True."""
    if any(value is False for value in values):
        return False
    return None if any(value is None for value in values) else True
