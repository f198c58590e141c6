"""Where the caches lie, and what is read of them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from attn_doctor.facts import Cache
from attn_doctor.host import Host
from attn_doctor.host.local import SURE, LocalHost
from attn_doctor.host.recorded import RecordedHost, RecordingHost, to_text
from attn_doctor.probes.distributions import Distributions, Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.machine import caches
from tests.probes.answers import machine

VARIABLES = (
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "TRITON_HOME",
    "PYTORCH_KERNEL_CACHE_PATH",
    "XDG_CACHE_HOME",
    "TORCH_EXTENSIONS_DIR",
    "CUDA_CACHE_PATH",
    "FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED",
    "TEMP",
    "TMP",
)
WRITABLE = {"access /tmp w": {"answer": True}}
HOUR = 3600.0
COUNTED = {"files": 1, "bytes": 2, "newest": 0.0, "complete": True}

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux")


def read(host: Host) -> tuple[dict[str, Cache], dict[str, str]]:
    gaps = Gaps()
    site = Site(folders=(), distributions=Distributions(host, ()))
    found = caches.read(host, site, gaps)["caches"]
    return {one.kind: one for one in found}, gaps.reasons


def places(host: Host) -> dict[str, tuple[str, str]]:
    return {one.kind: (one.path, one.source) for one in caches.locate(host)}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose home and temporary directory are empty and under `tmp_path`."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOGNAME", "ada")
    for name, folder in (("HOME", "home"), ("TMPDIR", "tmp")):
        (tmp_path / folder).mkdir()
        monkeypatch.setenv(name, str(tmp_path / folder))
    return tmp_path


def write(path: Path, size: int = 10, age: float = 0.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    changed = path.stat().st_mtime - age
    os.utime(path, (changed, changed))
    return path


# Places


def test_default_places() -> None:
    assert places(machine({"/tmp/x": ""}, user="ada", home="/home/ada", more=WRITABLE)) == {
        "inductor": ("/tmp/torchinductor_ada", "default"),
        "fxgraph": ("/tmp/torchinductor_ada/fxgraph", "default"),
        "aotautograd": ("/tmp/torchinductor_ada/aotautograd", "default"),
        "triton": ("/home/ada/.triton/cache", "default"),
        "extensions": ("/home/ada/.cache/torch_extensions", "default"),
        "jiterator": ("/home/ada/.cache/torch/kernels", "default"),
        "driver": ("/home/ada/.nv/ComputeCache", "default"),
    }


def test_variables_set_the_places() -> None:
    environ = {
        "TORCHINDUCTOR_CACHE_DIR": "relative/inductor",
        "TRITON_CACHE_DIR": "/t",
        "TRITON_HOME": "/ignored",
        "TORCH_EXTENSIONS_DIR": "/e/",
        "PYTORCH_KERNEL_CACHE_PATH": "/k",
        "CUDA_CACHE_PATH": "/d",
        "XDG_CACHE_HOME": "/ignored",
    }
    assert places(machine(environ=environ, cwd="/project")) == {
        "inductor": ("/project/relative/inductor", "TORCHINDUCTOR_CACHE_DIR"),
        "fxgraph": ("/project/relative/inductor/fxgraph", "TORCHINDUCTOR_CACHE_DIR"),
        "aotautograd": ("/project/relative/inductor/aotautograd", "TORCHINDUCTOR_CACHE_DIR"),
        "triton": ("/t", "TRITON_CACHE_DIR"),
        "extensions": ("/e", "TORCH_EXTENSIONS_DIR"),
        "jiterator": ("/k", "PYTORCH_KERNEL_CACHE_PATH"),
        "driver": ("/d", "CUDA_CACHE_PATH"),
    }


def test_variables_that_set_a_parent_folder() -> None:
    environ = {"TRITON_HOME": "/h", "XDG_CACHE_HOME": "/x"}
    found = places(machine(environ=environ))
    assert found["triton"] == ("/h/.triton/cache", "TRITON_HOME")
    assert found["extensions"] == ("/x/torch_extensions", "XDG_CACHE_HOME")
    assert found["jiterator"] == ("/x/torch/kernels", "XDG_CACHE_HOME")


def test_a_user_name_becomes_a_file_name() -> None:
    host = machine({"/tmp/x": ""}, user="CORP\\ada:1", more=WRITABLE)
    assert places(host)["inductor"][0] == "/tmp/torchinductor_CORP_ada_1"
    host = machine({"/tmp/x": ""}, user="", uid=1234, more=WRITABLE)
    assert places(host)["inductor"][0] == "/tmp/torchinductor_uid_1234"


def test_a_missing_temporary_directory_is_skipped() -> None:
    more = {**WRITABLE, "access /scratch w": {"answer": True}}
    files = {"/tmp/x": "", "/scratch/x": ""}
    environ = {"TMPDIR": "/gone", "TMP": "/scratch"}
    assert places(machine(files, environ=environ, more=more))["inductor"][0].startswith("/scratch/")
    for folder in ("/gone", "/scratch"):
        host = machine(files, environ={"TMPDIR": folder}, more=WRITABLE)
        assert places(host)["inductor"][0].startswith("/tmp/")


def test_flash_attention_4_keeps_kernels_only_if_asked() -> None:
    environ = {"FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED": "1"}
    host = machine({"/tmp/x": ""}, environ=environ, user="ada", more=WRITABLE)
    assert places(host)["cute"] == ("/tmp/ada/flash_attention_cute_dsl_cache", "default")


def test_windows() -> None:
    environ = {
        "TEMP": r"C:\Temp",
        "LOCALAPPDATA": r"C:\Users\ada\AppData\Local",
        "APPDATA": r"C:\Users\ada\AppData\Roaming",
    }
    more = {r"access C:\Temp w": {"answer": True}}
    host = machine({r"C:\Temp\x": ""}, os="windows", environ=environ, user="ada", more=more)
    found = {kind: path for kind, (path, _) in places(host).items()}
    assert found["inductor"] == r"C:\Temp\torchinductor_ada"
    assert (
        found["extensions"] == r"C:\Users\ada\AppData\Local\torch_extensions\torch_extensions\Cache"
    )
    assert found["jiterator"] == r"C:\Temp\torch\kernels"
    assert found["driver"] == r"C:\Users\ada\AppData\Roaming\NVIDIA\ComputeCache"
    _, gaps = read(host)
    assert "caches" in gaps


@pytest.mark.parametrize(
    ("folder", "volatile"), [(r"C:\Users\me\AppData\Local\Temp", False), (r"R:\Temp", None)]
)
def test_a_reboot_of_windows_keeps_the_users_temporary_folder(
    folder: str, volatile: bool | None
) -> None:
    more = {f"access {folder} w": {"answer": True}}
    host = machine(
        {rf"{folder}\x": ""}, os="windows", environ={"TEMP": folder}, user="me", more=more
    )
    assert read(host)[0]["inductor"].volatile is volatile


def test_macos_has_no_cuda_driver() -> None:
    found = places(machine(os="macos", home="/Users/ada"))
    assert "driver" not in found
    assert found["extensions"][0] == "/Users/ada/Library/Caches/torch_extensions"


# What is read


@linux
def test_caches_that_do_not_exist(here: Path) -> None:
    recording = RecordingHost(LocalHost(), lambda name: True)
    found, gaps = read(recording)
    assert [one.exists for one in found.values()] == [False] * 7
    assert all((one.bytes, one.entries, one.last_modified) == (0, 0, "") for one in found.values())
    assert all(one.complete and one.writable for one in found.values())
    assert not any(one.danger or one.stale_locks for one in found.values())
    assert gaps == {}
    assert not any(question.startswith("measure") for question in recording.answers)
    # Nothing was made by looking.
    assert set(here.rglob("*")) == {here / "home", here / "tmp"}


@linux
def test_a_cache_is_counted_with_its_parts(here: Path) -> None:
    root = here / "tmp" / "torchinductor_ada"
    newest = write(root / "fxgraph" / "ab" / "graph", size=300)
    write(root / "aotautograd" / "cd" / "entry", size=50, age=HOUR)
    write(root / "triton" / "0" / "kernel.cubin", size=7, age=HOUR)
    found, gaps = read(LocalHost())
    assert (found["inductor"].bytes, found["inductor"].entries) == (357, 3)
    assert (found["fxgraph"].bytes, found["fxgraph"].entries) == (300, 1)
    assert (found["aotautograd"].bytes, found["aotautograd"].entries) == (50, 1)
    assert found["triton"].exists is False
    day = datetime.fromtimestamp(newest.stat().st_mtime, timezone.utc)
    assert found["inductor"].last_modified == day.isoformat(timespec="seconds")
    assert found["inductor"].complete
    assert gaps == {}


@linux
def test_counting_stops_at_the_limit(here: Path) -> None:
    for number in range(SURE):
        write(here / "tmp" / "torchinductor_ada" / f"folder{number}" / "file")
    found = caches.survey(LocalHost(), Gaps(), 0.0)
    assert found[0].exists
    assert found[0].complete is False


@linux
def test_only_old_locks_of_extension_builds_are_stale(here: Path) -> None:
    root = here / "home" / ".cache" / "torch_extensions" / "py312_cu130"
    write(root / "killed" / "lock", age=2 * HOUR)
    write(root / "building" / "lock", age=60.0)
    write(root / "built" / "built.so", age=2 * HOUR)
    write(root / "built" / "old.lock", age=2 * HOUR)
    write(here / "tmp" / "torchinductor_ada" / "locks" / "lock", age=2 * HOUR)
    found, _ = read(LocalHost())
    assert found["extensions"].stale_locks == 1
    assert found["inductor"].stale_locks == 0


def test_a_cache_that_may_not_be_read() -> None:
    host = machine({"/home/ada/.triton/cache/x": ""}, home="/home/ada")
    found, gaps = read(host)
    one = found["triton"]
    assert (one.exists, one.bytes, one.entries, one.last_modified, one.complete) == (True,) + (
        None,
    ) * 4
    assert one.stale_locks is None
    assert gaps["caches[3]"] == "/home/ada/.triton/cache may not be read by this user"


def test_a_cache_that_cannot_be_reached() -> None:
    stat = {"stat /home/ada/.triton/cache": {"error": "EACCES"}}
    found, gaps = read(machine(home="/home/ada", more=stat))
    assert (found["triton"].exists, found["triton"].danger) == (None, None)
    assert "cannot be reached" in gaps["caches[3]"]


def counted(
    path: str, danger: str | None = "", inside: str = "", *, complete: bool = True
) -> dict[str, object]:
    return {
        f"stat {path}": {"answer": {"kind": "dir", "uid": 0, "mode": 0o755}},
        f"danger {path}": {"answer": danger},
        f"access {path} r": {"answer": True},
        f"measure {path}": {"answer": {**COUNTED, "danger": inside, "complete": complete}},
    }


def test_a_cache_of_another_user() -> None:
    path = "/root/.triton/cache"
    for danger, inside, complete, expected in (
        ("/root is bob's", "", True, "/root is bob's"),
        ("", "a file is bob's", True, "a file is bob's"),
        ("", "a file is bob's", False, "a file is bob's"),
        ("", "", True, ""),
        ("", "", False, None),
        (None, "", True, None),
    ):
        found, gaps = read(machine(more=counted(path, danger, inside, complete=complete)))
        assert found["triton"].danger == expected
        assert ("caches" in gaps) == (expected is None or "caches" in read(machine())[1])


@pytest.mark.parametrize(
    ("line", "noexec", "network", "volatile", "kind"),
    [
        ("27 1 8:1 / / rw - ext4 /dev/sda1 rw", False, False, False, "ext4"),
        ("27 1 0:9 / / rw,noexec - tmpfs tmpfs rw", True, False, True, "tmpfs"),
        ("27 1 0:9 / / rw - overlay overlay rw", False, False, True, "overlay"),
        ("27 1 0:9 / / rw - nfs4 server:/home rw", False, True, False, "nfs4"),
    ],
)
def test_the_file_system_of_a_cache(
    line: str, noexec: bool, network: bool, volatile: bool, kind: str
) -> None:
    found, gaps = read(machine({"/proc/self/mountinfo": line + "\n"}))
    one = found["triton"]
    assert (one.noexec, one.network, one.volatile, one.filesystem) == (
        noexec,
        network,
        volatile,
        kind,
    )
    assert gaps == {}


@pytest.mark.parametrize(("folder", "volatile"), [("/tmp", True), ("/scratch", False)])
def test_a_temporary_folder_on_a_lasting_disk(folder: str, volatile: bool) -> None:
    mount = {"/proc/self/mountinfo": "27 1 8:1 / / rw - ext4 /dev/sda1 rw\n", f"{folder}/x": ""}
    more = {f"access {folder} w": {"answer": True}}
    found, _ = read(machine(mount, environ={"TMPDIR": folder}, more=more))
    assert (found["inductor"].path or "").startswith(f"{folder}/torchinductor_")
    assert found["inductor"].volatile is volatile


def test_a_folder_beside_the_temporary_directory_is_not_in_it() -> None:
    mount = {"/proc/self/mountinfo": "27 1 8:1 / / rw - ext4 /dev/sda1 rw\n", "/tmp/x": ""}
    for path, volatile in (("/tmp/triton", True), ("/tmpfiles/triton", False)):
        host = machine(mount, environ={"TRITON_CACHE_DIR": path}, more=WRITABLE)
        assert read(host)[0]["triton"].volatile is volatile


def test_a_replay_gives_the_same() -> None:
    recording = RecordingHost(machine(more=counted("/root/.triton/cache")), lambda name: True)
    first = read(recording)
    assert read(RecordedHost(json.loads(to_text(recording.answers)))) == first


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_torch_itself_agrees(here: Path) -> None:
    code = (
        "import json, os; from torch._inductor.codecache import FxGraphCache\n"
        "from torch.utils.cpp_extension import get_default_build_root as root\n"
        "print(json.dumps([FxGraphCache._get_tmp_dir(), root()]))\n"
    )
    argv = [sys.executable, "-c", code]
    answer = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    ours = places(LocalHost())
    assert json.loads(answer.splitlines()[-1]) == [ours["fxgraph"][0], ours["extensions"][0]]
