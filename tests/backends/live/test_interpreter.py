"""Jobs that crash, hang or take all memory, in real worker processes, without torch."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from attn_doctor import worker
from attn_doctor.backends.live.interpreter import Interpreter
from attn_doctor.backends.live.outcome import Imported, Verdict
from attn_doctor.backends.live.verdicts import imported
from attn_doctor.pool.task import Outcome
from tests.backends.live.failing_packages import write_packages

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
MEMORY = 512


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_packages(tmp_path_factory.mktemp("failing"), torch=False)


def server(
    folder: Path, tmp_path: Path, *modules: str, patience: float = 20.0, spares: int = 1
) -> Interpreter:
    env = {**os.environ, "PYTHONPATH": str(folder)}
    return Interpreter(
        sys.executable, ("torch", *modules), str(tmp_path), env, patience, spares=spares
    )


@pytest.fixture
def without_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that say of themselves that a fork could not use CUDA."""
    root = tmp_path / "attn_doctor"
    source = Path(worker.LAUNCHER).parent
    shutil.copytree(source, root / "worker", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "__init__.py").touch()
    path = root / "worker" / "server.py"
    text = path.read_text("utf-8")
    changed = text.replace("return not cuda or not _cuda_was_used()", "return False")
    assert changed != text
    path.write_text(changed)
    monkeypatch.setattr(worker, "LAUNCHER", str(root / "worker" / "launch.py"))


@pytest.fixture(scope="module")
def served(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interpreter]:
    with server(folder, tmp_path_factory.mktemp("logs")) as one:
        assert one.ready(), one.failed
        yield one
        assert one.left_behind == []


def run(server: Interpreter, name: str, seconds: float = 20.0, memory: int = MEMORY) -> Outcome:
    job = {"action": "import", "module": f"failing_{name}", "package": f"failing-{name}"}
    return server.run(job, seconds, memory)


def verdict_of(ended: Outcome) -> Imported:
    return imported("failing", ended, lambda _: None)


def test_a_good_package_imports(served: Interpreter) -> None:
    one = verdict_of(run(served, "good"))
    assert (one.verdict, one.version) == (Verdict.VERIFIED, "1.5")


@pytest.mark.parametrize(
    ("name", "verdict", "words"),
    [
        ("segfault", Verdict.CRASHED, "segmentation fault (SIGSEGV)"),
        ("abort", Verdict.CRASHED, "aborted (SIGABRT)"),
        ("leaves", Verdict.CRASHED, "exit code 0 and without a result"),
        ("exits", Verdict.FAILED, "SystemExit"),
        ("breaks", Verdict.FAILED, "libcudart.so.12: cannot open shared object file"),
        ("deep", Verdict.FAILED, "RecursionError"),
    ],
)
def test_a_failure_is_a_finding(
    served: Interpreter, name: str, verdict: Verdict, words: str
) -> None:
    one = verdict_of(run(served, name))
    assert one.verdict is verdict
    assert words in one.sentence
    assert "while it was imported" in one.sentence
    # The next job runs as if nothing had been.
    assert verdict_of(run(served, "good")).verdict is Verdict.VERIFIED


def test_a_crash_leaves_its_stack(served: Interpreter) -> None:
    one = verdict_of(run(served, "segfault"))
    assert one.failure is not None
    assert "Fatal Python error: Segmentation fault" in one.failure.text
    assert "failing_segfault.py" in one.failure.text


@pytest.mark.parametrize("name", ["hang", "unkillable"])
def test_a_hang_is_killed_and_leaves_its_stack(served: Interpreter, name: str) -> None:
    start = time.monotonic()
    one = verdict_of(run(served, name, seconds=1.0))
    assert time.monotonic() - start < 10
    assert one.verdict is Verdict.HUNG
    assert re.search(r"no end after \d+ s", one.sentence)
    assert one.failure is not None
    assert f"failing_{name}.py" in one.failure.text


def test_memory_is_limited(served: Interpreter) -> None:
    ended = run(served, "eats", memory=200)
    one = verdict_of(ended)
    assert one.verdict is Verdict.OUT_OF_MEMORY
    assert 200 < ended.most_mib < 1000
    assert "more than its limit" in one.sentence


def test_what_a_package_prints_is_no_answer(served: Interpreter) -> None:
    ended = run(served, "talks")
    assert [event["event"] for event in ended.events] == ["stage", "imported"]
    assert '"event": "ended"' in ended.output()


def test_a_package_that_reads_gets_nothing(served: Interpreter) -> None:
    assert verdict_of(run(served, "reads")).verdict is Verdict.VERIFIED


def test_what_a_job_started_dies_with_it(served: Interpreter, folder: Path) -> None:
    assert verdict_of(run(served, "starts", seconds=2.0)).verdict is Verdict.HUNG
    started = [
        one
        for one in psutil.process_iter(["cmdline"])
        # Another run of this test on the same machine has another folder.
        if any(word.startswith(str(folder)) for word in one.info["cmdline"] or ())
        and "import time; time.sleep(300)" in one.info["cmdline"]
    ]
    # It was killed before; a loaded machine takes a moment to end it.
    assert psutil.wait_procs(started, timeout=5)[1] == []


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("segfault", Verdict.CRASHED), ("breaks", Verdict.FAILED), ("leaves", Verdict.CRASHED)],
)
def test_a_server_may_fail_to_start(
    folder: Path, tmp_path: Path, name: str, verdict: Verdict
) -> None:
    with server(folder, tmp_path, f"failing_{name}") as one:
        assert not one.ready()
        assert one.failed is not None
        assert verdict_of(one.failed).verdict is verdict
        assert verdict_of(run(one, "good")).verdict is verdict


@pytest.mark.native
def test_a_server_may_hang(folder: Path, tmp_path: Path) -> None:
    with server(folder, tmp_path, "failing_hang", patience=8.0) as one:
        assert not one.ready()
        assert one.failed is not None
        found = verdict_of(one.failed)
    assert found.verdict is Verdict.HUNG
    assert found.failure is not None
    assert "failing_hang.py" in found.failure.text


def test_no_interpreter(tmp_path: Path) -> None:
    with Interpreter(str(tmp_path / "nothing"), ("torch",), str(tmp_path), {}, 1.0) as one:
        assert not one.ready()
        assert one.failed is not None
        assert "cannot be started: No such file or directory" in verdict_of(one.failed).sentence
        assert verdict_of(one.failed).verdict is Verdict.NOT_RUN


@pytest.mark.usefixtures("without_fork")
def test_without_a_fork_each_job_has_an_interpreter(folder: Path, tmp_path: Path) -> None:
    with server(folder, tmp_path) as one:
        assert one.ready()
        assert one.hello["fork"] is False
        for name, verdict in [
            ("good", Verdict.VERIFIED),
            ("segfault", Verdict.CRASHED),
            ("leaves", Verdict.CRASHED),
            ("good", Verdict.VERIFIED),
        ]:
            assert verdict_of(run(one, name)).verdict is verdict
        assert verdict_of(run(one, "hang", seconds=1.0)).verdict is Verdict.HUNG
        assert verdict_of(run(one, "eats", memory=200)).verdict is Verdict.OUT_OF_MEMORY
        assert one.left_behind == []


@pytest.mark.usefixtures("without_fork")
def test_no_spare_is_kept_where_only_one_process_may_be(folder: Path, tmp_path: Path) -> None:
    before = len(psutil.Process().children())
    with server(folder, tmp_path, spares=0) as one:
        assert one.ready()
        assert len(psutil.Process().children()) == before
        for _ in range(2):
            assert verdict_of(run(one, "good")).verdict is Verdict.VERIFIED
            assert len(psutil.Process().children()) == before


ORPHAN = """
import os, sys
from pathlib import Path
from attn_doctor.pool.pool import Pool
from attn_doctor.pool.task import Task
job = {"action": "import", "module": "failing_hang", "package": "x", "seconds": 60.0}
with Pool(sys.executable, os.environ, Path(sys.argv[1]), jobs="backends.job", modules=["torch"],
          fresh=False) as pool:
    log = Path(sys.argv[1]) / "job.log"
    pool.start(Task(id=1, job=job, log=log, limit=60.0, memory_mib=512))
    while not pool._active[1].pid:
        pool.wait(0.1)
    print(pool._server.running.pid, pool._active[1].pid, flush=True)
    while True:
        pool.wait(0.1)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux offers it")
def test_nothing_is_left_when_we_are_killed(folder: Path, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(folder)}
    argv = [sys.executable, "-c", ORPHAN, str(tmp_path)]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2
        process.kill()
    end = time.monotonic() + 10
    while any(alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
