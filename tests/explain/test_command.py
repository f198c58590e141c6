"""The command as a user types it: real processes, real exit codes, real rules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from attn_doctor.facts import Driver, Facts, Gpu, System, Torch, to_json
from tests import command
from tests.command import Ended

LINE = "RuntimeError: FlashAttention only supports Ampere GPUs or newer.\n"
MACHINE = Facts(
    system=System(os="linux"),
    torch=Torch(installed=True, version="2.6.0+cu124", build="cuda"),
    driver=Driver(state="ok", vendor="nvidia"),
    gpus=(Gpu(index=0, name="NVIDIA T4", sm=75, visible=True),),
)


def run(*arguments: str, input: bytes = b"", cwd: Path | None = None) -> Ended:
    """`attn-doctor explain` with these arguments."""
    return command.run("explain", *arguments, input=input, cwd=cwd)


@pytest.mark.parametrize("arguments", [(), ("-",)])
@pytest.mark.posix
def test_standard_input(arguments: tuple[str, ...]) -> None:
    log = LINE.encode("utf-16")
    done = command.process("explain", "--no-probe", *arguments, input=log)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("line 1:\n  RuntimeError: FlashAttention only supports Ampere")


def test_an_unrelated_failure() -> None:
    done = run("--no-probe", input=b"RuntimeError: CUDA out of memory. Tried to allocate 20 MiB\n")
    assert done.returncode == 0
    assert done.stdout.startswith("No attention-kernel cause in this log.")


def test_json_of_the_log_alone(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"loading\n{LINE}")
    done = run("--no-probe", "--format", "json", str(log))
    assert done.returncode == 1
    data = json.loads(done.stdout)
    first = data["matches"][0]
    assert (first["cause"], first["line"], first["file"]) == ("gpu-too-old-for-flash", 2, str(log))
    assert first["verdict"] == "not checked"
    assert data["probed"] is False
    assert data["exit_code"] == 1


def test_a_snapshot_confirms(tmp_path: Path) -> None:
    snapshot = tmp_path / "facts.json"
    snapshot.write_bytes(to_json(MACHINE))
    done = run("--facts", str(snapshot), "--format", "json", "-", input=LINE.encode())
    data = json.loads(done.stdout)
    assert data["probed"] is True
    verdict = data["matches"][0]["verdict"]
    assert verdict.startswith(
        ("confirmed by this machine", "could not be checked", "not confirmed: ")
    )


def test_markdown(tmp_path: Path) -> None:
    done = run("--no-probe", "--format", "markdown", "-", input=LINE.encode())
    assert done.stdout.startswith("### attn-doctor")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("missing.log",), "missing.log cannot be read: No such file or directory"),
        (("--facts", "missing.json", "-"), "missing.json cannot be read"),
    ],
)
def test_unreadable(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments, input=LINE.encode(), cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("--no-probe", "--facts", "x.json", "-"),
        ("--no-probe", "--python", "x", "-"),
        ("--facts", "x.json", "--python", "x", "-"),
        ("--facts", "-", "-"),
        ("--format", "xml", "-"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert run(*arguments, input=b"").returncode == 2


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc")
def test_a_huge_log_needs_little_memory(tmp_path: Path) -> None:
    log = tmp_path / "huge.log"
    line = b"step %d loss 0.123 lr 1e-4 | \x1b[32mok\x1b[0m |\n"
    part = b"".join(line % n for n in range(30_000))
    with log.open("wb") as file:
        for _ in range(20):
            file.write(part)
        file.write(LINE.encode())
    script = (
        "import sys\n"
        "from attn_doctor.explain.engine import explain\n"
        "from attn_doctor.rulebook import library\n"
        "found = explain([sys.argv[1]], library.load())\n"
        "print(found.logs[0].lines, len(found.matches) > 0)\n"
        # Not ru_maxrss, which begins with what the parent held before the program was started.
        "status = open('/proc/self/status').read()\n"
        "print(int(status.split('VmHWM:')[1].split()[0]) // 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(log)], capture_output=True, text=True, check=True
    )
    lines, memory = done.stdout.splitlines()
    assert lines == "600001 True"
    assert int(memory) < 100


def test_json_into_a_file(tmp_path: Path) -> None:
    output = tmp_path / "explanation.json"
    arguments = ("--no-probe", "--json", "-o", str(output))
    done = run(*arguments, input=b"AssertionError: Torch not compiled with CUDA enabled\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert json.loads(output.read_text("utf-8"))["matches"][0]["cause"] == "torch-cpu-only"
    done = run("--no-probe", "-o", str(tmp_path / "no" / "file"), input=b"log\n")
    assert done.returncode == 2
    assert "cannot be written" in done.stderr


def test_an_error_message_is_read_as_text() -> None:
    done = run("--no-probe", LINE)
    assert done.returncode == 1
    assert done.stdout.startswith("line 1:\n  RuntimeError: FlashAttention only supports Ampere")


def test_a_file_with_blanks_in_its_name_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "my last log.txt").write_text(LINE)
    assert run("--no-probe", "my last log.txt", cwd=tmp_path).returncode == 1


def test_the_id_of_a_rule_shows_its_page() -> None:
    done = run("sage/needs-triton")
    assert done.returncode == 0
    assert done.stdout.startswith("sage/needs-triton")
    assert run("logs/needs-triton").returncode == 2
    for id in ("ATTN-2026-0019", "advisories/ATTN-2026-0019"):
        assert run(id).stdout.startswith("advisories/ATTN-2026-0019")


def test_a_component_has_an_exit_code_of_its_own() -> None:
    done = run(
        "--no-probe", "--format", "json", "RuntimeError: flash_attn_2_cuda: it must be a tensor"
    )
    assert done.returncode == 5
    data = json.loads(done.stdout)
    assert (data["outcome"], data["guess"]["component"]) == ("component", "flash-attn-2")


def test_lines_of_a_run_that_worked_explain_nothing(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.log", tmp_path / "bad.log"
    good.write_text(
        "a.py:263: UserWarning: flex_attention called without torch.compile() - this\nstep 1\n"
    )
    bad.write_text(good.read_text().replace("263", "99") + LINE)
    alone = json.loads(run("--no-probe", "--format", "json", str(good)).stdout)
    against = run("--no-probe", "--format", "json", "--against", str(good), str(bad))
    data = json.loads(against.stdout)
    assert "flex-not-compiled" in [match["cause"] for match in alone["matches"]]
    left = [match["cause"] for match in data["matches"]]
    assert (left[0], "flex-not-compiled" in left) == ("gpu-too-old-for-flash", False)
    assert data["known_lines"] == 2


def test_another_environment_of_this_machine_is_named_next(tmp_path: Path) -> None:
    other = tmp_path / "other" / "bin" / "python"
    other.parent.mkdir(parents=True)
    other.touch()
    log = tmp_path / "a.log"
    log.write_text(f"** Python executable: {other}\n{LINE}")
    again = f"attn-doctor explain {log} --python {other}"
    shown = " ".join(run(str(log)).stdout.split())
    assert "check not checked: the log comes from another environment" in shown
    assert again in shown
    other.unlink()
    assert again not in " ".join(run(str(log)).stdout.split())
