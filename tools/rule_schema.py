"""Writes rules/rule.schema.json, by which editors complete and check rule files.

Run it after a change to the shape of a rule: `python tools/rule_schema.py`. A test fails until the
file is up to date.
"""

from __future__ import annotations

import json
from pathlib import Path

from attn_doctor.rulebook.rule_shape import schema

FILE = Path(__file__).parents[1] / "rules" / "rule.schema.json"


def text() -> str:
    """Compose the text of rules/rule.schema.json."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8", newline="\n")
