"""The means of the attacks work: an attack that cannot hit proves nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks.means import STRANGER, Attack


@pytest.mark.posix
def test_a_run_answers_with_its_own_home(doctor: Attack, home: Path) -> None:
    run = doctor("--version").answered(0)
    assert run.stdout.startswith("attn-doctor ")
    assert f"{home}/.triton" in doctor("cache", "status", "--format", "json").answered(0).stdout


@pytest.mark.posix
def test_a_run_that_hangs_is_killed(doctor: Attack) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        doctor("--version", seconds=0.5, prefix=["sh", "-c", "exec sleep 9"])


def test_a_disk_is_full(full_disk: Path) -> None:
    with pytest.raises(OSError, match="No space"):
        (full_disk / "one").write_text("more")


def test_a_stranger_owns_a_folder(tmp_path: Path, stranger: Callable[[Path], Path]) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").touch()
    folder = stranger(tmp_path / "theirs")
    assert (folder.stat().st_uid, (folder / "file").stat().st_uid) == (STRANGER, STRANGER)
