"""The command as a user types it: real processes, real exit codes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from attn_doctor.facts import Driver, Facts, Gpu, Package, Python, System, Torch, to_json
from tests.command import installed, process, run

HEALTHY = Facts(
    system=System(os="linux"), torch=Torch(installed=False), gpus=(), driver=Driver(state="no-gpu")
)
CPU_TORCH = Facts(
    system=System(os="linux", wsl=0, container=""),
    python=Python(path="/srv/venv/bin/python", pip="24.0", version="3.12.3"),
    driver=Driver(state="ok", version="580.95.05", cuda_max="13.0", vendor="nvidia"),
    gpus=(Gpu(index=0, name="NVIDIA H100", sm=90),),
    torch=Torch(installed=True, version="2.13.0+cpu", local="cpu", build="cpu"),
    torchvision=Package(installed=False),
)


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    path = tmp_path / "facts.json"
    path.write_bytes(to_json(CPU_TORCH))
    return str(path)


@pytest.mark.posix
def test_this_machine_is_examined() -> None:
    done = process("check")
    assert done.returncode in (0, 1), done.stderr
    first = done.stdout.splitlines()[0]
    assert first.startswith("attn-doctor 0.1.0  /")
    assert f"Python {sys.version.split()[0]}" in first
    for block in ("machine ", "toolkit ", "torch ", "packages "):
        assert any(line.startswith(block) for line in done.stdout.splitlines())


def test_a_snapshot_is_evaluated_like_a_machine(snapshot: str) -> None:
    done = run("check", "--facts", snapshot)
    assert done.returncode == 1
    assert "[torch/cpu-build]" in done.stdout
    assert "/srv/venv/bin/python -m pip install" in done.stdout


def test_standard_input_is_a_snapshot_too() -> None:
    done = run("check", "--facts", "-", input=to_json(CPU_TORCH))
    assert done.returncode == 1
    assert "[torch/cpu-build]" in done.stdout


@pytest.mark.parametrize("format", ["text", "json", "markdown"])
@pytest.mark.parametrize(
    ("arguments", "code"), [((), 1), (("--fail-on", "never"), 0), (("--fail-on", "warning"), 1)]
)
@pytest.mark.thorough
def test_the_exit_code_is_the_same_in_every_format(
    snapshot: str, format: str, arguments: tuple[str, ...], code: int
) -> None:
    done = run("check", "--facts", snapshot, "--format", format, *arguments)
    assert done.returncode == code


def test_json_is_only_json(snapshot: str) -> None:
    done = run("check", "--facts", snapshot, "--format", "json")
    data = json.loads(done.stdout)
    assert data["exit_code"] == done.returncode == 1
    assert "torch/cpu-build" in {problem["rule"] for problem in data["problems"]}
    assert done.stderr == ""


def test_strict_fails_on_rules_that_could_not_be_evaluated(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_bytes(to_json(Facts(gaps={"torch": "not read"})))
    assert run("check", "--facts", str(path)).returncode == 0
    done = run("check", "--facts", str(path), "--strict")
    assert done.returncode == 4
    assert "could not be checked" in done.stdout
    assert "not read" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("check", "--facts", "/nowhere/facts.json"), "/nowhere/facts.json cannot be read"),
        (("check", "--python", "/nowhere/python"), "/nowhere/python"),
        (("check", "--facts", "-", "--python", "x"), "drop --python"),
        (("check", "--format", "xml"), "xml"),
        (("check", "--timeout", "soon"), "soon"),
        (("chekc",), "chekc"),
        (("rules", "lint", "--rules", "/nowhere"), "nowhere is not a folder"),
    ],
)
def test_wrong_usage_is_code_2_and_no_traceback(arguments: tuple[str, ...], expected: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2, done.stderr
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_version_and_help() -> None:
    assert run("--version").stdout == "attn-doctor 0.1.0\n"
    shown = run("check", "--help")
    assert shown.returncode == 0
    assert "--facts" in shown.stdout


@pytest.mark.posix
def test_a_reader_that_leaves_early_is_no_error(snapshot: str) -> None:
    command = f"{shlex.join(installed())} check --facts {snapshot} --format json | head -c 10"
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=600, check=True)
    assert done.stderr == b""


def test_a_report_is_evaluated_as_the_machine_itself(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    written = run("report", "-o", str(path))
    assert written.returncode == 0, written.stderr
    here = json.loads(run("check", "--format", "json", "--fail-on", "never").stdout)
    there = json.loads(
        run("check", "--facts", str(path), "--format", "json", "--fail-on", "never").stdout
    )
    assert [p["rule"] for p in here["problems"]] == [p["rule"] for p in there["problems"]]
    again = run("report", "-o", str(path))
    assert again.returncode == 2
    assert "exists" in again.stderr


def test_a_report_goes_to_standard_output_on_demand() -> None:
    assert json.loads(run("report", "-o", "-").stdout)["schema"] == 1


def test_many_formats_from_one_examination(snapshot: str, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    wanted = ["github", f"json:{tmp_path}/a.json", f"sarif:{tmp_path}/a.sarif"]
    wanted += [f"junit:{tmp_path}/a.xml", f"gitlab:{tmp_path}/gl.json"]
    asked = [word for one in wanted for word in ("--format", one)]
    done = run("check", "--facts", snapshot, *asked, GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("::error title=")
    assert summary.read_text().startswith("### attn-doctor")
    assert json.loads((tmp_path / "a.json").read_text())["exit_code"] == 1
    assert json.loads((tmp_path / "a.sarif").read_text())["version"] == "2.1.0"
    assert (tmp_path / "a.xml").read_text().startswith("<?xml")
    assert json.loads((tmp_path / "gl.json").read_text())[0]["check_name"]


def test_a_policy_accepts_and_demands(snapshot: str, tmp_path: Path) -> None:
    policy = tmp_path / "attn-doctor.toml"
    exception = '[[ignore]]\nrule = "torch/cpu-build"\nreason = "a test"\nuntil = {}\n'
    policy.write_text(exception.format("2999-01-01"))
    bare = run("check", "--facts", snapshot, "--policy", "none")
    accepted = run("check", "--facts", snapshot, "--policy", str(policy), "-v")
    assert (bare.returncode, accepted.returncode) == (1, 0), accepted.stdout
    assert "  torch/cpu-build: a test (until 2999-01-01)\n" in accepted.stdout
    policy.write_text(exception.format("2026-01-01"))
    assert (
        "[policy/ignore-expired]"
        in run("check", "--facts", snapshot, "--policy", str(policy)).stdout
    )
    policy.write_text("fail-ona = 'error'")
    wrong = run("check", "--policy", str(policy))
    assert wrong.returncode == 2
    assert wrong.stderr.startswith(f"attn-doctor: {policy}: unknown key 'fail-ona'")


def test_the_policy_is_explained(tmp_path: Path) -> None:
    policy = tmp_path / "attn-doctor.toml"
    policy.write_text('require = ["flash"]\nfail-on = "warning"\n[minimum]\ntorch = "2.8"\n')
    shown = run("check", "--explain-policy", "--policy", str(policy)).stdout
    assert shown.splitlines() == [
        f"Policy: {policy}",
        "  fail-on       warning: check fails on problems from warning upwards",
        "  require       flash: must be ready for inference",
        "  minimum       torch 2.8 or newer",
    ]


def test_a_baseline_counts_only_what_is_new(snapshot: str, tmp_path: Path) -> None:
    known = str(tmp_path / "known.json")
    assert run("check", "--facts", snapshot, "--format", f"json:{known}").returncode == 1
    again = run("check", "--facts", snapshot, "--baseline", known)
    assert again.returncode == 0, again.stdout
    assert "not counted" in again.stdout
    assert run("check", "--facts", snapshot, "--baseline", "/nonexistent").returncode == 2


def test_known_problems_are_counted_as_others_are(tmp_path: Path) -> None:
    facts = str(
        Path(__file__).parents[1] / "machines" / "debian-torch-2.11-cu130-no-gpu" / "facts.json"
    )
    known = str(tmp_path / "known.json")
    first = run("check", "--facts", facts, "--format", f"json:{known}", "--format", "text").text
    one = re.search(r"! (\d+) warnings?, (\d+) notes?", first)
    again = run("check", "--facts", facts, "--baseline", known).text
    assert one
    assert f" {sum(map(int, one.groups()))} known problems not counted" in again


def test_the_format_for_agents_is_for_one_examination(snapshot: str, tmp_path: Path) -> None:
    done = run("check", "--facts", snapshot, "--format", "agent")
    assert json.loads(done.stdout)["exit_code"] == done.returncode == 1
    refused = run("check", "--live", "--format", "agent")
    assert refused.returncode == 2
    assert "drop --live" in refused.stderr


def test_a_check_that_finds_errors_does_without_packaging(snapshot: str, tmp_path: Path) -> None:
    """Its parser of requirements, and what that imports, take a fifth of such a check."""
    python, *words = installed()
    done = subprocess.run(
        [python, "-X", "importtime", *words, "check", "--facts", snapshot],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 1
    assert "packaging.requirements" not in done.stderr
