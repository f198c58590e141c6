"""LocalHost against real processes and files."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_doctor.host import Ran
from attn_doctor.host.local import GRACE, OUTPUT_LIMIT, SURE, LocalHost

HERE = Path(__file__).parent
#: What a slow machine may add to a time limit, in seconds.
SLACK = 3.5

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX processes")
linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux")


def python(code: str, *args: str, seconds: float = 20.0) -> Ran:
    """Run Python code through the host."""
    return LocalHost().run([sys.executable, "-I", "-S", "-c", code, *args], seconds)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(pid: int, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not alive(pid) or state(pid) == "Z":
            return True
        time.sleep(0.01)
    return False


def state(pid: int) -> str:
    """State letter of a process: `S` sleeping, `D` sleeping in the kernel, `Z` dead, not reaped."""
    try:
        # 4711 (name of the program) S 1 …
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


# Programs


def test_output_and_code_of_a_program() -> None:
    ran = python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert (ran.outcome, ran.code, ran.out.strip(), ran.err.strip()) == ("done", 3, "out", "err")
    assert not ran.ok
    assert ran.why_not("python", 20) == "python ended with code 3: err"


def test_success() -> None:
    ran = python("print('ä', end='')")
    assert ran.ok
    assert ran.why_not("python", 20) == ""


@posix
def test_code_of_a_program_that_crashed() -> None:
    ran = python("import os; os.abort()")
    assert (ran.outcome, ran.code) == ("done", -6)


def test_undecodable_output() -> None:
    assert python(r"import os; os.write(1, b'a\xffb')").out == "a\N{REPLACEMENT CHARACTER}b"


def test_missing_program(tmp_path: Path) -> None:
    ran = LocalHost().run([str(tmp_path / "nvidia-smi")], 5)
    assert ran == Ran(outcome="missing")
    assert ran.why_not("nvidia-smi", 5) == "nvidia-smi does not exist"


@posix
def test_program_that_is_not_executable(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\n")
    ran = LocalHost().run([str(program)], 5)
    assert ran.outcome == "refused"
    assert "Permission denied" in ran.why_not("nvidia-smi", 5)


@posix
def test_program_of_another_machine(tmp_path: Path) -> None:
    program = tmp_path / "gcc"
    program.write_bytes(b"\x7fELF, but not really")
    program.chmod(0o755)
    assert LocalHost().run([str(program)], 5).outcome == "refused"


@posix
def test_environment_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/tmp/other")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("CUDA_HOME", "/opt/cuda")
    code = (
        "import os, sys\n"
        "for name in ('PATH', 'LC_ALL', 'CUDA_HOME', 'EXTRA'): print(os.environ.get(name))\n"
        "print(os.getcwd(), repr(sys.stdin.read()), os.getsid(0) == os.getpid())"
    )
    ran = LocalHost().run([sys.executable, "-I", "-S", "-c", code], 20, {"EXTRA": "1"})
    assert ran.out.splitlines() == [
        "/usr/sbin:/usr/bin:/sbin:/bin",
        "C",
        "/opt/cuda",
        "1",
        "/ '' True",
    ]


def test_output_is_bounded_and_the_writer_never_blocks() -> None:
    ran = python("import os\nfor _ in range(50): os.write(1, b'x' * 1_000_000)\nprint(end='')")
    assert (ran.outcome, ran.code) == ("done", 0)
    assert ran.out == "x" * OUTPUT_LIMIT


@posix
@pytest.mark.native
def test_program_that_ignores_sigterm_is_killed_with_its_children() -> None:
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "os.fork()\n"
        "os.write(1, b'%d\\n' % os.getpid())\n"
        "time.sleep(60)"
    )
    start = time.monotonic()
    ran = python(code, seconds=0.5)
    assert time.monotonic() - start < 1.0 + GRACE + SLACK
    assert ran.outcome == "timeout"
    assert ran.why_not("python", 1.0) == "python did not answer within 1 s"
    pids = [int(line) for line in ran.out.split()]
    assert ran.pid in pids
    assert len(pids) == 2
    assert all(wait_until_gone(pid) for pid in pids)


@posix
def test_grandchild_that_keeps_the_pipe_open_is_killed() -> None:
    code = (
        "import os, time\npid = os.fork()\nif pid == 0: time.sleep(60); os._exit(0)\n"
        "os.write(1, b'%d' % pid)"
    )
    start = time.monotonic()
    ran = python(code)
    assert time.monotonic() - start < 2 * GRACE + SLACK
    assert (ran.outcome, ran.code) == ("done", 0)
    assert wait_until_gone(int(ran.out))


@linux
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
@pytest.mark.native
def test_process_that_cannot_be_reaped_is_left_behind() -> None:
    script = str(HERE / "unreapable.py")
    start = time.monotonic()
    ran = LocalHost().run([sys.executable, "-I", script, "6"], 0.5)
    took = time.monotonic() - start
    if ran.code == 77:
        pytest.skip("tracing a process is not allowed here")
    assert ran.pid is not None
    assert state(ran.pid) == "Z"
    assert took < 1.0 + GRACE + SLACK
    assert ran.outcome == "abandoned"
    assert ran.why_not("nvidia-smi", 1.0) == (
        "nvidia-smi did not answer within 1 s and cannot be killed"
        f" (process {ran.pid} is left behind)"
    )


@pytest.fixture
def silent_mount(tmp_path: Path) -> Iterator[Path]:
    """A directory whose file system never answers, for root on Linux."""
    folder = tmp_path / "silent"
    folder.mkdir()
    argv = [sys.executable, "-I", str(HERE / "silent_mount.py"), str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        answer = server.stdout.readline().strip()
        try:
            if answer != "mounted":
                pytest.skip(f"no file system can be mounted here ({answer})")
            yield folder
        finally:
            server.kill()
            mnt_detach = 2
            ctypes.CDLL(None).umount2(str(folder).encode(), mnt_detach)


@linux
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_process_asleep_in_the_kernel_is_left_behind(silent_mount: Path) -> None:
    start = time.monotonic()
    ran = LocalHost().run(["/bin/cat", str(silent_mount / "file")], 0.5)
    took = time.monotonic() - start
    assert ran.pid is not None
    assert state(ran.pid) == "D"
    assert took < 1.0 + GRACE + SLACK
    assert ran.outcome == "abandoned"


# Files


def test_read_cuts_at_the_limit_and_replaces_what_it_cannot_decode(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"ab\xffcd")
    host = LocalHost()
    assert host.read(str(file)) == "ab\N{REPLACEMENT CHARACTER}cd"
    assert host.read(str(file), 2) == "ab"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    host = LocalHost()
    with pytest.raises(FileNotFoundError):
        host.read(str(tmp_path / "none"))
    with pytest.raises(OSError, match=r"."):
        host.read(str(tmp_path))
    assert host.try_read(str(tmp_path)) == ""
    assert host.try_stat(str(tmp_path / "none")) is None
    assert host.try_list(str(tmp_path / "none")) == ()
    assert not host.access(str(tmp_path / "none"), "r")


def test_stat_list_and_real(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a").write_bytes(b"12345")
    host = LocalHost()
    assert host.list(str(tmp_path)) == ("a", "b")
    assert host.stat(str(tmp_path / "a")).size == 5
    assert host.is_file(str(tmp_path / "a"))
    assert host.is_dir(str(tmp_path / "b"))
    assert host.real(str(tmp_path / "b" / ".." / "a")) == os.path.realpath(tmp_path / "a")
    assert 0 < host.space(str(tmp_path)).free <= host.space(str(tmp_path)).total


@posix
def test_which_reports_the_first_program_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("1", "2", "3", "4"):
        (tmp_path / folder).mkdir()
    (tmp_path / "1" / "nvcc").mkdir()
    (tmp_path / "2" / "nvcc").write_text("not executable")
    for folder in ("3", "4"):
        program = tmp_path / folder / "nvcc"
        program.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", ":".join(str(tmp_path / name) for name in ("1", "2", "3", "4")))
    assert LocalHost().which("nvcc") == str(tmp_path / "3" / "nvcc")
    assert LocalHost().which("ptxas") == ""
    assert not (tmp_path / "was-run").exists()


@posix
def test_measure_counts_links_but_does_not_follow_them(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "large").write_bytes(b"x" * 10_000)
    tree = tmp_path / "tree"
    (tree / "deep" / "deeper").mkdir(parents=True)
    (tree / "one").write_bytes(b"x" * 100)
    (tree / "deep" / "lock").write_bytes(b"")
    (tree / "deep" / "deeper" / "a.lock").write_bytes(b"x")
    os.utime(tree / "one", (1000.0, 2000.0))
    os.utime(tree / "deep" / "lock", (1000.0, 3000.0))
    os.utime(tree / "deep" / "deeper" / "a.lock", (1000.0, 1000.0))
    found = LocalHost().measure(str(tree), 5.0)
    assert (found.files, found.bytes, found.newest, found.complete) == (3, 101, 3000.0, True)
    assert found.locks == ("deep/deeper/a.lock", "deep/lock")
    (tree / "link").symlink_to(outside)
    (tree / "loop").symlink_to(tree)
    linked = LocalHost().measure(str(tree), 5.0)
    assert linked.files == 5
    assert linked.bytes < 5_000


def test_measure_stops_at_its_time_limit(tmp_path: Path) -> None:
    """A small tree is counted whole even then."""
    for number in range(SURE):
        (tmp_path / str(number)).touch()
    found = LocalHost().measure(str(tmp_path), -1.0)
    assert (found.complete, found.files) == (True, SURE)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").touch()
    found = LocalHost().measure(str(tmp_path), -1.0)
    assert (found.complete, found.files) == (False, SURE)


# The machine itself


def test_environ_is_that_of_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", "/opt/cuda")
    host = LocalHost()
    monkeypatch.setenv("CUDA_HOME", "/changed/later")
    assert host.environ["CUDA_HOME"] == "/opt/cuda"


def test_platform_and_memory() -> None:
    host = LocalHost()
    assert host.platform.os in ("linux", "windows", "macos")
    assert host.platform.cpus >= 1
    assert host.platform.python == sys.executable
    total, available = host.memory()
    assert 0 < available <= total
    assert abs(host.now() - time.time()) < 60


@posix
def test_platform_in_a_directory_that_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert LocalHost().platform.cwd == ""


@pytest.mark.parametrize("question", ["stat", "list", "space"])
@pytest.mark.posix
def test_a_name_with_a_nul_is_that_of_no_file(question: str) -> None:
    with pytest.raises(FileNotFoundError):
        LocalHost().ask(question, "/tmp/a\0b")
    assert LocalHost().ask("real", "/tmp/a\0b") == "/tmp/a\0b"
    assert LocalHost().ask("access", "/tmp/a\0b", "r") is False


@given(
    st.lists(st.sampled_from((b"a", b"bb", b"\n", b"\r", b"\r\n", b"x=1", b"\xff")), max_size=30),
    st.lists(st.sampled_from(("a", "bb", "x=", "b")), min_size=1, max_size=3),
)
def test_grep_finds_the_lines_that_a_walk_over_all_lines_finds(
    parts: list[bytes], needles: list[str]
) -> None:
    text = b"".join(parts)
    lines = [line for line in text.splitlines() if any(one.encode() in line for one in needles)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "text")
        path.write_bytes(text)
        found = LocalHost().grep(str(path), *needles)
    assert found == tuple(line.decode("utf-8", "replace") for line in lines)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_head_ends_at_an_empty_line_not_at_blanks(end: str, tmp_path: Path) -> None:
    """As the METADATA of traitlets 5.15.0, whose license has lines of blanks."""
    lines = ["Name: traitlets", "License: BSD", "        ", "        text", "Requires-Dist: a"]
    lines += [f"Classifier: {number}" for number in range(2000)]  # more than is read at once
    file = tmp_path / "METADATA"
    file.write_bytes(f"{end.join(lines)}{end}{end}Name: other{end}".encode())
    host = LocalHost()
    assert host.head(str(file)).splitlines() == lines
    assert host.head(str(file), 20) == f"{end.join(lines)}"[:20]
    file.write_bytes(end.join(lines).encode())
    assert host.head(str(file)).splitlines() == lines
