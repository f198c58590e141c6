"""How the processes of a build talk and end: lines of JSON through pipes, logs, and signals.

Only the standard library is used: the examined interpreter runs this too, Python 3.9 and newer.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

#: Standard input, as long as somebody reads our events.
COMMANDS = 0

Event = dict[str, Any]


def read_line(pipe: int = COMMANDS) -> bytes:
    """One line of commands, read byte by byte so that what follows stays in the pipe."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(pipe, 1)
        if not byte:
            return b""
        line += byte
    return line


def write(pipe: int, data: bytes) -> None:
    """All of `data`, also where a pipe takes only a part at a time."""
    while data:
        data = data[os.write(pipe, data) :]


def print_to(log: str) -> None:
    """Let standard output and error, also those of libraries and programs, go to a file."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def teller(out: int) -> Callable[[Event], None]:
    """Writes events to what was standard output."""
    lock = threading.Lock()

    def tell(event: Event) -> None:
        line = json.dumps(event).encode() + b"\n"
        with lock:
            write(out, line)

    return tell


def die_with(server: int) -> None:
    """Ask Linux to kill this process when the server dies, however that happens."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    death_signal = 1  # PR_SET_PDEATHSIG, linux/prctl.h
    ctypes.CDLL(None).prctl(death_signal, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != server:
        os._exit(1)


def kill(pid: int) -> None:
    """Kill a child that was not yet waited for, and its group if it has made one."""
    kill_group(pid)
    os.kill(pid, signal.SIGKILL)


def kill_group(pid: int, number: int = 9) -> None:
    """Send a signal to a process and all that it has started, unless they have gone already."""
    with suppress(OSError):  # all gone, or not yet made
        os.killpg(pid, number)
