"""Programs run to their end, to their limit, or not at all, and leave nothing behind."""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path

import pytest

from attn_doctor.processes import Running, run, shown
from tests.effort import SLOWER

posix = pytest.mark.skipif(os.name == "nt", reason="signals and groups of POSIX")


def python(source: str) -> list[str]:
    return [sys.executable, "-I", "-c", source]


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.posix
def test_output_and_code() -> None:
    ended = run(python("import sys; print('a'); print('b', file=sys.stderr); sys.exit(3)"), 20)
    assert (ended.code, ended.out, ended.err, ended.ok) == (3, "a\n", "b\n", False)
    assert ended.status == "exit code 3"


@pytest.mark.posix
def test_input_and_joined_output() -> None:
    source = (
        "import sys; d = sys.stdin.read(); print(len(d), flush=True); print('e', file=sys.stderr)"
    )
    ended = run(python(source), 20, stdin=io.BytesIO(b"x" * 300_000), joined=True)
    assert ended.ok
    assert ended.out == "300000\ne\n"


@pytest.mark.posix
def test_input_that_is_not_read() -> None:
    assert run(python("print(1)"), 20, stdin=io.BytesIO(b"x" * 10_000_000)).out == "1\n"


def test_lines_as_they_come() -> None:
    lines: list[str] = []
    run(python("print('1%\\r2%\\r', end=''); print('x\\n\\ny', end='')"), 20, on_line=lines.append)
    assert lines == ["1%", "2%", "x", "y"]


@pytest.mark.posix
def test_a_missing_program() -> None:
    ended = run(["/nonexistent/nvcc"], 5)
    assert ended.code is None
    assert ended.status == "/nonexistent/nvcc cannot be run: No such file or directory"


@posix
def test_the_limit_kills_grandchildren(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    source = (
        "import subprocess, sys, time\n"
        "c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(note)!r}, 'w').write(str(c.pid))\n"
        "print('started', flush=True)\ntime.sleep(60)\n"
    )
    start, limit = time.monotonic(), 1.5 * SLOWER
    ended = run(python(source), limit)
    assert ended.timed_out
    assert ended.out == "started\n"
    assert ended.status == f"no answer within {limit:.0f} s"
    assert time.monotonic() - start < limit + 10
    until = time.monotonic() + 5
    while alive(int(note.read_text())) and time.monotonic() < until:
        time.sleep(0.02)
    assert not alive(int(note.read_text()))


@posix
def test_leaving_the_block_kills() -> None:
    with pytest.raises(KeyboardInterrupt), Running(python("import time; time.sleep(60)")) as one:
        raise KeyboardInterrupt
    assert one.poll() == -9


@posix
def test_signals_are_named() -> None:
    ended = run(python("import os; os.kill(os.getpid(), 11)"), 20)
    assert ended.status == "killed by SIGSEGV"


@pytest.mark.posix
def test_long_output_keeps_both_ends() -> None:
    source = "print('first'); print('x' * 5000); print('last')"
    ended = run(python(source), 20, head=100, tail=100)
    assert ended.out.startswith("first\n")
    assert ended.out.endswith("last\n")
    assert "bytes left out" in ended.out
    assert len(ended.out) < 600


def test_the_log_shows_the_beginning_of_a_program() -> None:
    assert shown(["python", "-c", "print(1)"]) == "python -c 'print(1)'"
    assert shown(["python", "-c", "x" * 9000]) == f"python -c '{'x' * 200}…'"
