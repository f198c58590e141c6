"""Writes docs/assets/check.svg: what a terminal shows of `attn-doctor check` on a recorded machine.

Run it after a change of that output: `python tools/picture.py`. A test fails until the picture is
up to date.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "assets" / "check.svg"
MACHINE = "debian-torch-2.13-cpu-xformers-sage1"
#: Columns of the picture.
_WIDTH = 100


def picture() -> str:
    """The output of `attn-doctor check` on the recorded machine, as SVG without foreign fonts."""
    facts = ROOT / "tests" / "machines" / MACHINE / "facts.json"
    ended = subprocess.run(
        [sys.executable, "-m", "attn_doctor", "check", "--facts", facts],
        env={
            **{name: text for name, text in os.environ.items() if name != "NO_COLOR"},
            "FORCE_COLOR": "1",
            "COLUMNS": str(_WIDTH),
            "PYTHONIOENCODING": "utf-8",
        },
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if ended.returncode != 1:  # problems are found there
        raise SystemExit(ended.stderr.decode())
    console = Console(record=True, width=_WIDTH, file=io.StringIO())
    console.print(Text.from_ansi(ended.stdout.decode()))
    svg = console.export_svg(title="attn-doctor check", theme=MONOKAI, unique_id="check")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def without_times(svg: str) -> str:
    """The picture without what differs from run to run, and the number of rules."""
    return re.sub(r"\(\d+&#160;rules&#160;for&#160;machines,&#160;[\d.]+&#160;s\)", "", svg)


if __name__ == "__main__":
    FILE.write_text(picture(), "utf-8", newline="\n")
