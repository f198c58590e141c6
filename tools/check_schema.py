"""Writes docs/check.schema.json, by which programs can read `check --format json`.

Run it after a change to facts, findings or the matrix: `python tools/check_schema.py`. A test fails
until the file is up to date.
"""

from __future__ import annotations

import json
from pathlib import Path

from attn_doctor.render.findings.json_schema import schema

FILE = Path(__file__).parents[1] / "docs" / "check.schema.json"


def text() -> str:
    """Compose the text of docs/check.schema.json."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8", newline="\n")
