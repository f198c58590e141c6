"""Writes rules/tables/wheels/mjun0812.tsv from the list of files that its repository keeps.

    python tools/ready_wheels.py CLONE/doc/packages.md > rules/tables/wheels/mjun0812.tsv

The repository is mjun0812/flash-attention-prebuild-wheels. Of several builds of one file the one of
the newest release is listed, and of flash-attn only the newest version.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path
from urllib.parse import unquote

_LINK = re.compile(r"releases/download/(v[\d.]+)/([^)\s]+\.whl)")
_FILE = re.compile(
    r"(flash_attn(?:_3)?)-([^+]+)\+cu(\d+)torch([\d.]+)(git\w+)?-(cp\d+-\w+)-(.*)\.whl"
)
_WANTED = {"flash_attn": "2.8.3", "flash_attn_3": "3.0.0"}


def main() -> None:
    """Read the list named on the command line and print the table."""
    newest: dict[tuple[str, ...], str] = {}
    for tag, name in _LINK.findall(Path(sys.argv[1]).read_text("utf-8")):
        match = _FILE.fullmatch(unquote(name))
        if match is None or _WANTED[match[1]] != match[2]:
            continue
        package, version, cuda, torch, commit, python, platform = match.groups()
        key = (package, version, cuda, torch, commit or "", platform, python)
        newest[key] = max(newest.get(key, tag), tag, key=_numbers)
    rows: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, tag in newest.items():
        made_with: tuple[str, ...] = (tag, *name[:-1])
        rows[made_with].append(name[-1])
    print(
        "# Made by tools/ready_wheels.py; rules/tables/wheels/README.md says what the columns are."
    )
    for line in sorted(rows, key=_order):
        tag, package, version, cuda, torch, commit, platform = line
        pythons = ",".join(sorted(rows[line], key=_numbers))
        print(
            package.replace("_", "-"),
            version,
            tag,
            torch + commit,
            cuda,
            platform,
            pythons,
            sep="\t",
        )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in re.findall(r"\d+", text))


def _order(row: tuple[str, ...]) -> tuple[object, ...]:
    return (row[1], _numbers(row[4]), _numbers(row[3]), row[6], _numbers(row[0]))


if __name__ == "__main__":
    main()
