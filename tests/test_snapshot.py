"""Reading snapshots, good and bad."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from attn_doctor import snapshot
from attn_doctor.errors import SnapshotError
from attn_doctor.facts import Facts, Torch, to_json


def test_a_snapshot_comes_back_as_it_went(tmp_path: Path) -> None:
    facts = Facts(
        torch=Torch(installed=True, version="2.11.0+cu130", archs=(80, 90)), env={"CC": "gcc"}
    )
    path = tmp_path / "facts.json"
    path.write_bytes(to_json(facts))
    assert snapshot.load(str(path)) == facts


def test_unknown_fields_of_the_same_format_are_passed_over() -> None:
    assert snapshot.parse(b'{"schema": 1, "later": 3, "torch": {"new": 1}}', "x") == Facts()


def test_the_result_of_a_check_holds_its_facts() -> None:
    facts = Facts(torch=Torch(installed=True, version="2.11.0+cu130"))
    result = b'{"schema": 1, "problems": [], "facts": ' + to_json(facts) + b"}"
    assert snapshot.parse(result, "result.json") == facts


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b"", "x.json is not JSON"),
        (b"\xff\xfe\x00", "x.json is not JSON"),
        (b'{"schema": 1', "x.json is not JSON"),
        (b"[]", "x.json is not a snapshot of attn-doctor"),
        (b'{"findings": []}', "x.json is not a snapshot of attn-doctor"),
        (b'{"schema": 1, "problems": []}', "x.json is not a snapshot of attn-doctor"),
        (b'{"schema": 9, "attn_doctor": "3.1"}', "format 9, written by attn-doctor 3.1;"),
        (b'{"schema": 1, "gpus": [{"sm": "89"}]}', "`gpus[0].sm`"),
        (b'{"schema": 1, "torch": null}', "`torch`"),
    ],
)
def test_an_invalid_snapshot_gives_one_sentence_with_the_fix(text: bytes, part: str) -> None:
    with pytest.raises(SnapshotError) as raised:
        snapshot.parse(text, "x.json")
    message = str(raised.value)
    assert part in message
    assert "\n" not in message
    assert "attn-doctor report" in message or "install a later one" in message


def test_a_missing_or_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match=r"nowhere\.json cannot be read: No such file"):
        snapshot.load(str(tmp_path / "nowhere.json"))
    with pytest.raises(SnapshotError, match="cannot be read: Is a directory"):
        snapshot.load(str(tmp_path))
    locked = tmp_path / "locked.json"
    locked.write_text(json.dumps({"schema": 1}))
    locked.chmod(0)
    if os.access(locked, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(SnapshotError, match="Permission denied"):
        snapshot.load(str(locked))
