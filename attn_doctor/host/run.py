"""Runs a program within a time limit, whatever becomes of it.

Programs run in a session of their own. At the time limit the whole process group is killed,
waited for briefly, and abandoned if it does not die: a process stuck in the kernel (a hung GPU
driver, a dead NFS server) ignores SIGKILL, and waiting for it would hang us as well.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

#: Bytes of output that are kept, from the beginning.
OUTPUT_LIMIT = 1 << 18
#: Seconds to wait for a killed process before it is left behind.
GRACE = 0.5


def run(argv: Sequence[str], seconds: float, variables: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a `Ran`, for `argv` run with no other environment than `variables`."""
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=os.path.abspath(os.sep),
            env=variables,
            start_new_session=True,
        )
    except FileNotFoundError:
        return {"outcome": "missing"}
    except OSError as error:
        return {"outcome": "refused", "err": str(error)}
    out, err = _Drain(child.stdout), _Drain(child.stderr)
    outcome = _wait(child, seconds)
    if outcome != "abandoned":
        # A grandchild may keep the pipe open; what it would still print is not waited for.
        out.join(GRACE)
        err.join(GRACE)
    return {
        "outcome": outcome,
        "code": child.returncode,
        "out": out.text(),
        "err": err.text(),
        "pid": child.pid,
    }


class _Drain(threading.Thread):
    """Reads a pipe to its end so that the writer never blocks, and keeps the first part."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        super().__init__(daemon=True)
        self._pipe = pipe
        self._kept = bytearray()
        self.start()

    def run(self) -> None:
        if self._pipe is None:
            return
        with self._pipe as pipe:
            while chunk := os.read(pipe.fileno(), 1 << 16):
                self._kept += chunk[: OUTPUT_LIMIT - len(self._kept)]

    def text(self) -> str:
        return self._kept.decode("utf-8", "replace")


def _wait(child: subprocess.Popen[bytes], seconds: float) -> str:
    """Wait for a child that leads its own process group. Returns an outcome of `Ran`."""
    try:
        _until_ended(child, seconds)
        return "done"
    except subprocess.TimeoutExpired:
        pass
    try:
        if os.name == "nt":
            child.kill()
        else:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(GRACE)
        return "timeout"
    except (OSError, subprocess.TimeoutExpired):
        return "abandoned"


def _until_ended(child: subprocess.Popen[bytes], seconds: float) -> None:
    """`child.wait(seconds)`, which looks at ever longer intervals, without the time that costs."""
    open_handle = getattr(os, "pidfd_open", None)
    try:
        handle = open_handle(child.pid) if open_handle else -1
    except OSError:
        handle = -1
    if handle >= 0:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.poll(seconds * 1000)
        os.close(handle)
        seconds = 0
    child.wait(seconds)
