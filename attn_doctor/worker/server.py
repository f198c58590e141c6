"""Runs in the examined interpreter: imports torch once, then forks a process for every job.

    python serve.py fork LOG      many jobs, each in a fork of its own
    python serve.py one LOG       one job in this very process; where fork is not safe or not there

Commands come as JSON lines on standard input, events go as JSON lines to what was standard output;
all that torch and compilers print goes to LOG, or to the log of the job. Only the standard library
and torch are there; Python 3.9 and newer. When standard input ends, whoever started this has gone:
every job is killed and this process ends, so that nothing compiles for nobody.

Why a fork counts as a fresh process: before the fork nothing was compiled or even traced. There is
no CUDA context, Dynamo's, AOTAutograd's and Inductor's caches in memory are empty, no Triton kernel
exists; only modules are loaded, which are the same in every process, and the digests of torch's and
Triton's sources are taken. What a job finds in a cache it finds on disk. `_forkable` looks whether
it is so, and the first spec of every build is verified in a process started by `python`.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

if "attn_doctor" not in sys.modules:
    # As in work.py: our package comes into reach by its place, and nothing that lies beside it.
    _ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    _spec = importlib.util.spec_from_file_location(
        "attn_doctor", os.path.join(_ROOT, "__init__.py"), submodule_search_locations=[_ROOT]
    )
    if _spec is None or _spec.loader is None:
        raise ImportError(f"{_ROOT} holds no package")
    sys.modules["attn_doctor"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["attn_doctor"])

from attn_doctor.worker.forks import Server
from attn_doctor.worker.wire import (
    COMMANDS,
    Event,
    kill_group,
    print_to,
    read_line,
    teller,
)

HERE = os.path.dirname(os.path.abspath(__file__))
#: Inductor asks at its import whether there is a GPU. Through CUDA, that would spoil every fork;
#: with this variable torch asks NVML instead, which leaves CUDA alone.
NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"


def main(argv: list[str]) -> int:
    """Serve until the commands end."""
    mode, log = argv
    out = os.dup(1)
    print_to(log)
    tell = teller(out)
    faulthandler.enable()
    start = time.monotonic()
    guard = _Guard()
    asked = os.environ.get(NVML)
    if mode == "fork":
        os.environ[NVML] = "1"
    try:
        work = _load_work()
        prepare = getattr(work, "prepare", None)
        if prepare is not None:
            prepare()
    except BaseException as error:
        import traceback

        traceback.print_exc()
        tell({"event": "broken", "message": f"{type(error).__name__}: {error}"})
        return 1
    ready = {"event": "ready", "pid": os.getpid(), "seconds": time.monotonic() - start}
    if mode == "one":
        return _one(work, tell, ready)
    _hash_sources()
    # The server looks itself; and a process that is forked must have one thread alone.
    guard.leave()
    # The jobs are to see the user's own environment.
    os.environ.pop(NVML)
    if asked is not None:
        os.environ[NVML] = asked
    return Server(work, tell, {**ready, **_forkable()}).run()


def _load_work() -> Any:
    """The module beside this one. Our folder goes to the end of the path, where it hides nothing.

    A module `work` of the user's own must stay reachable, so ours is loaded from its file.
    """
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or os.sep) != HERE]
    sys.path.append(HERE)
    spec = importlib.util.spec_from_file_location("job", os.path.join(HERE, "kernels", "job.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"work.py is missing in {HERE}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["work"] = module
    spec.loader.exec_module(module)
    return module


def _hash_sources() -> None:
    """Let torch and Triton take the digests of their own sources, which all keys hold, only once.

    It costs a second in every process; the digest is the same in all of them.
    """
    for module, name in (
        ("torch._inductor.codecache", "torch_key"),
        ("triton.runtime.cache", "triton_key"),
        ("triton.compiler.compiler", "triton_key"),
    ):
        function = getattr(sys.modules.get(module), name, None)
        try:
            if function is not None:
                function()
        except Exception as error:
            sys.stderr.write(f"{module}.{name}: {error}\n")


def _forkable() -> Event:
    """Whether forks are as fresh as the top of this file says (`fork`), and may use CUDA (`cuda`).

    A fork of a process that has asked CUDA anything knows that it may not, so one is asked.
    """
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None and any(sum(one.values()) for one in dynamo.counters.values()):
        return {"fork": False, "cuda": False}
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            torch = sys.modules.get("torch")
            spoiled = getattr(torch._C, "_cuda_isInBadFork", None) if torch is not None else None
            code = int(bool(spoiled is not None and spoiled()))
        finally:
            os._exit(code)
    return {"fork": True, "cuda": os.waitpid(pid, 0)[1] == 0}


class _Guard:
    """A thread that ends this process once nobody reads our events any more.

    Importing torch takes a while, and so does a job; nobody listens to the commands meanwhile.
    """

    def __init__(self) -> None:
        self._leave, self._told = os.pipe()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if hasattr(select, "poll"):
            self._thread.start()

    def leave(self) -> None:
        """Stop watching."""
        os.write(self._told, b"x")
        self._thread.join()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(COMMANDS, 0)  # hanging up is always told, and nothing is read
        poll.register(self._leave, select.POLLIN)
        if any(number == self._leave for number, _ in poll.poll()):
            return
        kill_group(os.getpgrp())
        os._exit(1)


# One job in this process


def _one(work: Any, tell: Callable[[Event], None], ready: Event) -> int:
    tell(ready)
    command = {"standby": ""}
    while "standby" in command:
        if command["standby"]:
            with suppress(Exception):  # the job will fail at the same, and say it
                work.standby(command["standby"])
        line = read_line()
        if not line:
            return 0
        command = json.loads(line)
    print_to(command["log"])
    start = time.monotonic()
    result = work.work(command["job"])
    tell(
        {
            "event": "ended",
            "id": command["id"],
            "status": 0,
            "seconds": time.monotonic() - start,
            "result": result,
        }
    )
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    ended = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Taking torch apart would take a while, and whoever started this waits for it.
    os._exit(ended)
