"""Imports torch once in the examined interpreter, then runs each job in a fork of itself.

Started as ``python -B serve.py``. The first line on standard input says how; each further line is
a job. Answers are JSON lines on the descriptor that was standard output; standard output itself,
like standard error, leads to a log, so that nothing a package prints can be taken for an answer.

A fork is only possible while CUDA is untouched. Where that is not so, or where there is no fork,
this process says so, takes one job and runs it itself. What it cannot know: whether a package
started threads at import that a fork loses.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
import types
from collections.abc import Callable
from typing import IO, Any

_HERE = os.path.dirname(os.path.abspath(__file__))
#: Modules whose presence decides what can be run.
_PACKAGES = (
    "torch", "triton", "flash_attn", "flash_attn_interface", "sageattention", "xformers",
    "diffusers", "kernels",
)  # fmt: skip
Tell = Callable[..., None]


def main() -> int:
    """Serve until standard input ends."""
    jobs, tell = _private_streams()
    start = json.loads(jobs.readline() or "{}")
    _log_to(start["log"])
    _die_with_parent(start["parent"])
    _find_siblings()
    _leave_traces(start["seconds"] * 0.8)
    for module in start["modules"]:
        tell("stage", stage="import", module=module)
        if not _import(module, tell):
            return 0
    faulthandler.cancel_dump_traceback_later()
    fork, why = _can_fork(start["fork"])
    tell("ready", fork=fork, why=why, packages=_packages(), **_versions())
    while line := jobs.readline():
        job = json.loads(line)
        if not fork:
            _work(job, tell)
            # A package's own clean-up at exit is not what is examined.
            _leave(0)
        pid = os.fork()
        if pid == 0:
            _lead_group()
            _die_with_parent(os.getppid())
            _work(job, tell)
            _leave(0)
        _, status = os.waitpid(pid, 0)
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        tell("ended", job=job["job"], code=code)
    return 0


def _private_streams() -> tuple[IO[str], Tell]:
    """Standard input and output, moved to where no package finds them."""
    jobs = os.fdopen(os.dup(0), "r", encoding="utf-8")
    answers = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    token = os.environ.pop("ATTN_DOCTOR_TOKEN", "")

    def tell(event: str, **values: Any) -> None:
        line = json.dumps({"event": event, "token": token, **values}, default=str)
        os.write(answers, b"\n" + line.encode("ascii", "replace") + b"\n")

    return jobs, tell


def _log_to(path: str) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _lead_group() -> None:
    os.setsid()


def _die_with_parent(parent: int) -> None:
    """Where Linux offers it: be killed when the process that started us is gone."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    try:
        # The C library of this process; PR_SET_PDEATHSIG is 1.
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:
        _leave(1)


def _find_siblings() -> None:
    """Make the modules beside this one importable, by their full names and nothing else.

    The folder of this script leaves `sys.path`, where it would shadow modules of the examined
    environment; attn-doctor itself need not be installed there.
    """
    here = os.path.normcase(_HERE)
    sys.path[:] = [path for path in sys.path if os.path.normcase(os.path.abspath(path)) != here]
    folder = _HERE
    for name in ("worker.backends", "worker", ""):
        full = "attn_doctor" + (f".{name}" if name else "")
        module = types.ModuleType(full)
        module.__path__ = [folder]
        sys.modules[full] = module
        folder = os.path.dirname(folder)


def _import(module: str, tell: Tell) -> bool:
    """Import one module of the stem; say how it went."""
    import importlib
    import traceback

    start = time.perf_counter()
    try:
        importlib.import_module(module)
    except BaseException as error:
        traceback.print_exc()
        tell("failed", stage="import", type=type(error).__name__, message=str(error)[:2000])
        return False
    tell("imported", module=module, seconds=round(time.perf_counter() - start, 3))
    return True


def _can_fork(wanted: bool) -> tuple[bool, str]:
    """Whether a fork may use CUDA, and why not."""
    if not wanted:
        return False, "not asked for"
    if not hasattr(os, "fork") or not sys.platform.startswith("linux"):
        return False, "forks are not safe on this system"
    import torch

    if torch.cuda.is_initialized() or _driver_is_initialized() or _forks_are_refused():
        return False, "an imported package has initialised CUDA"
    return True, ""


def _forks_are_refused() -> bool:
    """A fork would hear `Cannot re-initialize CUDA in forked subprocess`: one is tried."""
    pid = os.fork()
    if pid == 0:
        import torch

        refused = getattr(torch._C, "_cuda_isInBadFork", bool)
        os._exit(int(bool(refused())))
    return os.waitpid(pid, 0)[1] != 0


def _driver_is_initialized() -> bool:
    """`cuInit` was called in this process; the driver says so itself."""
    import ctypes

    try:
        # Without loading it: what is not loaded is not initialised.
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        count = ctypes.c_int()
        # 3 is CUDA_ERROR_NOT_INITIALIZED.
        return int(driver.cuDeviceGetCount(ctypes.byref(count))) != 3
    except (OSError, AttributeError):
        return False


def _packages() -> dict[str, bool]:
    """Which packages could be imported. Finding a top-level module executes nothing of it."""
    import importlib.util

    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):
            # It is there, but in a state in which it cannot say so.
            found[name] = name in sys.modules
    return found


def _versions() -> dict[str, Any]:
    import torch

    return {
        "python": sys.version.split()[0],
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
    }


def _work(job: dict[str, Any], tell: Tell) -> None:
    """One job, in a process that may die of it."""
    _log_to(job["log"])
    _first_to_be_killed()
    _leave_traces(job["seconds"] * 0.95)
    os.environ.update(job["env"])
    for name in job["unset"]:
        os.environ.pop(name, None)
    tell("started", job=job["job"], pid=os.getpid())

    def say(event: str, **values: Any) -> None:
        tell(event, job=job["job"], **values)

    from attn_doctor.worker.backends.job import run

    run(job, say)
    faulthandler.cancel_dump_traceback_later()
    say("done")


def _leave_traces(seconds: float) -> None:
    """A crash, and a hang of so many `seconds`, leave in the log where they happened."""
    faulthandler.enable()
    faulthandler.dump_traceback_later(max(0.2, seconds))


def _first_to_be_killed() -> None:
    """If memory runs out all the same, the kernel shall take this process and no other."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass


def _leave(code: int) -> None:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
