"""Runs jobs in the examined interpreter: imports torch once, then forks a process for every job.

Started by `launch.py` with its options as JSON: `kind` (`fork`: many jobs, each in a fork of its
own; `single`: one job in this process), `jobs` (the module of this package that runs them, such as
`worker/kernels/job.py`), `modules` (what is imported before), `cuda` (jobs use a GPU), `log` and
`patience` (seconds for the imports).

A module of jobs has `prepare(modules, emit)`, `describe()` with values for the `ready` event,
`warm_up(device)` and `run_job(job, emit)`, which returns the result.

Commands are JSON lines on standard input. Events are JSON lines on what was standard output; all
that torch and compilers print goes to `log`, or to the log of the job. When standard input ends,
the process that started this one has ended: every job is killed and this process ends too.

Why a fork counts as a fresh process: before the fork nothing was compiled or even traced. There is
no CUDA context, Dynamo's, AOTAutograd's and Inductor's caches in memory are empty, no Triton kernel
exists; only modules are loaded, which are the same in every process, and the digests of torch's and
Triton's sources are taken. What a job finds in a cache it finds on disk. `_can_fork` checks that it
is so, and the first kernel of every build is verified in a process of its own all the same. Where a
fork would not be fresh, this process runs a single job itself. What it cannot know: whether a
package started threads at import that a fork loses.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import select
import sys
import threading
import time
from typing import Any

from attn_doctor.worker import cuda_driver
from attn_doctor.worker.forks import ForkServer, run_one
from attn_doctor.worker.stub_gpu import guard
from attn_doctor.worker.wire import (
    Emit,
    kill_group,
    print_to,
    private_streams,
    read_line,
)

#: Inductor and other packages ask at import whether there is a GPU. Through CUDA, that would spoil
#: every fork; with this variable torch asks NVML instead, which leaves CUDA alone.
NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"


def main(argv: list[str]) -> int:
    """Serve until the commands end."""
    options = json.loads(argv[0])
    commands, emit = private_streams()
    print_to(options["log"])
    faulthandler.enable()
    watch = _ParentWatch(commands, emit)
    forks = options["kind"] == "fork"
    before = os.environ.get(NVML)
    if forks:
        os.environ[NVML] = "1"
    start = time.monotonic()
    # Where an import hangs is then in the log before the pool gives up.
    faulthandler.dump_traceback_later(max(0.2, 0.8 * options["patience"]))
    try:
        jobs: Any = importlib.import_module(f"attn_doctor.worker.{options['jobs']}")
        jobs.prepare(options["modules"], emit)
        described = jobs.describe()
    except BaseException as error:
        import traceback

        traceback.print_exc()
        names = [kind.__name__ for kind in type(error).__mro__]
        emit("broken", type=names[0], kinds=names, message=str(error)[:4000])
        return _leave(1)
    faulthandler.cancel_dump_traceback_later()
    watch.imported = True
    # Jobs see the user's own environment.
    if forks and before is None:
        del os.environ[NVML]
    elif forks:
        os.environ[NVML] = str(before)
    if forks:
        # A process that is forked must have one thread alone; the server notices the end itself.
        watch.stop()
        forks = _can_fork(cuda=options["cuda"])
        if not forks:
            watch = _ParentWatch(commands, emit)
            watch.imported = True
    ready = {"pid": os.getpid(), "seconds": time.monotonic() - start, "fork": forks, **described}
    if forks:
        return _leave(ForkServer(jobs, commands, emit, ready).run())
    emit("ready", **ready)
    return _leave(_single(jobs, commands, emit))


def _single(jobs: Any, commands: int, emit: Emit) -> int:
    """Run one job in this process. Its context may be made before."""
    while True:
        line = read_line(commands)
        if not line:
            return 0
        command = json.loads(line)
        if "warm_up" not in command:
            break
        try:
            jobs.warm_up(command["warm_up"])
        except Exception as error:  # the job will fail for the same reason, and say so
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
    start = time.monotonic()

    def forward(event: str, **values: Any) -> None:
        emit(event, id=command["id"], **values)

    result = run_one(jobs, command, forward)
    seconds = time.monotonic() - start
    emit("ended", id=command["id"], code=0, seconds=seconds, result=result)
    return 0


def _leave(code: int) -> int:
    """End at once: taking torch apart takes a while, and exit handlers are not examined."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _can_fork(*, cuda: bool) -> bool:
    """Whether forks are as fresh as the top of this file says, and can use CUDA if they have to."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None and any(sum(group.values()) for group in dynamo.counters.values()):
        return False
    return not cuda or not _cuda_was_used()


def _cuda_was_used() -> bool:
    """An import has used CUDA, so that a fork could not."""
    # The stub GPU answers without initialisation, and every fork can use it.
    if not guard.active() and cuda_driver.was_initialised():
        return True
    # A fork of a process that has asked CUDA anything is refused by torch, so one fork asks.
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            torch = sys.modules.get("torch")
            refused = getattr(getattr(torch, "_C", None), "_cuda_isInBadFork", None)
            initialised = getattr(getattr(torch, "cuda", None), "is_initialized", bool)
            code = int(bool(refused and refused()) or bool(initialised()))
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] != 0


class _ParentWatch:
    """A thread that ends this process when its commands end while it imports or runs a job.

    While it imports, the thread reports how many modules are loaded.
    """

    def __init__(self, commands: int, emit: Emit) -> None:
        self._commands, self._emit = commands, emit
        self.imported = False
        """All is imported, and nothing more is reported."""
        self._stopped, self._stop = os.pipe()
        self._thread = threading.Thread(target=self._run, daemon=True)
        if hasattr(select, "poll"):
            self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        os.write(self._stop, b"x")
        self._thread.join()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._commands, 0)  # the end of a pipe is always reported, nothing is read
        poll.register(self._stopped, select.POLLIN)
        while not (ended := poll.poll(None if self.imported else 500)):
            if not self.imported:
                self._emit("importing", modules=len(sys.modules))
        if any(number == self._stopped for number, _ in ended):
            return
        kill_group(os.getpgrp())
        os._exit(1)
