"""Recorded machines: the same answers must give the same facts and the same verdicts.

`tools/machines.py` works the expectations out anew after an intended change.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attn_doctor.recording import expected

MACHINES = sorted(path for path in (Path(__file__).parent / "machines").iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", MACHINES, ids=lambda folder: folder.name)
def test_a_recorded_machine_gives_the_same_results(folder: Path) -> None:
    answers = json.loads((folder / "host.json").read_text("utf-8"))
    findings = (folder / "findings.toml").read_text("utf-8")
    python = json.loads(findings.splitlines()[0].removeprefix("examined = "))
    now = expected(answers, python)
    assert now["findings.toml"] == findings
    assert json.loads(now["facts.json"]) == json.loads((folder / "facts.json").read_text("utf-8"))


def test_there_are_machines_with_and_without_gpu() -> None:
    names = {folder.name for folder in MACHINES}
    assert "h200-torch-2.11-cu130" in names
    assert len(names) >= 6
