"""Write rules/tables/dispatcher.toml: the attention dispatcher of each release of Diffusers.

    python tools/dispatchers.py FOLDER          write the table
    python tools/dispatchers.py FOLDER --check  exit with 1 if it differs

FOLDER contains wheels of Diffusers (`pip download --no-deps diffusers==0.42.1`). They are read,
never installed. Releases with the same file are one row, under the first version.
"""

from __future__ import annotations

import sys
import zipfile
import zlib
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from packaging.version import Version

from attn_doctor.facts import Dispatcher
from attn_doctor.probes.installed.dispatcher_source import describe

TABLE = Path(__file__).parents[1] / "rules" / "tables" / "dispatcher.toml"
FILE = "diffusers/models/attention_dispatch.py"
HEAD = """\
# The attention dispatcher of each release of Diffusers, `models/attention_dispatch.py`.
#
# also     releases with the same file
# checksum size and CRC-32 of the file
# shared   digest of what every call goes through;  code  that of each backend
# `attn_doctor/probes/installed/dispatcher_source.py` says what these digests hold. A dispatcher
# that is not listed is compared with the newest listed one that is not newer.
# Written by `python tools/dispatchers.py FOLDER`.
schema  = 1
checked = {day}
source  = "https://github.com/huggingface/diffusers/blob/v{newest}/src/{file}"
"""


def checksum(content: bytes) -> str:
    """Size and CRC-32, as `Host.checksum` gives them."""
    return f"{len(content)}-{zlib.crc32(content):08x}"


def table(folder: Path, day: date | None = None) -> str:
    """The table's text."""
    wheels = {one.name.split("-")[1]: one for one in folder.glob("diffusers-*.whl")}
    rows: dict[str, tuple[list[str], Dispatcher]] = {}
    for version in sorted(wheels, key=Version):
        with zipfile.ZipFile(wheels[version]) as archive:
            if FILE not in archive.namelist():
                continue
            content = archive.read(FILE)
        name = checksum(content)
        if name not in rows:
            rows[name] = ([], describe(content.decode(), name))
        rows[name][0].append(version)
    newest = max(wheels, key=Version)
    head = HEAD.format(day=day or date.today(), newest=newest, file=FILE)
    return "\n".join([head, *(row_text(*row) for row in rows.values())])


def row_text(versions: Sequence[str], found: Dispatcher) -> str:
    """One row of the table. Raises `SystemExit` for a dispatcher of another form."""
    if found.names is None or found.codes is None:
        raise SystemExit(f"the dispatcher of {versions[0]} has another form; change its probe")
    also = ", ".join(f'"{one}"' for one in versions[1:])
    lines = [
        "[[release]]",
        f'version = "{versions[0]}"',
        *([f"also    = [{also}]"] if also else []),
        f'checksum = "{found.checksum}"',
        f'shared  = "{found.shared}"',
        "[release.code]",
        *(f'{name} = "{code}"' for name, code in zip(found.names, found.codes, strict=True)),
    ]
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str]) -> int:
    """Write the table, or compare it."""
    text = table(Path(arguments[0]))
    if "--check" not in arguments:
        TABLE.write_text(text, "utf-8")
        return 0

    def plain(one: str) -> list[str]:
        return [line for line in one.splitlines() if not line.startswith("checked")]

    same = plain(text) == plain(TABLE.read_text("utf-8"))
    sys.stdout.write("the table agrees\n" if same else "the table differs\n")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
