"""Output that cannot be written, input that is closed, and too little memory, threads and files.

Whatever the standard streams are connected to, a command ends with the exit code of its result, and
2 if its output was lost on a full disk. No file of a user is left half written.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks.means import Attack, Run, commands
from tests.kernels.conftest import Maker

#: Command → arguments with which it prints something and changes nothing.
ARGUMENTS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("check",): (),
    ("backends",): (),
    ("audit",): ("--minutes", "0.1"),
    ("explain",): ("--no-probe", "LOG"),
    ("report",): ("-o", "-"),
    ("build-kernels",): ("--list-targets",),
    ("describe-gpu",): ("--list",),
    ("install",): ("torch", "--dry-run", "--no-resolve", "--no-read"),
    ("fix", "apply"): (),
    ("fix", "plan"): (),
    ("fix", "undo"): (),
    ("fix", "redo"): (),
    ("fix", "history"): (),
    ("fix", "forget"): ("none",),
    ("fix", "wheels"): (),
    ("fix", "requirements"): (),
    ("fix", "cuda-home"): (),
    ("cache", "status"): (),
    ("cache", "verify"): (),
    ("cache", "clear"): ("--all", "--dry-run"),
    ("cache", "restore"): (),
    ("cache", "empty-trash"): (),
    ("cache", "env"): (),
    ("cache", "export"): ("none.attn",),
    ("cache", "import"): ("none.attn",),
    ("cache", "why"): (),
    ("mcp",): ("--help",),
    ("rules", "list"): (),
    ("rules", "show"): ("flex/unfused",),
    ("rules", "search"): ("compile",),
    ("rules", "new"): ("--help",),
    ("rules", "test"): ("--help",),
    ("rules", "lint"): ("--help",),
    ("rules", "status"): (),
    ("rules", "update"): ("--help",),
    ("rules", "rollback"): ("--help",),
}
#: How a shell starts a command (`"$@"`) with streams that fail.
STREAMS = {
    "stdout is full": '"$@" >/dev/full',
    "stdout is closed": '"$@" >&-',
    "stderr is closed": '"$@" 2>&-',
    "stdin is closed": '"$@" <&-',
    "all are closed": '"$@" <&- >&- 2>&-',
    "both are full": '"$@" >/dev/full 2>/dev/full',
    "the reader leaves": '{ "$@"; echo $? >"$RC"; } | head -c 1 >/dev/null; exit "$(cat "$RC")"',
}
#: For the default run: a command, and its streams.
QUICK = [("rules", "show")]
QUICK_STREAMS = ("stdout is full", "all are closed", "the reader leaves")


def test_every_command_is_tried() -> None:
    assert set(ARGUMENTS) == set(commands())


@pytest.fixture
def run_with(doctor: Attack, tmp_path: Path) -> Callable[[tuple[str, ...], str], Run]:
    """Run a command of `ARGUMENTS` through one of `STREAMS`, or as it is."""
    (tmp_path / "log").write_text("AssertionError: Torch not compiled with CUDA enabled\n" * 3)

    def run(command: tuple[str, ...], streams: str = '"$@"') -> Run:
        arguments = [str(tmp_path / "log") if one == "LOG" else one for one in ARGUMENTS[command]]
        return doctor(
            *command,
            *arguments,
            cwd=tmp_path,
            prefix=["sh", "-c", streams, "sh"],
            # The default caches lie below TMPDIR, where other programs write at any time.
            environ={"RC": str(tmp_path / "rc"), "TMPDIR": str(tmp_path)},
        )

    return run


@pytest.mark.parametrize(
    ("command", "names"),
    [pytest.param(one, QUICK_STREAMS, id=" ".join(one)) for one in QUICK]
    + [
        pytest.param(one, tuple(STREAMS), id=f"{' '.join(one)} all", marks=pytest.mark.attack)
        for one in ARGUMENTS
    ],
)
@pytest.mark.thorough
def test_the_exit_code_is_the_result_whatever_the_streams_are(
    run_with: Callable[..., Run], command: tuple[str, ...], names: tuple[str, ...]
) -> None:
    expected = run_with(command).answered()
    for name in names:
        failed = run_with(command, STREAMS[name])
        full = "full" in name and expected.stdout
        failed.answered(2 if full else expected.code)
        if name == "stdout is full" and full:
            assert "cannot be written: No space left on device" in failed.stderr
            assert len(failed.stderr.splitlines()) < 8 + len(expected.stderr.splitlines())


@pytest.mark.attack
def test_a_file_of_the_command_never_becomes_its_standard_output(
    doctor: Attack, tmp_path: Path
) -> None:
    """With a closed stdout the next opened file has its number, and gets what is printed."""
    target = tmp_path / "report.json"
    doctor(
        "check", "--format", f"json:{target}", "--format", "text",
        prefix=["sh", "-c", '"$@" <&- >&- 2>&-', "sh"],
    ).answered()  # fmt: skip
    text = target.read_text()
    assert text.startswith("{")
    assert text.rstrip().endswith("}")


WRITERS = {
    "check -o": ("check", "-o", "FILE"),
    "check --format": ("check", "--format", "markdown:FILE"),
    "backends -o": ("backends", "-o", "FILE"),
    "explain -o": ("explain", "--no-probe", "-o", "FILE", "LOG"),
    "report": ("report", "--force", "-o", "FILE"),
    "rules new": ("rules", "new", "a/b", "--rules", "DIR"),
    "fix requirements": ("fix", "requirements", "-o", "NEW"),
    "report --record": ("report", "--force", "--record", "DIR"),
}


@pytest.mark.parametrize(
    "writer",
    [pytest.param(one, marks=() if one == "explain -o" else pytest.mark.attack) for one in WRITERS],
)
def test_a_full_disk_leaves_the_old_file_and_no_half_one(
    doctor: Attack, full_disk: Path, tmp_path: Path, writer: str
) -> None:
    (tmp_path / "log").write_text("AssertionError: Torch not compiled with CUDA enabled\n")
    # One block is free: room for a name and a little, and not for the whole.
    os.truncate(full_disk / "filler", (full_disk / "filler").stat().st_size - 8192)
    for name in ("old", "host.json"):
        (full_disk / name).write_text("what the user had\n")
    places = {
        "FILE": str(full_disk / "old"),
        "NEW": str(full_disk / "new"),
        "DIR": str(full_disk),
        "LOG": str(tmp_path / "log"),
    }
    words = [
        one.replace("FILE", places["FILE"]) if "FILE" in one else places.get(one, one)
        for one in WRITERS[writer]
    ]
    run = doctor(*words).answered(2)
    assert "cannot be written: No space left on device" in run.stderr
    assert (full_disk / "old").read_text() == "what the user had\n"
    left = sorted(one.name for one in full_disk.rglob("*") if one.is_file())
    assert left == ["filler", "host.json", "old"]


@pytest.mark.attack
def test_the_job_summary_is_whole_or_as_before(doctor: Attack, full_disk: Path) -> None:
    os.truncate(full_disk / "filler", (full_disk / "filler").stat().st_size - 4096)
    summary = full_disk / "summary"
    summary.write_text("of an earlier step\n" * 200)
    doctor("check", "--format", "github", environ={"GITHUB_STEP_SUMMARY": str(summary)}).answered(2)
    assert summary.read_text() == "of an earlier step\n" * 200


@pytest.mark.posix
def test_a_private_file_stays_private(doctor: Attack, tmp_path: Path) -> None:
    target = tmp_path / "report"
    target.write_text("old")
    target.chmod(0o600)
    log = tmp_path / "log"
    log.write_text("no failure\n")
    doctor("explain", "--no-probe", "-o", str(target), str(log)).answered(0)
    assert target.read_text() != "old"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.thorough
def test_a_trap_of_another_user_is_not_written_through(
    doctor: Attack, tmp_path: Path, as_root: None, kind: str
) -> None:
    victim, trap = tmp_path / "bashrc", tmp_path / "report"
    victim.write_text("export PATH\n")
    if kind == "link":
        trap.symlink_to(victim)
    else:
        os.mkfifo(trap)
    os.chown(trap, 65534, 65534, follow_symlinks=False)
    run = doctor("explain", "--no-probe", "-o", str(trap), str(victim), seconds=20).answered(2)
    assert "that another user made (uid 65534)" in run.stderr
    assert victim.read_text() == "export PATH\n"


@pytest.mark.posix
def test_output_goes_into_a_pipe_of_the_shell(doctor: Attack, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("AssertionError: Torch not compiled with CUDA enabled\n")
    run = doctor(
        "explain", "--no-probe", str(log), "-o", "/dev/fd/9",
        prefix=["bash", "-c", '"$@" 9> >(cat; echo END)', "bash"],
    ).answered()  # fmt: skip
    assert "END" in run.stdout
    assert "CUDA" in run.stdout


LIMITS = {
    "memory": ["prlimit", "--as={}000000"],
    "open files": ["prlimit", "--nofile={}"],
    "threads": [
        "setpriv", "--reuid=65533", "--inh-caps=+dac_read_search,+dac_override",
        "--ambient-caps=+dac_read_search,+dac_override", "prlimit", "--nproc={}",
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        pytest.param(
            limit,
            value,
            marks=[
                *([] if value in (2, 100, 150) else [pytest.mark.attack]),
                # qemu does not limit the memory of what it runs.
                *([pytest.mark.native] if limit == "memory" else []),
            ],
        )
        for limit, values in {
            "memory": (20, 30, 38, 45, 55, 65, 75, 100, 150, 200, 300, 500),
            "open files": (5, 6, 7, 8, 9, 10, 12, 16, 24, 32),
            "threads": (1, 2, 3, 4, 6, 10),
        }.items()
        for value in values
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ("check",),
        *(pytest.param(one, marks=pytest.mark.attack) for one in
          [("cache", "status"), ("backends",), ("fix", "plan"), ("report", "-o", "-")]),
    ],
    ids=" ".join,
)  # fmt: skip
def test_too_little_memory_threads_or_files_costs_one_sentence(
    doctor: Attack, command: tuple[str, ...], limit: str, value: int, as_root: None
) -> None:
    prefix = [word.format(value) for word in LIMITS[limit]]
    if shutil.which(prefix[0]) is None:
        pytest.skip(f"needs {prefix[0]}")
    run = doctor(*command, prefix=prefix)
    if "Python" in run.stderr and "Fatal" in run.stderr:
        pytest.skip("Python itself does not start with so little")
    run.answered(0, 1, 2)
    if limit == "memory":
        assert (run.code == 2) == (value < 128)
    if run.code == 2:
        assert run.stdout == ""
        assert "raise the limit of" in run.stderr or "raise its limit" in run.stderr
        assert run.stderr.count("attn-doctor: ") == 1


WRITES = "O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND"
CALLS = (
    "open,openat,creat,mkdir,mkdirat,unlink,unlinkat,rename,renameat,renameat2,rmdir,link,linkat,"
    "symlink,symlinkat,chmod,fchmod,fchmodat,chown,fchown,fchownat,utimensat,truncate,ftruncate"
)


def test_fix_history_only_reads(doctor: Attack, home: Path, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    run = home / "state" / "attn-doctor" / "fixes" / "20260101-000000-1"
    run.mkdir(parents=True)
    (run / "journal.jsonl").write_text(
        '{"event": "begin", "time": 1, "title": "fix", "python": ""}\n'
    )
    (run / "lock").touch()
    before = _listing(home)
    trace = tmp_path / "trace"
    strace = ["strace", "-f", "-o", str(trace), "-e", f"trace={CALLS}"]
    doctor("fix", "history", prefix=strace).answered(0)
    below = [line for line in trace.read_text().splitlines() if f'"{home}' in line]
    assert below, "strace saw nothing"
    changing = [
        line
        for line in below
        if "open" not in line.split("(")[0] or any(flag in line for flag in WRITES.split("|"))
    ]
    assert changing == []
    assert _listing(home) == before


def _listing(folder: Path) -> list[tuple[str, int, int]]:
    return sorted(
        (str(one), one.lstat().st_mtime_ns, one.lstat().st_mode) for one in folder.rglob("*")
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_command_that_changes_something_stops_if_its_plan_cannot_be_shown(
    doctor: Attack, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    kernel = Maker().kernel(cache)
    before = sorted(kernel.iterdir())
    run = doctor(
        "cache", "clear", "--kind", "triton", "--cache-dir", str(cache), "--yes",
        prefix=["sh", "-c", '"$@" >/dev/full', "sh"],
    ).answered(2)  # fmt: skip
    assert "nothing was changed" in run.text
    assert sorted(kernel.iterdir()) == before


@pytest.mark.posix
def test_a_pipe_that_does_not_wait_gets_everything(tmp_path: Path, doctor: Attack) -> None:
    """Node leaves the pipes of its children without waiting: writes fail while they are full."""
    script = (
        "import os, subprocess, sys, time\n"
        "read, write = os.pipe()\n"
        "os.set_blocking(write, False)\n"
        "child = subprocess.Popen(sys.argv[1:], stdout=write)\n"
        "os.close(write)\n"
        "time.sleep(1)\n"
        "data = b''\n"
        "while chunk := os.read(read, 1 << 16):\n"
        "    data += chunk\n"
        "sys.stdout.buffer.write(data)\n"
        "sys.exit(child.wait())\n"
    )
    run = doctor("rules", "list", "--format", "json", prefix=["python3", "-c", script]).answered(0)
    assert len(run.stdout) > 70_000
    assert run.stdout.rstrip().endswith(("]", "}"))


def test_the_examples_of_full_disks_are_full(full_disk: Path) -> None:
    done = subprocess.run(["df", str(full_disk)], capture_output=True, text=True, check=True)
    assert "100%" in done.stdout
