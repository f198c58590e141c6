"""What the outside makes of the reports of a program's processes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from attn_doctor.worker.stub_gpu import report

REFUSED = {"kind": "read", "sentence": "a.py:3: no", "file": "a.py", "line": 3, "text": "x"}


def read_at(line: int) -> dict[str, object]:
    return {
        "kind": "read",
        "function": "cudaMemcpy",
        "what": "4 bytes of the GPU's memory were read",
        "file": "a.py",
        "line": line,
        "place": f"a.py:{line} (print(loss))",
    }


def put(folder: Path, pid: int, **fields: object) -> None:
    content = {"pid": pid, "refused": [], "reads": [], "launches": 2, "unknown": [], "notes": {}}
    (folder / f"guard-{pid}.json").write_text(json.dumps({**content, **fields}))


def test_a_guarded_process_that_only_prints(tmp_path: Path) -> None:
    put(tmp_path, 1, reads=[read_at(9)], notes={"untimed": 3}, unknown=["cudaFoo"])
    put(tmp_path, 2, reads=[read_at(9)])
    (tmp_path / "used-1").touch()
    verdict = report.read(str(tmp_path))
    assert verdict.refused == ()
    assert (verdict.processes, verdict.launches) == (2, 4)
    assert verdict.notes == (
        "a.py:9 (print(loss)): the GPU's memory was read, with nothing compiled after it",
        "cudaFoo was answered without a GPU",
        "untimed (3 times)",
    )


def test_one_refusal_refuses_all_and_is_reported_once(tmp_path: Path) -> None:
    put(tmp_path, 1)
    put(tmp_path, 2, refused=[REFUSED], reads=[read_at(3)])
    put(tmp_path, 3, refused=[REFUSED])
    verdict = report.read(str(tmp_path))
    assert verdict.refused == ("a.py:3: no",)
    assert verdict.notes == ()  # the read is in the refusal


def test_a_process_that_nothing_watched_is_refused(tmp_path: Path) -> None:
    put(tmp_path, 1)
    (tmp_path / "used-1").touch()
    (tmp_path / "used-12").touch()
    (refused,) = report.read(str(tmp_path)).refused
    assert refused.startswith("process 12 used the stub GPU and nothing watched it")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"refused": 3}', "\x00"])
def test_a_damaged_report_refuses(tmp_path: Path, content: str) -> None:
    (tmp_path / "guard-7.json").write_text(content)
    (refused,) = report.read(str(tmp_path)).refused
    assert refused.startswith("guard-7.json: ")


def test_no_reports_refuse(tmp_path: Path) -> None:
    assert report.read(str(tmp_path)).refused
    assert report.read(str(tmp_path / "none")).refused


def test_what_is_written_is_read(tmp_path: Path) -> None:
    content = {"refused": [], "reads": [read_at(1)], "launches": 5, "unknown": [], "notes": {}}
    report.write(str(tmp_path), content)
    report.write(str(tmp_path), content | {"refused": [REFUSED]})
    assert os.listdir(tmp_path) == [f"guard-{os.getpid()}.json"]
    assert report.read(str(tmp_path)).refused == ("a.py:3: no",)
