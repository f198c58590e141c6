"""The manifest is read and written whole, and another file is not taken for a manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_doctor.errors import AttnDoctorError
from attn_doctor.record import store
from attn_doctor.record.manifest import (
    NAME,
    Build,
    BuildEnvironment,
    Entry,
    Manifest,
)
from attn_doctor.record.spec import KernelSpec

SPEC = KernelSpec(heads=24, head_dim=128, lengths=(4608,))
FULL = Manifest(
    schema=1,
    attn_doctor="0.1",
    environments={"cuda:0 NVIDIA H200": BuildEnvironment(torch="2.11.0+cu130", sm=90)},
    entries={
        f"{SPEC.id}@cuda:0 NVIDIA H200": Entry(
            spec=SPEC,
            device_slot="cuda:0 NVIDIA H200",
            state="built",
            build=Build(at="2026-11-21T10:00:00Z", seconds=2.5, files={"a": 1}),
        )
    },
)


def test_round_trip_without_leftovers(tmp_path: Path) -> None:
    assert store.load(tmp_path) is None
    store.save(tmp_path, FULL)
    assert store.load(tmp_path) == FULL
    assert [path.name for path in (tmp_path / NAME).parent.iterdir()] == ["manifest.json"]


def test_a_person_can_read_it(tmp_path: Path) -> None:
    store.save(tmp_path, FULL)
    lines = (tmp_path / NAME).read_text("utf-8").splitlines()
    assert ' "schema": 1,' in lines
    assert any('"torch": "2.11.0+cu130"' in line for line in lines)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"schema": 1}', b"null"])
def test_what_is_left_of_one_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / NAME
    path.parent.mkdir()
    path.write_bytes(content)
    assert store.load(tmp_path) is None


def test_a_newer_one_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.parent.mkdir()
    path.write_text('{"schema": 2, "attn_doctor": "9.0", "entries": []}')
    with pytest.raises(AttnDoctorError, match=r"attn-doctor 9\.0, which is newer"):
        store.load(tmp_path)


def test_a_failed_write_keeps_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save(tmp_path, FULL)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.save(tmp_path, store.empty())
    assert store.load(tmp_path) == FULL


def test_flush_takes_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    store.flush(tmp_path, ["a", "gone", "no/such/folder"])
