"""The posted failures of `tests/logs/`, and what `explain` answers to each, worked out once."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from attn_doctor.explain.engine import explain
from attn_doctor.explain.explanation import Explanation
from attn_doctor.rulebook import library

LOGS = Path(__file__).parent.parent / "logs"
#: The cases of each file.
FILES: dict[str, list[dict[str, Any]]] = {
    file.stem: [
        json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()
    ]
    for file in sorted(LOGS.glob("*.jsonl"))
}
CASES = [case for cases in FILES.values() for case in cases]
#: Those with an answer; `test_logs.py` holds that the others have none.
EXPLAINED = [case for case in CASES if case["cause"] != "none" and "missed" not in case]


@cache
def answer(log: str) -> Explanation:
    """What `explain` says of a file with this log."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "failure.log")
        file.write_text(log, encoding="utf-8")
        return explain([str(file)], library.load())
