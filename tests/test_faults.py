"""A hostile machine: `check` answers in time and runs nothing of it.

The faults are those that made other doctors hang, crash, or execute what they found.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.command import installed
from tests.effort import SLOWER

#: Far less than the hostile programs take, and enough for a very busy machine.
SECONDS = 40.0
#: Where Python knows it: the working directory is not on the import path.
SAFE_PATH = "-P" if sys.version_info >= (3, 11) else "-B"
TOOLS = ("gcc", "g++", "cc", "nvcc", "nvidia-smi", "conda", "lscpu", "cmake", "ninja", "ldconfig")


def check(
    *arguments: str, cwd: Path | None = None, prefix: tuple[str, ...] = (), **environ: str
) -> tuple[dict[str, object], float]:
    """The JSON of `attn-doctor check` and the seconds it took; its exit code is asserted."""
    python, *start = installed()
    begin = time.perf_counter()
    done = subprocess.run(
        [*prefix, python, SAFE_PATH, *start, "check", "--format", "json", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        # The modules of a checkout are compiled here; in an installation pip has done that.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environ},
        timeout=60 * SLOWER,
        check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - begin
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout), seconds


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that a hostile program would create."""
    return tmp_path / "executed"


@pytest.fixture
def tools(tmp_path: Path, marker: Path) -> Path:
    """A folder of programs that create the marker, and then take 70 seconds."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in TOOLS:
        program = folder / name
        program.write_text(f"#!/bin/sh\necho {name} >> {marker}\nsleep 70\n")
        program.chmod(0o755)
    return folder


@pytest.mark.posix
def test_hostile_programs_on_path_are_not_run(tools: Path, marker: Path) -> None:
    path = f"{tools}:{os.environ['PATH']}"
    data, seconds = check(PATH=path)
    assert not marker.exists(), marker.read_text()
    assert seconds < SECONDS
    facts = data["facts"]
    assert isinstance(facts, dict)
    # They are what a build would use, and that is said.
    assert facts["build"]["nvcc_on_path"] == str(tools / "nvcc")
    assert facts["cc"]["path"] == str(tools / "gcc")
    assert "cc.version" in facts["gaps"]


@pytest.mark.parametrize("place", ["cwd", "PYTHONPATH"])
def test_shadowing_modules_are_reported_and_not_imported(
    tmp_path: Path, marker: Path, place: str
) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    for name in ("torch", "triton", "flash_attn", "pynvml", "packaging"):
        (folder / f"{name}.py").write_text(f"open({str(marker)!r}, 'a').write({name!r})\n")
    root = str(Path(__file__).resolve().parent.parent)
    if place == "cwd":
        data, _ = check(cwd=folder, PYTHONPATH=root)
    else:
        # Behind our own packages, so that attn-doctor itself still starts from its own.
        own = [root, *(entry for entry in sys.path if entry.endswith("-packages"))]
        data, _ = check(PYTHONPATH=os.pathsep.join([*own, str(folder)]))
    assert not marker.exists(), marker.read_text()
    facts = data["facts"]
    assert isinstance(facts, dict)
    shadowing = " ".join(facts["python"]["shadowing_modules"])
    assert str(folder / "torch.py") in shadowing


@pytest.mark.posix
def test_code_in_pth_files_of_the_examined_environment_does_not_run(
    tmp_path: Path, marker: Path
) -> None:
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "evil.pth").write_text(f"import os; open({str(marker)!r}, 'w')\n")
    (site / "sitecustomize.py").write_text(f"open({str(marker)!r}, 'w')\n")
    data, _ = check("--python", str(environment))
    assert not marker.exists()
    facts = data["facts"]
    assert isinstance(facts, dict)
    assert facts["python"]["pth_code"] == [str(site / "evil.pth")]


@pytest.mark.parametrize(
    "home",
    [
        "/proc/nowhere",
        *(
            pytest.param(home, marks=pytest.mark.thorough)
            for home in ("/dev/null/home", "", "relative/home")
        ),
    ],
)
def test_a_home_that_cannot_exist(home: str) -> None:
    data, seconds = check(HOME=home, USER="", LOGNAME="")
    assert seconds < SECONDS
    assert data["schema"] == 1


@pytest.mark.thorough
def test_an_empty_environment() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "attn_doctor", "check", "--format", "json"],
        capture_output=True,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        timeout=60 * SLOWER,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    assert json.loads(done.stdout)["schema"] == 1


@pytest.mark.posix
def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    script = 'cd "$1" && rmdir "$1" && exec "$2" -m attn_doctor check --format json'
    done = subprocess.run(
        ["sh", "-c", script, "sh", str(folder), sys.executable],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        timeout=60 * SLOWER,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    assert json.loads(done.stdout)["schema"] == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux allows names that are not text")
def test_paths_and_variables_that_are_no_text(tmp_path: Path) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")
    os.mkdir(odd)
    data, _ = check(CC=odd + "/gcc", TMPDIR=odd, TORCHINDUCTOR_CACHE_DIR=odd)
    assert "/??" in json.dumps(data)


def test_secrets_are_neither_shown_nor_saved() -> None:
    secrets: dict[str, Any] = {
        "TORCHINDUCTOR_REDIS_URL": "redis://ci:hunter2@cache.example.org",
        "HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
        "AWS_SECRET_ACCESS_KEY": "hunter2hunter2hunter2",
        "CC": "https://user:hunter2@example.org/gcc",
    }
    data, _ = check(**secrets)
    assert "hunter2" not in json.dumps(data)
    assert "hf_abc" not in json.dumps(data)


_OPEN = re.compile(r'open(?:at)?\((?:AT_FDCWD, )?"([^"]*)", ([A-Z_|]+)')


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_check_writes_no_file_and_opens_no_connection(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    strace = shutil.which("strace")
    assert strace is not None
    calls = "trace=open,openat,creat,socket,connect,mkdir,mkdirat,rename,renameat2,unlink,unlinkat"
    check(prefix=(strace, "-f", "-qq", "-e", calls, "-o", str(trace)))
    lines = trace.read_text(errors="replace").splitlines()
    assert any("site-packages" in line for line in lines), "nothing was traced"
    written = [
        match[1]
        for line in lines
        if (match := _OPEN.search(line)) and re.search("O_WRONLY|O_RDWR|O_CREAT", match[2])
    ]
    assert set(written) <= {"/dev/null", "/dev/tty"}
    # NSS may ask a local cache of user names; that does not use the network.
    sockets = [line for line in lines if "socket(" in line and "AF_UNIX" not in line]
    assert sockets == []
    changes = r"\b(mkdir|mkdirat|rename|renameat2|unlink|unlinkat|creat)\("
    assert [line for line in lines if re.search(changes, line)] == []
