"""One owner at a time, also after an owner is killed; a running owner keeps the lock."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from attn_doctor.record import lock
from attn_doctor.record.lock import (
    FOLDER,
    Lock,
    LockLostError,
    Owner,
    is_running,
    owner,
)


class GivesUpError(Exception):
    """The lock was found taken."""


def give_up(_: Owner | None) -> None:
    raise GivesUpError


def numbers(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / FOLDER).iterdir())


def held_by(folder: Path, number: int, **fields: object) -> Path:
    """A lock of another owner, by default on another machine."""
    path = folder / FOLDER / f"lock.{number}"
    path.parent.mkdir(exist_ok=True)
    other = Owner(
        host="node-7",
        pid=4242,
        started=1.0,
        boot="another",
        since="2026-11-21T10:00:00Z",
        token="x",
    )
    path.write_bytes(msgspec.json.encode(replace(other, **fields)))
    return path


def this(**fields: object) -> dict[str, object]:
    me = lock._this()
    return {"boot": me.boot, "pid": me.pid, "started": me.started, **fields}


def test_taken_and_let_go(tmp_path: Path) -> None:
    assert owner(tmp_path) is None
    with Lock(tmp_path) as one:
        found = owner(tmp_path)
        assert found is not None
        assert (found.pid, is_running(found)) == (os.getpid(), True)
        one.check()
        with pytest.raises(GivesUpError):
            Lock(tmp_path, give_up).__enter__()
    assert owner(tmp_path) is None
    with Lock(tmp_path, give_up):
        pass
    # Only the one that counts is left, and no draft.
    assert numbers(tmp_path) == ["lock.2"]


def test_let_go_after_an_error_as_well(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="broken"), Lock(tmp_path):
        raise ValueError("broken")
    assert owner(tmp_path) is None


def test_a_dead_owner_of_this_machine_is_noticed_at_once(tmp_path: Path) -> None:
    held_by(tmp_path, 3, **this(pid=2**22 + 1))
    found = owner(tmp_path)
    assert found is not None
    assert is_running(found) is False
    with Lock(tmp_path, give_up):
        assert numbers(tmp_path) == ["lock.4"]


def test_a_reused_process_id_is_not_the_owner(tmp_path: Path) -> None:
    held_by(tmp_path, 1, **this(started=1.0))
    with Lock(tmp_path, give_up):
        pass


def test_a_living_owner_elsewhere_is_waited_for(tmp_path: Path) -> None:
    held_by(tmp_path, 1)
    found = owner(tmp_path)
    assert found is not None
    assert is_running(found) is None
    with pytest.raises(GivesUpError):
        Lock(tmp_path, give_up).__enter__()
    assert numbers(tmp_path) == ["lock.1"]


def test_an_owner_elsewhere_without_heartbeat_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "DEAD", 0.5)
    monkeypatch.setattr(lock, "LOOK", 0.05)
    held_by(tmp_path, 1)
    looks: list[Owner | None] = []
    with Lock(tmp_path, looks.append):
        assert numbers(tmp_path) == ["lock.2"]
    assert len(looks) >= 10


def test_a_heartbeat_keeps_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "DEAD", 0.5)
    monkeypatch.setattr(lock, "LOOK", 0.05)
    path = held_by(tmp_path, 1)
    stop = threading.Event()

    def beat() -> None:
        count = 0
        while not stop.wait(0.1):
            count += 1
            os.utime(path, (count, count))  # as a clock that is far off

    threading.Thread(target=beat, daemon=True).start()
    end = time.monotonic() + 1.5

    def patient(_: Owner | None) -> None:
        if time.monotonic() > end:
            raise GivesUpError

    with pytest.raises(GivesUpError):
        Lock(tmp_path, patient).__enter__()
    stop.set()


def test_ours_has_a_heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "BEAT", 0.05)
    with Lock(tmp_path):
        path = tmp_path / FOLDER / "lock.1"
        os.utime(path, (1, 1))
        end = time.monotonic() + 5
        while path.stat().st_mtime < 2:
            assert time.monotonic() < end
            time.sleep(0.02)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe"])
def test_a_lock_that_a_power_loss_emptied_counts_until_it_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(lock, "DEAD", 0.2)
    monkeypatch.setattr(lock, "LOOK", 0.05)
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "lock.1").write_bytes(content)
    waits: list[Owner | None] = []
    with Lock(tmp_path, waits.append):
        pass
    assert waits
    assert set(waits) == {None}


def test_who_was_taken_over_notices(tmp_path: Path) -> None:
    with Lock(tmp_path) as one:
        held_by(tmp_path, 2)
        with pytest.raises(LockLostError):
            one.check()
    # Letting go must not touch the other's lock.
    found = owner(tmp_path)
    assert found is not None
    assert found.host == "node-7"


@pytest.mark.posix
def test_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    with Lock(tmp_path), pytest.raises(GivesUpError):
        Lock(tmp_path, give_up).__enter__()
    assert numbers(tmp_path) == ["lock.1"]


def counted(folder: Path, times: int) -> None:
    lock.LOOK = 0.001
    file = folder / "count"
    for _ in range(times):
        with Lock(folder):
            number = int(file.read_text())
            time.sleep(0.001)
            file.write_text(str(number + 1))


@pytest.mark.native
def test_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "count").write_text("0")
    # A dead owner to begin with, on whom all of them fall at once.
    held_by(tmp_path, 1, **this(pid=2**22 + 1))
    # The other processes find this module by our path.
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=counted, args=(tmp_path, 8)) for _ in range(4)]
    for one in started:
        one.start()
    for one in started:
        one.join(60)
    assert [one.exitcode for one in started] == [0] * 4
    assert (tmp_path / "count").read_text() == "32"
