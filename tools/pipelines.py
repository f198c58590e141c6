"""Write rules/tables/pipelines.toml: pipelines of Diffusers, their models, and the dispatcher.

    python tools/pipelines.py FOLDER          write the table
    python tools/pipelines.py FOLDER --check  exit with 1 if it differs

FOLDER contains wheels of Diffusers (`pip download --no-deps diffusers==0.42.1`). They are read,
never installed. Releases are those of the wheels; pipelines are those of the newest one.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from packaging.version import Version

from attn_doctor.configs.diffusers.pipelines import Files, Source

TABLE = Path(__file__).parents[1] / "rules" / "tables" / "pipelines.toml"
HEAD = """\
# Pipelines of Diffusers with the classes of their denoising models, and the first release in which
# a model's code calls the attention dispatcher; "" for never. `set_attention_backend` has no effect
# on the others. `chooses`: models that name FlexAttention for a part of their attention themselves.
# Written by `python tools/pipelines.py FOLDER`.
schema   = 1
checked  = {day}
source   = "https://github.com/huggingface/diffusers/tree/v{newest}/src/diffusers/pipelines"
compared = [{compared}]
"""


def source(wheel: Path) -> Source:
    """The source in a wheel."""
    archive = zipfile.ZipFile(wheel)
    names = {*archive.namelist()}

    def text(path: str) -> str | None:
        name = f"diffusers/{path}"
        return archive.read(name).decode() if name in names else None

    files: Files = text
    return Source(files)


def table(folder: Path) -> str:
    """The table's text."""
    wheels = {one.name.split("-")[1]: one for one in folder.glob("diffusers-*.whl")}
    versions = sorted(wheels, key=Version)
    sources = {one: source(wheels[one]) for one in versions}
    newest = sources[versions[-1]]
    pipelines = {one: newest.classes(one) for one in newest.pipelines()}
    since = {
        model: next((_minor(one) for one in versions if sources[one].routed(model)), "")
        for model in sorted({each for models in pipelines.values() for each in models})
    }
    compared = ", ".join(f'"{one}"' for one in versions)
    lines = [HEAD.format(day=date.today(), newest=versions[-1], compared=compared), "[pipelines]"]
    for name, models in pipelines.items():
        if models:
            lines.append(f"{name} = [{', '.join(f'{chr(34)}{one}{chr(34)}' for one in models)}]")
    lines += ["", "[models]", *(f'{name} = "{first}"' for name, first in since.items())]
    own = [one for one in since if newest.chooses(one)]
    head = lines[0] + f"chooses  = [{', '.join(f'{chr(34)}{one}{chr(34)}' for one in own)}]\n"
    return "\n".join([head, *lines[1:]]) + "\n"


def _minor(version: str) -> str:
    """`0.35.2` → `0.35`: what is routed does not change within it."""
    return ".".join(version.split(".")[:2])


def main(arguments: Sequence[str]) -> int:
    """Write the table, or compare it."""
    text = table(Path(arguments[0]))
    if "--check" not in arguments:
        TABLE.write_text(text, "utf-8")
        return 0

    def plain(one: str) -> list[str]:
        return [line for line in one.splitlines() if not line.startswith("checked")]

    return int(plain(text) != plain(TABLE.read_text("utf-8")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
