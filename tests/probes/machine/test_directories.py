"""Home, temporary and cache directories, there or not."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from attn_doctor.facts import Directory
from attn_doctor.host import Host
from attn_doctor.host.local import LocalHost
from attn_doctor.probes.distributions import Distributions, Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.machine import directories
from attn_doctor.probes.machine.directories import places
from tests.probes.tree import MOUNTINFO, PLAIN_ROOT, machine

NFS = "31 27 0:31 / /home rw - nfs4 files:/home rw\n"
NOEXEC = "32 27 0:32 / /tmp rw,nosuid,noexec - tmpfs tmpfs rw\n"


def read(host: Host) -> tuple[dict[str, Directory], dict[str, str]]:
    gaps = Gaps()
    site = Site(folders=(), distributions=Distributions(host, ()))
    found = directories.read(host, site, gaps)["directories"]
    return {one.purpose: one for one in found}, gaps.reasons


def test_linux() -> None:
    table = PLAIN_ROOT + NFS + NOEXEC
    found, gaps = read(machine({MOUNTINFO: table}, folders=["/tmp"]))
    assert found == {
        "home": Directory(
            purpose="home",
            path="/home/ada",
            exists=True,
            writable=True,
            noexec=False,
            filesystem="nfs4",
            network=True,
            free_mib=40960,
        ),
        "tmp": Directory(
            purpose="tmp",
            path="/tmp",
            exists=True,
            writable=True,
            noexec=True,
            filesystem="tmpfs",
            network=False,
            free_mib=40960,
        ),
        "cache": Directory(
            purpose="cache",
            path="/home/ada/.cache",
            exists=False,
            writable=True,
            noexec=False,
            filesystem="nfs4",
            network=True,
            free_mib=40960,
        ),
    }
    assert gaps == {}


def test_a_home_that_does_not_exist() -> None:
    found, gaps = read(machine(home="/nonexistent", locked=["/"]))
    for purpose in ("home", "cache"):
        assert found[purpose].exists is False
        assert found[purpose].writable is False
        assert found[purpose].free_mib == 40960
    assert gaps == {}


def test_no_home_at_all() -> None:
    found, _ = read(machine(home=""))
    assert found["cache"].path == "/home/ada/.cache"


@pytest.mark.parametrize(
    ("env", "folders", "expected"),
    [
        ({}, ["/tmp"], "/tmp"),
        ({}, ["/var/tmp"], "/var/tmp"),
        ({}, [], "/tmp"),
        ({"TMPDIR": "/scratch", "TMP": "/x"}, ["/tmp"], "/scratch"),
        ({"TMPDIR": "", "TEMP": "/y", "TMP": "/x"}, ["/tmp"], "/y"),
        ({"TMP": "rel"}, ["/tmp"], "/home/ada/rel"),
    ],
)
def test_the_temporary_directory(env: dict[str, str], folders: list[str], expected: str) -> None:
    assert places(machine(env=env, folders=folders))["tmp"] == expected


def test_a_named_temporary_directory_that_is_missing_is_reported() -> None:
    found, _ = read(machine(env={"TMPDIR": "/scratch/job"}, folders=["/tmp"], locked=["/"]))
    assert found["tmp"].path == "/scratch/job"
    assert (found["tmp"].exists, found["tmp"].writable) == (False, False)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"env": {"XDG_CACHE_HOME": "/var/cache/ada"}}, "/var/cache/ada"),
        ({"env": {"XDG_CACHE_HOME": "~/c"}}, "/home/ada/c"),
        ({"os": "macos"}, "/home/ada/Library/Caches"),
        ({"os": "windows"}, r"C:\Users\ada\AppData\Local"),
        ({"os": "windows", "env": {"LOCALAPPDATA": r"D:\Local"}}, r"D:\Local"),
    ],
)
def test_the_cache(how: dict[str, Any], expected: str) -> None:
    assert places(machine(**how))["cache"] == expected


def test_mounts_are_unknown_outside_linux() -> None:
    found, gaps = read(machine(os="macos", folders=["/tmp"]))
    assert (found["tmp"].noexec, found["tmp"].network, found["tmp"].filesystem) == (None,) * 3
    assert gaps["directories[1].noexec"] == "only Linux lists what is mounted where"


def test_space_that_cannot_be_read() -> None:
    found, gaps = read(machine(folders=["/tmp"], answers={"space /tmp": {"error": "EIO"}}))
    assert found["tmp"].free_mib is None
    assert "free space of /tmp cannot be read" in gaps["directories[1].free_mib"]


def test_windows_rights_outside_the_home_are_a_gap() -> None:
    host = machine(os="windows", env={"TEMP": r"D:\Temp"}, folders=[r"D:\Temp"])
    found, gaps = read(host)
    assert (found["home"].writable, found["tmp"].writable) == (True, None)
    assert "directories[1].writable" in gaps
    assert "directories[0].writable" not in gaps


@pytest.mark.skipif(sys.platform != "linux", reason="the facts of a Linux machine")
def test_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    found, gaps = read(LocalHost())
    assert gaps == {}
    assert [found[name].exists for name in ("home", "tmp", "cache")] == [False, True, False]
    assert all(one.writable for one in found.values())
    assert not (tmp_path / "home").exists()
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert found["tmp"].path == tempfile.gettempdir()
