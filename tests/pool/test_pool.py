"""Jobs in processes: they answer, crash and hang, and nothing is left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from attn_doctor.pool.pool import Pool, PoolError
from attn_doctor.pool.task import Outcome, Task

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are used on Linux alone")


def job(mask: str, action: str = "build") -> dict[str, Any]:
    return {"action": action, "spec": {"mask": mask}, "spec_id": mask.replace(":", "-")}


def pool(cache: Path, **variables: str) -> Pool:
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache), **variables}
    return Pool(sys.executable, env, cache)


def ended(one: Pool, count: int, seconds: float = 20.0) -> dict[int, Outcome]:
    found: dict[int, Outcome] = {}
    end = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        found.update({outcome.task.id: outcome for outcome in one.wait(0.2)})
    assert len(found) == count
    return found


def alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except FileNotFoundError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def soon_gone(pid: int, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while alive(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def task(number: int, mask: str, cache: Path, **fields: Any) -> Task:
    log = cache / f"{number}.log"
    return Task(id=number, job=job(mask), log=log, **{"limit": 20.0, **fields})


def test_jobs_answer_and_print_to_their_logs(serve: Path, cache: Path) -> None:
    with pool(cache) as one:
        for number, mask in enumerate(("none", "causal", "large")):
            one.start(task(number, mask, cache))
        found = ended(one, 3)
    assert all(outcome.result and outcome.result["ok"] for outcome in found.values())
    assert len(found[2].result["text"]) == 500_000  # type: ignore[index]
    assert (cache / "0.log").read_text() == "at work on build\n"
    assert one.start_seconds is not None


def test_every_job_has_a_process_of_its_own(serve: Path, cache: Path) -> None:
    with pool(cache) as one:
        one.start(task(0, "none", cache))
        one.start(task(1, "none", cache))
        one.start(task(2, "none", cache, fresh=True))
        found = ended(one, 3)
        server = one._server.running.pid  # type: ignore[union-attr]
    pids = {outcome.result["pid"] for outcome in found.values()}  # type: ignore[index]
    assert len(pids) == 3
    assert server not in pids


@pytest.mark.parametrize(
    ("mask", "reason"),
    [
        ("die:SIGSEGV", "was killed by SIGSEGV"),
        ("die:SIGABRT", "was killed by SIGABRT"),
        ("die:SIGKILL", "was killed by SIGKILL"),
        ("exit:x7", "ended without a result"),
    ],
)
def test_a_crash_costs_that_job_alone(serve: Path, cache: Path, mask: str, reason: str) -> None:
    with pool(cache) as one:
        one.start(task(0, mask, cache))
        one.start(task(1, mask, cache, fresh=True))
        one.start(task(2, "none", cache))
        found = ended(one, 3)
    assert [found[number].result for number in (0, 1)] == [None, None]
    assert [found[number].reason for number in (0, 1)] == [reason, reason]
    assert found[2].result is not None


def on_gpu(number: int, mask: str, cache: Path, **fields: Any) -> Task:
    one = task(number, mask, cache, **fields)
    return msgspec.structs.replace(one, job={**one.job, "device": "cuda:0"})


def settled(one: Pool) -> None:
    end = time.monotonic() + 10
    while not one.settled and time.monotonic() < end:
        assert not one.wait(0.05)
    assert one.settled


def forks(one: Pool, count: int) -> set[int]:
    """The children of the process that forks, once there are `count`."""
    (server,) = [each.running.pid for each in one._processes if each.forks]
    end = time.monotonic() + 10
    while True:
        children = Path(f"/proc/{server}/task/{server}/children").read_text("ascii").split()
        found = {int(pid) for pid in children if alive(int(pid))}
        if len(found) == count or time.monotonic() > end:
            assert len(found) == count
            return found
        time.sleep(0.05)


def test_warm_processes_take_the_next_jobs(serve: Path, cache: Path) -> None:
    with pool(cache) as one:
        one.start(on_gpu(0, "sleep:s9", cache))
        assert not one.settled
        settled(one)
        one.warm_up("cuda:0", 2)
        one.warm_up("cuda:0", 2)
        assert one.warm("cuda:0") == 2
        warm = forks(one, 3)
        for number in (1, 2, 3):
            one.start(on_gpu(number, "none", cache))
        one.start(task(4, "none", cache))
        one.start(on_gpu(5, "none", cache, fresh=True))
        found = ended(one, 6)
        assert one.warm("cuda:0") == 0
    pids = {number: (outcome.result or {})["pid"] for number, outcome in found.items()}
    assert {pids[0], pids[1], pids[2]} == warm
    assert len(set(pids.values())) == 6


@pytest.mark.parametrize("how", ["die", "raise"])
def test_a_process_that_cannot_warm_up_costs_nothing(serve: Path, cache: Path, how: str) -> None:
    memory = cache / "memory"
    memory.touch()
    with pool(cache, FAKE_WARM_UP=how) as one:
        one.start(on_gpu(0, "none", cache))
        ended(one, 1)
        memory.unlink()
        one.warm_up("cuda:0", 2)
        time.sleep(0.5)
        memory.touch()
        for number in (1, 2):
            one.start(on_gpu(number, "none", cache))
        found = ended(one, 2)
    assert all((outcome.result or {})["ok"] for outcome in found.values())


def test_few_processes_make_their_context_at_the_same_time(serve: Path, cache: Path) -> None:
    with pool(cache, FAKE_WARM_UP="slow") as one:
        for number in range(8):
            one.start(on_gpu(number, "none", cache))
        ended(one, 8)
    spans = [tuple(map(float, path.read_text().split())) for path in cache.glob("warmed-*")]
    beside = [sum(begun <= start < end for begun, end in spans) for start, _ in spans]
    assert len(spans) == 8
    assert 1 < max(beside) <= 3


def test_no_warm_process_is_left_behind(serve: Path, cache: Path) -> None:
    with pool(cache) as one:
        one.start(on_gpu(0, "none", cache))
        ended(one, 1)
        one.warm_up("cuda:0", 3)
        children = forks(one, 3)
    assert all(soon_gone(pid) for pid in children)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_hang_ends_at_its_limit_with_its_compilers(serve: Path, cache: Path, fresh: bool) -> None:
    with pool(cache) as one:
        one.start(task(0, "hang", cache, limit=1.0, fresh=fresh))
        found = ended(one, 1)
        assert found[0].timed_out
        assert found[0].reason == "gave no result within 1 s"
        assert soon_gone(int((cache / "grandchild").read_text()))


def test_the_limit_does_not_count_the_wait_for_torch(serve: Path, cache: Path) -> None:
    with pool(cache, FAKE_PREPARE="sleep 1.5") as one:
        one.start(task(0, "none", cache, limit=1.0))
        one.start(task(1, "none", cache, limit=1.0, fresh=True))
        found = ended(one, 2)
    assert all(outcome.result for outcome in found.values())


def test_a_server_that_dies_is_started_again(serve: Path, cache: Path) -> None:
    with pool(cache) as one:
        one.start(task(0, "hang", cache))
        while not (cache / "grandchild").exists():
            one.wait(0.1)
        grandchild = int((cache / "grandchild").read_text())
        os.kill(one._server.running.pid, signal.SIGKILL)  # type: ignore[union-attr]
        assert ended(one, 1)[0].result is None
        one.start(task(1, "none", cache))
        assert ended(one, 1)[1].result is not None
        assert soon_gone(grandchild)


def test_without_fork_each_job_gets_an_interpreter(serve: Path, cache: Path) -> None:
    server = serve.parent / "server.py"
    source = server.read_text("utf-8")
    changed = source.replace("return not cuda or not _cuda_was_used()", "return False")
    assert changed != source
    server.write_text(changed)
    with pool(cache) as one:
        one.start(task(0, "none", cache))
        one.start(task(1, "die:SIGSEGV", cache))
        found = ended(one, 2)
        one.start(task(2, "none", cache))
        assert ended(one, 1)[2].result is not None
    assert found[0].result is not None
    assert found[1].reason == "was killed by SIGSEGV"


@pytest.mark.parametrize(
    ("how", "reason"), [("raise", "libcudart.so.13"), ("die", "killed by SIGABRT")]
)
def test_torch_that_cannot_be_imported(serve: Path, cache: Path, how: str, reason: str) -> None:
    with pool(cache, FAKE_PREPARE=how) as one:
        one.start(task(0, "none", cache))
        with pytest.raises(PoolError, match=reason) as caught:
            ended(one, 1)
    assert caught.value.log.exists()


def test_a_program_that_is_not_an_interpreter(serve: Path, cache: Path) -> None:
    broken = cache / "python"
    broken.write_text("#!/bin/sh\necho this is not python >&2; exit 3\n")
    broken.chmod(0o755)
    with Pool(str(broken), dict(os.environ), cache) as one:
        one.start(task(0, "none", cache))
        with pytest.raises(PoolError, match="exit code 3: this is not python"):
            ended(one, 1)


def test_leaving_kills_everything(serve: Path, cache: Path) -> None:
    with pool(cache) as one:
        one.start(task(0, "hang", cache))
        while not (cache / "grandchild").exists():
            one.wait(0.1)
        pids = [process.running.pid for process in one._processes]
        pids += [active.pid for active in one._active.values()]
    assert all(soon_gone(pid) for pid in [*pids, int((cache / "grandchild").read_text())])


def test_nothing_lives_on_while_torch_is_imported(serve: Path, cache: Path) -> None:
    with pool(cache, FAKE_PREPARE="sleep 60") as one:
        one.start(task(0, "none", cache, fresh=True))
        end = time.monotonic() + 20
        while not one.modules and time.monotonic() < end:
            one.wait(1.0)
        assert one.modules > 0
        pids = [process.running.pid for process in one._processes]
        for process in one._processes:
            process.close()
        assert len(pids) == 2
        assert all(soon_gone(pid) for pid in pids)


def test_nothing_lives_on_when_its_parent_is_killed(serve: Path, cache: Path) -> None:
    script = (
        "import sys, os, time; from pathlib import Path\n"
        "from attn_doctor import worker\n"
        "from attn_doctor.pool import pool, task as tasks\n"
        f"worker.LAUNCHER = {str(serve)!r}\n"
        f"cache = Path({str(cache)!r})\n"
        "one = pool.Pool(sys.executable, dict(os.environ), cache).__enter__()\n"
        "job = {'action': 'build', 'spec': {'mask': 'hang'}, 'spec_id': 'h'}\n"
        "one.start(tasks.Task(id=0, job=job, log=cache / 'h.log', limit=50.0))\n"
        "while not (cache / 'grandchild').exists(): one.wait(0.1)\n"
        "print(*[p.running.pid for p in one._processes], *[a.pid for a in one._active.values()])\n"
        "sys.stdout.flush(); time.sleep(100)\n"
    )
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    with subprocess.Popen(
        [sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        parent.kill()
    assert len(pids) == 3
    assert all(soon_gone(pid) for pid in [*pids, int((cache / "grandchild").read_text())])
