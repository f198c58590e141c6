"""`attn-doctor` as a user types it, for tests: in this process, which is quicker, or in its own.

A run in this process goes through the same `main` with its own environment variables, streams and
folder. What only a process shows (signals, encodings, what is imported, time) needs `process`. A
process starts a copy with the index of a wheel: a checkout reads hundreds of TOML files first.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import attn_doctor.__main__
from attn_doctor.backends import catalogue, catalogue_files
from attn_doctor.rulebook import library
from attn_doctor.rulebook.rule_files import read_folder
from attn_doctor.rulebook.rule_shape import WrittenRule
from tests.effort import SLOWER

#: Output that is the same everywhere.
PLAIN = {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}


@cache
def installed() -> list[str]:
    """The command that starts a copy of attn-doctor as a wheel installs it, made once."""
    rules = library.folder()
    if rules.is_relative_to(library.PACKAGE):  # it was installed from a wheel
        return [sys.executable, "-m", "attn_doctor"]
    folder = Path(tempfile.mkdtemp(prefix="attn-doctor-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)  # tests start it as other users too
    copy = folder / "attn_doctor"
    shutil.copytree(library.PACKAGE, copy)
    shutil.copytree(rules, copy / "_rules")
    (copy / "_rules" / library.INDEX).write_bytes(built_index())
    (copy / "_rules" / catalogue.INDEX).write_bytes(catalogue_files.build_index(rules))
    start = folder / "attn-doctor"
    start.write_text(
        f"import sys\nsys.path.insert(0, {str(folder)!r})\n"
        "from attn_doctor.__main__ import main\nmain()\n",
        encoding="utf-8",
    )
    return [sys.executable, str(start)]


@cache
def built_index() -> bytes:
    """The index of our rules, as a wheel holds it."""
    return library.build_index(library.folder())


@cache
def read_index() -> library.Index:
    """The same, read from a file."""
    folder = Path(tempfile.mkdtemp(prefix="attn-doctor-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / library.INDEX).write_bytes(built_index())
    return library.Index(str(folder / library.INDEX))


@cache
def whole_rules() -> tuple[WrittenRule, ...]:
    """All rules with their examples and claims, which an index does not hold."""
    return read_folder(library.folder())


@cache
def whole_tables() -> Mapping[str, Any]:
    """The compatibility tables, read from their TOML files."""
    return library.read_tables(library.folder())


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
        # click takes the name of the program from the package where Python began with -m.
        mock.patch.object(sys.modules["__main__"], "__package__", None),
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
    program: Sequence[str] = (),
    timeout: float = 60,
    **more: str,
) -> Ended:
    """`attn-doctor` with these arguments, in a process of its own."""
    done = subprocess.run(
        [*(program or installed()), *arguments],
        input=input,
        capture_output=True,
        cwd=cwd,
        env={**(os.environ if environ is None else environ), **PLAIN, **more},
        timeout=timeout * SLOWER,
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
