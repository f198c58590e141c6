"""The lock of a run, and that of an environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from attn_doctor.errors import AttnDoctorError
from attn_doctor.fixes import locks
from attn_doctor.fixes.locks import environment_lock, is_locked, lock


def test_a_lock_is_held_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    assert not path.exists()  # asking makes nothing
    handle = lock(path)
    assert is_locked(path)
    with pytest.raises((BlockingIOError, PermissionError)):
        lock(path)
    os.close(handle)
    assert not is_locked(path)


def test_one_environment_is_changed_once_at_a_time(tmp_path: Path) -> None:
    state = tmp_path / "state"
    site = tmp_path / "site"
    site.mkdir()
    with environment_lock(str(site), state):
        with (
            pytest.raises(
                AttnDoctorError,
                match=f"another run of fix is changing {re.escape(str(site))}; wait",
            ),
            environment_lock(str(site), state),
        ):
            pytest.fail("it is held twice")
        assert list(site.iterdir()) == []
    with environment_lock(str(site), state):
        pass


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with (
        pytest.raises(AttnDoctorError, match=f"{re.escape(str(gone))} cannot be locked: "),
        environment_lock(str(gone), tmp_path),
    ):
        pytest.fail("it is held")


def test_where_folders_cannot_be_locked_a_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_folder_lock", lambda _: None)
    with (
        environment_lock(str(tmp_path), tmp_path / "state"),
        pytest.raises(AttnDoctorError, match="another run of fix"),
        environment_lock(str(tmp_path), tmp_path / "state"),
    ):
        pytest.fail("it is held twice")
    assert [path.suffix for path in (tmp_path / "state").iterdir()] == [".lock"]


@pytest.mark.skipif(os.name == "nt", reason="descriptors are not inherited there")
def test_an_installer_that_inherits_the_lock_holds_it(tmp_path: Path) -> None:
    with environment_lock(str(tmp_path), tmp_path / "state") as handle:
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[handle]
        )
    with child:
        with (
            pytest.raises(AttnDoctorError, match="another run of fix"),
            environment_lock(str(tmp_path), tmp_path / "state"),
        ):
            pytest.fail("it is held twice")
        child.kill()
    with environment_lock(str(tmp_path), tmp_path / "state"):
        pass
