"""Held locks are shown with their holder, and apart from locks of crashed processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from attn_doctor.facts.kinds import CacheFolder
from attn_doctor.kernels.caches.contents import sort
from attn_doctor.kernels.caches.file_tree import read_tree
from attn_doctor.kernels.caches.locks import Lock, locks

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="flock is POSIX")
HOLD = """
import os, sys, time
handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
if sys.argv[2] == "flock":
    import fcntl
    fcntl.flock(handle, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


@contextmanager
def held(path: Path, how: str) -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), how], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        try:
            yield child.pid
        finally:
            child.kill()


def found(kind: CacheFolder, root: Path, **more: Any) -> tuple[Lock, ...]:
    tree = read_tree(str(root))
    return locks(sort(kind, tree), tree, **more)


def test_torchs_lock_files_count_only_while_they_are_locked(tmp_path: Path, make: Any) -> None:
    root = make.inductor(tmp_path)
    path = root / "locks" / f"{make.CODE}.lock"
    assert found("inductor", root) == ()
    with held(path, "open"):
        assert found("inductor", root) == ()
    with held(path, "flock") as pid:
        (one,) = found("inductor", root)
        assert one.path == f"locks/{make.CODE}.lock"
        if sys.platform == "linux":
            assert one.holder.startswith(f"process {pid} (")
    assert found("inductor", root) == ()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows who has a file open")
def test_an_extensions_lock_is_its_makers_while_he_has_it_open(tmp_path: Path, make: Any) -> None:
    path = make.old_lock(tmp_path)
    with held(path, "open") as pid:
        (one,) = found("extensions", tmp_path)
        assert one.holder.startswith(f"process {pid} (")
        assert not one.stale
    (one,) = found("extensions", tmp_path)
    assert (one.holder, one.stale) == ("", True)


def test_a_lock_on_a_network_disk_is_not_stale(tmp_path: Path, make: Any) -> None:
    make.old_lock(tmp_path)
    (one,) = found("extensions", tmp_path, network=True)
    assert not one.stale
    assert "another machine" in one.doubt


def test_the_builders_lock_tells_who(tmp_path: Path, make: Any) -> None:
    from attn_doctor.record.lock import Lock as BuilderLock

    root = make.inductor(tmp_path)
    with BuilderLock(root):
        (one,) = found("inductor", root)
        assert f"process {os.getpid()}" in one.holder
    assert found("inductor", root) == ()


def test_a_lock_that_cannot_be_tried_is_in_doubt(
    tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS without its lock service answers ENOLCK."""
    root = make.inductor(tmp_path)

    def fail(handle: int, how: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", fail)
    (one,) = found("inductor", root)
    assert (one.holder, one.stale) == ("", False)
    assert "unknown" in one.doubt


def test_a_posix_lock_counts_as_well(tmp_path: Path, make: Any) -> None:
    root = make.inductor(tmp_path)
    path = root / "locks" / f"{make.CODE}.lock"
    hold = HOLD.replace("flock(handle", "lockf(handle")
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(path), "flock"], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        try:
            assert len(found("inductor", root)) == 1
        finally:
            child.kill()


def test_a_build_that_still_writes_has_its_lock(
    tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container its process may be invisible, and a build takes more than an hour."""
    monkeypatch.setattr("attn_doctor.kernels.caches.locks._contained", lambda: True)
    lock = make.old_lock(tmp_path)
    assert found("extensions", tmp_path)[0].stale
    make.write(lock.parent / "flash_fwd.o", make.elf())
    (one,) = found("extensions", tmp_path)
    assert not one.stale
    assert "changed in the last hour" in one.doubt
    assert lock.exists()
