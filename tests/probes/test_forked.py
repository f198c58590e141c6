"""Probes in forks give the same facts, and one that dies or hangs costs only its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks safely")

#: In a process of its own: pytest has threads, and what has threads is not forked.
EXAMINE = """
import json, os, sys, time
from attn_doctor.examination import examine
from attn_doctor.facts import to_json
from attn_doctor.host.local import LocalHost
from attn_doctor.probes import forked, nvidia, registry
from attn_doctor.probes.running import Probe

def fail(*_):
    {fail}

forked.PROCESSORS = {processors}
forked.APART = {apart}
forks = []
begin = os.fork
os.fork = lambda: forks.append(begin()) or forks[-1]
if {probes}:
    registry.PROBES = (Probe("cache", ("caches",), fail), nvidia.PROBE)
host = LocalHost()
host.forks = {allowed}
start = time.monotonic()
facts = examine(host, sys.executable, limit={limit})
alive = [pid for pid in forks if os.path.exists(f"/proc/{{pid}}/root")]
print(json.dumps({{
    "facts": json.loads(to_json(facts)), "forks": len(forks), "alive": len(alive),
    "seconds": time.monotonic() - start,
}}))
"""
ALL = ("torch", "file", "extension", "package", "metadata")


def examined(folder: Path, **changes: Any) -> dict[str, Any]:
    """The facts, the number of forks and of those that were left, and the seconds."""
    values = {"fail": "pass", "processors": 1, "apart": ALL, "probes": False, "allowed": True}
    script = EXAMINE.format(**{"limit": 2.0, **values, **changes})
    argv = [sys.executable, "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=150, cwd=folder, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_forks_find_the_same(tmp_path: Path) -> None:
    """All but what changes by itself: the time, what is free, and what uses a GPU."""
    # A slow machine needs more than two seconds.
    forked, alone = (examined(tmp_path, allowed=some, limit=60.0) for some in (True, False))
    assert (forked["forks"], alone["forks"]) == (1 + len(ALL), 0)
    for one in (forked, alone):
        del one["facts"]["taken"], one["facts"]["system"], one["facts"]["directories"]
        del one["facts"]["caches"]  # other tests use them
        one["facts"]["gaps"].pop("caches", None)
        one["facts"]["gpus"] = [gpu["uuid"] for gpu in one["facts"]["gpus"] or ()]
    assert forked["facts"] == alone["facts"]


def test_few_processors_are_left_to_one_process(tmp_path: Path) -> None:
    assert examined(tmp_path, processors=4096)["forks"] == 0


@pytest.mark.parametrize(
    ("fail", "reason"),
    [
        ("os.kill(os.getpid(), 9)", "the process of the cache probe ended without a result"),
        ("raise ValueError('no')", "the cache probe failed: ValueError: no"),
    ],
)
def test_a_fork_that_fails_costs_its_own_facts(fail: str, reason: str, tmp_path: Path) -> None:
    found = examined(tmp_path, fail=fail, apart=("cache",), probes=True)
    assert found["facts"]["gaps"]["caches"] == reason
    assert found["facts"]["driver"]["state"]


def test_a_fork_that_hangs_is_killed(tmp_path: Path) -> None:
    found = examined(tmp_path, fail="time.sleep(600)", apart=("cache",), probes=True)
    assert found["facts"]["gaps"]["caches"].startswith("the cache probe did not answer within")
    assert found["alive"] == 0
    assert found["seconds"] < 30
