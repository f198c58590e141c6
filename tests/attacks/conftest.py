"""Fixtures that several attacks use: attn-doctor as a process, and places that do harm.

An attack states what an outsider does and asserts what must not follow. Attacks that take more than
about two seconds carry the mark `attack`, and run with `pytest -m attack`.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.attacks.means import STRANGER, Attack, Run, fill, own_home
from tests.command import PLAIN, installed


@pytest.fixture
def doctor(home: Path) -> Attack:
    """`doctor("check", "--format", "json", cwd=…, environ={…}, seconds=30)` → `Run`.

    Runs in a process of its own with a home of its own. A run that takes longer than `seconds` is
    killed and fails the test. `prefix` is put before the command (`strace`, `prlimit`, `sh -c`).
    `stdin`, `stdout` and `stderr` go to `subprocess.run`; what is not captured is empty.
    """

    def run(
        *arguments: str,
        cwd: Path | None = None,
        environ: Mapping[str, str] | None = None,
        seconds: float = 60,
        prefix: Sequence[str] = (),
        program: Sequence[str] = (),
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | None = subprocess.PIPE,
        stderr: int | None = subprocess.PIPE,
        preexec: Callable[[], None] | None = None,
    ) -> Run:
        start = time.monotonic()
        done = subprocess.run(
            [*prefix, *(program or installed()), *arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env={**own_home(home), **PLAIN, **(environ or {})},
            timeout=seconds,
            check=False,
            preexec_fn=preexec,
        )
        text = [(part or b"").decode(errors="replace") for part in (done.stdout, done.stderr)]
        return Run(done.returncode, text[0], text[1], time.monotonic() - start)

    return run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def as_root() -> None:
    """Skip unless this is root, who can make files of other users."""
    if os.name == "nt" or os.geteuid() != 0:
        pytest.skip("needs root, who can make files of other users")


@pytest.fixture
def stranger(as_root: None) -> Callable[[Path], Path]:
    """`stranger(path)` gives a file or a whole folder to another user, and returns it."""

    def give(path: Path) -> Path:
        for one in (path, *(path.rglob("*") if path.is_dir() else ())):
            os.chown(one, STRANGER, STRANGER, follow_symlinks=False)
        return path

    return give


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that a hostile program or module creates when it runs."""
    return tmp_path / "executed"


@pytest.fixture
def full_disk(as_root: None, tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB without free space."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a file system")
    fill(folder)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
