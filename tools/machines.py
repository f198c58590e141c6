"""Writes the expected results of the recorded machines again, after an intended change.

    python tools/machines.py [NAME…]

Each folder of `tests/machines` holds the answers of one machine (`host.json`, made by
`attn-doctor report --record`), and the resulting facts and findings. Read the difference
before you commit it: users of that machine will see that change.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from attn_doctor.recording import expected

MACHINES = Path(__file__).resolve().parent.parent / "tests" / "machines"


def main(names: list[str]) -> None:
    """Rewrite `facts.json` and `findings.toml` of the named machines, or of all."""
    for folder in sorted(MACHINES.iterdir()):
        if names and folder.name not in names:
            continue
        answers = json.loads((folder / "host.json").read_text("utf-8"))
        for name, text in expected(answers, examined(folder)).items():
            (folder / name).write_text(text, "utf-8")


def examined(folder: Path) -> str:
    """The interpreter that was named with `--python`, from the first line of `findings.toml`."""
    first = (folder / "findings.toml").read_text("utf-8").splitlines()[0]
    return str(json.loads(first.removeprefix("examined = ")))


if __name__ == "__main__":
    main(sys.argv[1:])
