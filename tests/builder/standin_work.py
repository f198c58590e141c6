"""Stands where `child/work.py` does: a child that answers, crashes or hangs as its spec says.

What it "compiles" is a file in the cache folder; a proof succeeds if it finds that file. So the
server, the pool and the build are tried with real processes, in seconds and without torch.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any


def prepare() -> None:
    """As torch's import would: it may fail, or end the process."""
    how = os.environ.get("STANDIN_PREPARE", "")
    if how == "raise":
        raise ImportError("libcudart.so.13: cannot open shared object file")
    if how == "die":
        os.kill(os.getpid(), signal.SIGABRT)
    if how.startswith("sleep"):
        time.sleep(float(how.partition(" ")[2]))


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Do what the mask of the spec is called."""
    sys.stdout.write(f"at work on {job['action']}\n")
    if job["action"] == "surroundings":
        return {"ok": True, "surroundings": {"torch": "2.13.0+cpu", "device": "cpu"}}
    how, _, word = job["spec"].get("mask", "none").partition(":")
    if how == "die":
        os.kill(os.getpid(), getattr(signal, word))
    if how == "exit":
        os._exit(int(word[1:]))
    if how == "hang":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
        with open(os.path.join(_folder(), "grandchild"), "w", encoding="ascii") as file:
            file.write(str(child.pid))
        time.sleep(100)
    if how == "sleep":
        time.sleep(float(word[1:]) / 10)
    if how == "refuse":
        return _failed("ValueError", "ValueError: no such thing")
    if how == "memory" and job["action"] == "build" and _crowded():
        return _failed("OutOfMemoryError", "OutOfMemoryError: CUDA out of memory. Tried 2 GiB")
    path = os.path.join(_folder(), "aa", f"{job['spec_id']}.so")
    if job["action"] == "prove":
        if how == "forgetful" or not os.path.exists(path):
            return _failed("NotReused", "the FX graph was compiled again; differs: inductor")
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as file:
            file.write("kernel")
    return {
        "ok": True,
        "seconds": 0.5,
        "errors": {"out": 1e-3},
        "counters": {"inductor.fxgraph_cache_hit": 1},
        "keys": {"fxgraph": ["f" + job["spec_id"]], "aotautograd": [], "triton": []},
        "files": {f"aa/{job['spec_id']}.so": 6},
        "limits": [],
        "pid": os.getpid(),
        "text": "x" * (500_000 if how == "large" else 0),
    }


def _folder() -> str:
    return os.environ["TORCHINDUCTOR_CACHE_DIR"]


def _crowded() -> bool:
    """Another job of this kind is under way: as GPU memory, it does not suffice for two."""
    mark = os.path.join(_folder(), "taken")
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return True
    time.sleep(0.5)
    os.unlink(mark)
    return False


def _failed(type: str, message: str) -> dict[str, Any]:
    return {"ok": False, "failure": {"type": type, "message": message, "unfused_reason": ""}}
