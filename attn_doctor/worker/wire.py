"""How a pool and its workers communicate: lines of JSON through pipes, logs, and signals.

Only the standard library is used: the examined interpreter runs this too, Python 3.9 and newer.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

#: Environment variable with the secret that marks the events of a worker: what a package prints
#: before standard output is redirected cannot be taken for an event.
TOKEN = "ATTN_DOCTOR_TOKEN"  # noqa: S105 (a name)

#: Sends an event by its name, with its values.
Emit = Callable[..., None]


def emitter(pipe: int, **always: Any) -> Emit:
    """Writes events to a pipe, one line of JSON each; `always` are values of every event."""
    lock = threading.Lock()

    def emit(event: str, **values: Any) -> None:
        sent = {"event": event, **always, **values}
        try:
            line = json.dumps(sent, default=str, allow_nan=False)
        except ValueError:  # JSON has neither NaN nor infinity
            line = json.dumps(_finite(sent), default=str)
        with lock:
            write(pipe, line.encode() + b"\n")

    return emit


def _finite(value: Any) -> Any:
    """`value` with None for each number that is NaN or infinite."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def private_streams() -> tuple[int, Emit]:
    """Move commands and events to descriptors that no package knows.

    Returns the descriptor that commands are read from, and what sends events. Standard input is
    empty from now on, and standard output goes where standard error goes.
    """
    commands, events = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    # A line of its own, whatever a startup file has printed without an end of line.
    write(events, b"\n")
    return commands, emitter(events, token=os.environ.pop(TOKEN, ""))


def read_line(pipe: int) -> bytes:
    """One line of commands, read byte by byte so that what follows stays in the pipe."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(pipe, 1)
        if not byte:
            return b""
        line += byte
    return line


def write(pipe: int, data: bytes) -> None:
    """Write all of `data`, also if the pipe takes only a part at a time."""
    while data:
        data = data[os.write(pipe, data) :]


def print_to(log: str) -> None:
    """Send standard output and error, also those of libraries and programs, to a file."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def die_with(parent: int) -> None:
    """Ask Linux to kill this process when its parent ends, for whatever reason."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    death_signal = 1  # PR_SET_PDEATHSIG, linux/prctl.h
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(death_signal, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def kill(pid: int) -> None:
    """Kill a child that was not yet waited for, and its group if it has made one."""
    kill_group(pid)
    os.kill(pid, signal.SIGKILL)


def kill_group(pid: int, number: int = 9) -> None:
    """Send a signal to the group that a process leads, if there is one."""
    if hasattr(os, "killpg"):  # Windows has no groups
        with suppress(OSError):  # the group has ended, or is not yet made
            os.killpg(pid, number)
