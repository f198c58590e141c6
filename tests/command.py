"""`attn-doctor` as a user types it, for tests: in this process, which is quicker, or in its own.

A run in this process goes through the same `main` with its own environment variables, streams and
folder. What only a process shows (signals, encodings, what is imported, time) needs `process`.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import attn_doctor.__main__

#: The program, as the tests have it: installed or not.
PROGRAM = [sys.executable, "-m", "attn_doctor"]
#: Output that is the same everywhere.
PLAIN = {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}


class Ended(NamedTuple):
    """A run's exit code and what it printed."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        """All that was printed, on one line."""
        return " ".join((self.stdout + self.stderr).split())


def run(
    *arguments: str,
    input: bytes = b"",
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
    **more: str,
) -> Ended:
    """`attn-doctor` with these arguments, in this process.

    `environ` takes the place of this process's own variables; `more` are set beside them.
    """
    variables = {**(os.environ if environ is None else environ), **PLAIN, **more}
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with (
        mock.patch.dict(os.environ, variables, clear=True),
        mock.patch.object(sys, "argv", ["attn-doctor", *arguments]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(input), encoding="utf-8")),
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", err),
        _within(cwd),
    ):
        code = attn_doctor.__main__._run()
    return Ended(code, *(_written(stream) for stream in (out, err)))


def process(
    *arguments: str,
    input: bytes = b"",
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
    program: Sequence[str] = PROGRAM,
    timeout: float = 60,
    **more: str,
) -> Ended:
    """`attn-doctor` with these arguments, in a process of its own."""
    done = subprocess.run(
        [*program, *arguments],
        input=input,
        capture_output=True,
        cwd=cwd,
        env={**(os.environ if environ is None else environ), **PLAIN, **more},
        timeout=timeout,
        check=False,
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


@contextlib.contextmanager
def _within(folder: Path | None) -> Iterator[None]:
    """Work in that folder meanwhile, or stay where we are."""
    before = Path.cwd()
    os.chdir(folder or before)
    try:
        yield
    finally:
        os.chdir(before)


def _written(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()
