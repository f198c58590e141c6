"""Write rules/tables/sdpa.toml: models of Transformers with and without torch's own attention.

    python tools/sdpa.py WHEEL          write the table
    python tools/sdpa.py WHEEL --check  exit with 1 if it differs

WHEEL is one of Transformers (`pip download --no-deps transformers==5.23.0`). It is read, never
installed.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from attn_doctor.configs.transformers_sdpa import Source

TABLE = Path(__file__).parents[1] / "rules" / "tables" / "sdpa.toml"
HEAD = """\
# Folders of Transformers' models whose classes all have sdpa, and those of which none has, which
# run eager without a setting. Folders that differ from class to class are left out.
# Written by `python tools/sdpa.py WHEEL`.
schema   = 1
checked  = {day}
source   = "https://github.com/huggingface/transformers/tree/v{release}/src/transformers/models"
release  = "{release}"
"""


def table(wheel: Path) -> str:
    """The table's text."""
    archive = zipfile.ZipFile(wheel)
    names = {*archive.namelist()}

    def text(path: str) -> str | None:
        name = f"transformers/{path}"
        return archive.read(name).decode() if name in names else None

    several = sorted({one.split("/")[2] for one in names if one.startswith("transformers/models/")})
    source = Source(text, lambda: several)
    said = {one: source.of_folder(one) for one in several}
    lines = [HEAD.format(day=date.today(), release=wheel.name.split("-")[1])]
    for key, value in (("with", True), ("without", False)):
        lines.append(f"{key} = [")
        lines += [f'    "{one}",' for one in several if said[one] is value]
        lines.append("]")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write or compare the table."""
    wheels = [one for one in arguments if one != "--check"]
    if len(wheels) != 1:
        sys.stderr.write(f"{__doc__}")
        return 2
    new = table(Path(wheels[0]))
    if "--check" in arguments:
        old = TABLE.read_text(encoding="utf-8")
        plain = [[x for x in one.splitlines() if "checked" not in x] for one in (old, new)]
        return int(plain[0] != plain[1])
    TABLE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
