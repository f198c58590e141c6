"""Runs an installer: its output into a log and line by line to whoever shows progress.

An installer that is interrupted gets some seconds to remove its temporary folders before its
process group is killed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from attn_doctor.processes import Running

#: Last lines that are kept for a message.
_TAIL = 200
#: Seconds an installer has to clean up after Ctrl-C.
_GRACE = 5.0
#: Variables that would send an installation elsewhere than into the examined environment.
_ELSEWHERE = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_REQUIREMENT", "PIP_DRY_RUN")


class Outcome(Struct, frozen=True, kw_only=True):
    """How a program ended."""

    code: int | None
    """Exit code, negative for a signal; None if it could not be started or had to be ended."""
    lines: tuple[str, ...] = ()
    """The last lines it printed."""
    seconds: float = 0.0
    failure: str = ""
    """Why there is no exit code."""

    @property
    def ok(self) -> bool:
        """It ran to its end with code 0."""
        return self.code == 0

    @property
    def text(self) -> str:
        """The last lines as one text."""
        return "\n".join(self.lines)


def installer_environment(environ: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """The user's variables for an installer: it asks nothing and installs nowhere else."""
    kept = {name: value for name, value in environ.items() if name not in _ELSEWHERE}
    return {
        **kept,
        "PIP_NO_INPUT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONIOENCODING": "utf-8",
        "PYTHONDONTWRITEBYTECODE": "",
        "NO_COLOR": "1",
        **extra,
    }


def run(
    argv: Sequence[str],
    *,
    seconds: float,
    env: Mapping[str, str],
    folder: Path,
    log: Path,
    on_line: Callable[[str], None] | None = None,
    on_start: Callable[[int], None] | None = None,
    handle: int = -1,
) -> Outcome:
    """Run `argv` in `folder` for at most `seconds`; everything it prints is appended to `log`.

    `handle` is a file descriptor that it inherits. Raises `OSError` if `log` cannot be written;
    a program that cannot be started is an outcome.
    """
    start = time.monotonic()
    tail: deque[str] = deque(maxlen=_TAIL)
    with log.open("ab") as file:
        try:
            running = Running(
                argv,
                env=env,
                cwd=str(folder),
                joined=True,
                inherit=(handle,) if handle >= 0 else (),
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            return Outcome(code=None, failure=f"{argv[0]} cannot be run: {reason}")
        with running:
            if on_start is not None:
                on_start(running.pid)

            def read() -> None:
                rest = b""
                with suppress(OSError, ValueError):
                    while chunk := os.read(running.out.fileno(), 1 << 16):  # type: ignore[union-attr]
                        with suppress(OSError):  # a full disk must not block the installer
                            file.write(chunk)
                            file.flush()
                        *lines, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
                        for line in lines:
                            _seen(line, tail, on_line)
                if rest:
                    _seen(rest, tail, on_line)

            reader = threading.Thread(target=read, daemon=True)
            reader.start()
            try:
                code = running.wait(seconds)
            except KeyboardInterrupt:
                _ask_to_end(running)
                raise
            late = code is None
            if late:
                _ask_to_end(running)
            reader.join(2.0)
    took = time.monotonic() - start
    failure = f"it did not end within {seconds / 60:.0f} min and was ended" if late else ""
    return Outcome(code=code, lines=tuple(tail), seconds=took, failure=failure)


def _seen(line: bytes, tail: deque[str], on_line: Callable[[str], None] | None) -> None:
    text = line.decode("utf-8", "replace").rstrip()
    if text:
        tail.append(text)
        if on_line is not None:
            on_line(text)


def _ask_to_end(running: Running) -> None:
    if os.name != "nt":
        with suppress(OSError):
            os.killpg(running.pid, signal.SIGINT)
        with suppress(KeyboardInterrupt):  # a second Ctrl-C does not wait
            running.wait(_GRACE)
