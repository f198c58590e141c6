"""Runs probes in processes of their own, forks of this one, where processors are free.

On a machine with a GPU most of a check goes to five probes that read libraries and lists of files,
and to a driver that takes 50 ms to answer. Side by side all takes 0.15 s instead of 0.25 s, beside
an H100. Only Linux forks safely, and only a process without other threads; so `Host.forks` says
that this is the command line's own process.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress

from attn_doctor import processes
from attn_doctor.host import Host
from attn_doctor.probes.running import Running
from attn_doctor.worker import reach

#: Probes that take longest, besides NVIDIA's.
APART = ("torch", "file", "extension", "package", "metadata")
#: With fewer processors everything runs in this process.
PROCESSORS = 4


class Forks:
    """The probes that run in forks of this process, if any may."""

    def __init__(self, host: Host) -> None:
        self.running: list[Running] = []
        self._threads: list[_Forked] = []
        self.possible = _possible(host)

    def begin(self, *all: Running) -> None:
        """Fork for each probe, as far as there can be processes."""
        for one in all if self.possible else ():
            with suppress(OSError):
                self._threads.append(_Forked(one))
                self.running.append(one)

    def wait(self) -> list[_Forked]:
        """Wait for results in threads, and return these. Nothing can be forked afterwards."""
        for one in self._threads:
            one.start()
        return self._threads

    def end(self) -> None:
        """Kill the forks that still run, with all that they started."""
        for one in self._threads:
            one.end()


def _possible(host: Host) -> bool:
    return (
        host.forks
        and sys.platform == "linux"
        and threading.active_count() == 1
        and reach.all_answer()
        and len(os.sched_getaffinity(0)) >= PROCESSORS
    )


class _Forked(threading.Thread):
    """A probe in a fork. The thread waits for what it returns.

    Raises `OSError` if there cannot be another process.
    """

    def __init__(self, one: Running) -> None:
        super().__init__(daemon=True)
        self._one = one
        self._answer, write = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            _answer(one, write)
        os.close(write)

    def run(self) -> None:
        import pickle

        with os.fdopen(self._answer, "rb") as pipe, processes.awaited(self._pid):
            content = pipe.read()
            os.waitpid(self._pid, 0)
        one = self._one
        try:
            # From a fork of this very process.
            one.result, one.gaps.reasons, one.failure = pickle.loads(content)  # noqa: S301
        except (EOFError, pickle.UnpicklingError):
            one.failure = f"the process of the {one.probe.name} probe ended without a result"
        one.ended = True

    def end(self) -> None:
        """Kill the fork unless it has ended."""
        if self._one.ended:
            return
        with suppress(OSError):
            processes.kill_tree(self._pid, group=False)
        if self.ident is None:
            self.start()
        self.join(processes.GRACE)


def _answer(one: Running, write: int) -> None:
    """Run a probe and write what it returns. Ends this process."""
    code = 1
    try:
        import signal  # takes a millisecond, which a machine with few processors need not spend

        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of a fork
        one.run()
        import pickle

        content = pickle.dumps((one.result, one.gaps.reasons, one.failure))
        with os.fdopen(write, "wb") as pipe:
            pipe.write(content)
        code = 0
    finally:
        os._exit(code)
