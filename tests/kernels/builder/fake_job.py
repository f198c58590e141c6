"""Replaces `worker/kernels/job.py`: a job that answers, crashes or hangs as its spec says.

What it "compiles" is a file in the cache folder; a verification succeeds if it finds that file. So
the server, the pool and the build are tested with real processes, in seconds and without torch.
With ATTN_DOCTOR_STUB_GPU it plays a stub GPU: what it builds is unverified, and a kernel for the
mask `wrong` then fails its verification on the GPU; `timed` and `fragile` cannot be built on it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any


def prepare(modules: list[str], emit: Callable[..., None]) -> None:
    """Act as the import of torch: it may fail, or end the process."""
    how = os.environ.get("FAKE_PREPARE", "")
    if how == "raise":
        raise ImportError("libcudart.so.13: cannot open shared object file")
    if how == "die":
        os.kill(os.getpid(), signal.SIGABRT)
    if how.startswith("sleep"):
        time.sleep(float(how.partition(" ")[2]))


def describe() -> dict[str, Any]:
    """There is nothing to say."""
    return {}


def warm_up(device: str) -> None:
    """Act as the making of a context: it fails as the variable says while no memory is free."""
    how = os.environ.get("FAKE_WARM_UP", "")
    free = os.path.exists(os.path.join(_folder(), "memory"))
    if how == "die" and not free:
        os.kill(os.getpid(), signal.SIGABRT)
    if how == "raise" and not free:
        raise RuntimeError("CUDA error: out of memory")
    if how == "slow" and device:
        start = time.monotonic()
        time.sleep(0.2)
        path = os.path.join(_folder(), f"warmed-{os.getpid()}")
        with open(path, "w", encoding="ascii") as file:
            file.write(f"{start} {time.monotonic()}")


def run_job(job: dict[str, Any], emit: Callable[..., None]) -> dict[str, Any]:
    """Do what the name of the spec's mask says."""
    emit("begun")
    sys.stdout.write(f"at work on {job['action']}\n")
    if job["action"] == "environment":
        time.sleep(float(os.environ.get("FAKE_ENVIRONMENT_SECONDS", "0")))
        return {"ok": True, "environment": _build_environment()}
    how, _, word = job["spec"].get("mask", "none").partition(":")
    _misbehave(how, word)
    if how == "refuse":
        return _failed("ValueError", "ValueError: no such thing")
    if {"memory": "build", "verify-memory": "verify"}.get(how) == job["action"] and _crowded():
        return _failed("OutOfMemoryError", "OutOfMemoryError: CUDA out of memory. Tried 2 GiB")
    stub = bool(os.environ.get("ATTN_DOCTOR_STUB_GPU"))
    if stub and how == "timed":
        return _failed("Refused", "torch times kernels while compiling")
    if stub and how == "fragile":
        os.kill(os.getpid(), signal.SIGSEGV)
    if stub:
        _leave(os.path.join("ab", f"{job['spec_id']}.best_config"))
        _leave(os.path.join("locks", "x.lock"))
    path = os.path.join(_folder(), "aa", f"{job['spec_id']}.so")
    if job["action"] != "verify":
        _compiled(path, stub)
    elif failed := _proof(how, path, stub):
        return failed
    return {
        "ok": True,
        "seconds": 0.5,
        "errors": {} if stub else {"out": 1e-3},
        **({"unverified": True} if stub else {}),
        "counters": {"inductor.fxgraph_cache_hit": 1},
        "keys": {"fxgraph": ["f" + job["spec_id"]], "aotautograd": [], "triton": []},
        "files": {f"aa/{job['spec_id']}.so": 6},
        "limits": [],
        "pid": os.getpid(),
        "text": "x" * (500_000 if how == "large" else 0),
    }


def _build_environment() -> dict[str, Any]:
    gpu = os.environ.get("FAKE_GPU", "")
    sm = int(os.environ.get("FAKE_SM", "90")) if gpu else None
    found = {"torch": "2.13.0+cpu", "device": gpu or "cpu", "driver": "1.2.3" if gpu else None}
    return {**found, "torch_key": os.environ.get("FAKE_TORCH_KEY"), "sm": sm}


def _misbehave(how: str, word: str) -> None:
    """Die, hang or take long, as a compiler may."""
    if how == "die":
        os.kill(os.getpid(), getattr(signal, word))
    if how == "exit":
        os._exit(int(word[1:]))
    if how == "hang":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
        path = os.path.join(_folder(), "grandchild")
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(str(child.pid))
        os.replace(f"{path}.new", path)
        time.sleep(100)
    if how == "sleep":
        time.sleep(float(word[1:]) / 10)


def _compiled(path: str, stub: bool) -> None:
    """What is found in a cache is not compiled again, right or wrong."""
    if os.path.exists(path):
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        file.write("folded" if stub else "kernel")


def _proof(how: str, path: str, stub: bool) -> dict[str, Any] | None:
    if how == "forgetful" or not os.path.exists(path):
        return _failed("NotReused", "the FX graph was compiled again; differs: inductor")
    with open(path, encoding="ascii") as file:
        text = file.read()
    if how == "wrong" and not stub and text == "folded":
        return _failed("Wrong", "dk differs from float64 by 1; 0.02 is allowed")
    return None


def _leave(name: str) -> None:
    """What compilers leave beside a kernel."""
    path = os.path.join(_folder(), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "a", encoding="ascii"):
        pass


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
