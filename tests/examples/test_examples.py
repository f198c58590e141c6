"""The GitHub Action, the hooks and the examples: their commands run, and their shape is valid."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from attn_doctor.facts import Facts, to_json
from attn_doctor.policy.policy import read
from tests.cli.test_check import CPU_TORCH, HEALTHY
from tests.command import installed

# It needs libraries that wine cannot load.
check_jsonschema = pytest.importorskip("check_jsonschema", exc_type=ImportError)
from ruamel.yaml import YAML  # noqa: E402  # a part of check_jsonschema

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
SCHEMAS = Path(check_jsonschema.__file__).with_name("builtin_schemas") / "vendor"
bash = pytest.mark.skipif(not shutil.which("bash"), reason="the Action runs in bash")


def yaml(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text("utf-8"))


def valid(path: Path, schema: str) -> Any:
    data = yaml(path)
    described = json.loads((SCHEMAS / schema).read_text("utf-8"))
    jsonschema.validators.validator_for(described)(described).validate(data)
    return data


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with `attn-doctor` and `python` as the examples call them."""
    folder = tmp_path / "bin"
    folder.mkdir()
    doctor = folder / "attn-doctor"
    doctor.write_text(f'#!/bin/sh\nexec {shlex.join(installed())} "$@"\n')
    doctor.chmod(0o755)
    (folder / "python").symlink_to(sys.executable)
    return folder


def shell(
    script: str, programs: Path, cwd: Path, **environ: str
) -> subprocess.CompletedProcess[str]:
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **environ},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def snapshot(folder: Path, facts: Facts) -> str:
    path = folder / "facts.json"
    path.write_bytes(to_json(facts))
    return str(path)


def check_step() -> str:
    """The script of the Action's second step."""
    script: str = yaml(ROOT / "action.yml")["runs"]["steps"][1]["run"]
    return script


def action(programs: Path, tmp_path: Path, **inputs: str) -> tuple[int, str, dict[str, str]]:
    """Run the Action's check as a runner does. Returns code, output and the step's outputs."""
    temp = tmp_path / "runner"
    temp.mkdir()
    names = ("PYTHON", "REQUIRE", "CONFIG", "FACTS", "POLICY", "BASELINE", "FAIL_ON")
    given = {f"IN_{name}": inputs.get(name.lower(), "") for name in names}
    given["PROGRAMS"] = str(programs)
    files = {"GITHUB_OUTPUT": str(tmp_path / "out"), "GITHUB_STEP_SUMMARY": str(tmp_path / "md")}
    done = shell(check_step(), programs, tmp_path, RUNNER_TEMP=str(temp), **given, **files)
    lines = (tmp_path / "out").read_text().splitlines()
    return done.returncode, done.stdout + done.stderr, dict(line.split("=", 1) for line in lines)


def test_the_action_is_valid() -> None:
    data = valid(ROOT / "action.yml", "github-actions.json")
    used = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text("utf-8")))
    assert used == set(data["inputs"])


@bash
@pytest.mark.parametrize("layout", ["bin", "Scripts"])
def test_the_action_finds_its_programs_on_every_system(layout: str, tmp_path: Path) -> None:
    """`python -m venv` makes `Scripts` on Windows; here a small script does."""
    (tmp_path / "bin").mkdir()
    stub = tmp_path / "bin" / "python"
    made = f'mkdir -p "$3/{layout}" && cp "$0" "$3/{layout}/python"'
    stub.write_text(f'#!/bin/sh\n[ "$2" = venv ] && {made} || echo "$@" >> "$RAN"\n')
    stub.chmod(0o755)
    install = yaml(ROOT / "action.yml")["runs"]["steps"][0]["run"]
    files = {"GITHUB_OUTPUT": str(tmp_path / "out"), "RAN": str(tmp_path / "ran")}
    done = shell(install, stub.parent, tmp_path, RUNNER_TEMP=str(tmp_path), PACKAGE="x==1", **files)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text() == f"programs={tmp_path}/attn-doctor/{layout}\n"
    assert (tmp_path / "ran").read_text() == "-m pip install --quiet x==1\n"


@bash
@pytest.mark.thorough
def test_the_action_fails_on_problems_and_writes_every_result(
    programs: Path, tmp_path: Path
) -> None:
    code, output, outputs = action(programs, tmp_path, facts=snapshot(tmp_path, CPU_TORCH))
    assert code == 1, output
    assert "::error title=" in output
    assert outputs["exit-code"] == "1"
    assert json.loads(Path(outputs["json"]).read_text())["exit_code"] == 1
    assert json.loads(Path(outputs["sarif"]).read_text())["version"] == "2.1.0"
    assert Path(outputs["junit"]).read_text().startswith("<?xml")
    assert (tmp_path / "md").read_text().startswith("### attn-doctor")


@bash
@pytest.mark.thorough
def test_the_action_passes_options_on(programs: Path, tmp_path: Path) -> None:
    healthy = snapshot(tmp_path, HEALTHY)
    code, output, _ = action(programs, tmp_path, facts=healthy, fail_on="never", config="--strict")
    assert code in (0, 4), output


@bash
@pytest.mark.thorough
def test_a_required_backend_fails_the_action(programs: Path, tmp_path: Path) -> None:
    code, output, _ = action(
        programs, tmp_path, facts=snapshot(tmp_path, CPU_TORCH), fail_on="never", require="flash"
    )
    assert code == 1, output
    assert "flash" in output


@bash
@pytest.mark.thorough
def test_an_environment_is_examined_where_no_snapshot_is_given(
    programs: Path, tmp_path: Path
) -> None:
    code, output, outputs = action(programs, tmp_path)
    assert code in (0, 1), output
    facts = json.loads(Path(outputs["json"]).read_text())["facts"]
    assert facts["python"]["version"] == ".".join(map(str, sys.version_info[:3]))


def test_the_workflows_are_valid() -> None:
    data = valid(EXAMPLES / "github-workflow.yml", "github-workflows.json")
    steps = data["jobs"]["preflight"]["steps"]
    used = next(step for step in steps if "with" in step and "require" in step["with"])
    assert set(used["with"]) <= set(yaml(ROOT / "action.yml")["inputs"])
    valid(EXAMPLES / "gitlab-ci.yml", "gitlab-ci.json")


@bash
@pytest.mark.thorough
def test_gitlab_s_command_writes_its_reports(programs: Path, tmp_path: Path) -> None:
    job = yaml(EXAMPLES / "gitlab-ci.yml")["attention"]
    command = job["script"][-1].replace("/opt/attn-doctor/bin/", "")
    done = shell(command, programs, tmp_path)
    assert done.returncode in (0, 1), done.stderr
    for name in job["artifacts"]["reports"].values():
        assert (tmp_path / name).stat().st_size


def test_the_hooks_name_commands_that_exist() -> None:
    for hook in yaml(ROOT / ".pre-commit-hooks.yaml"):
        assert {"id", "name", "entry", "language"} <= set(hook)
        assert hook["language"] == "python"
        words = shlex.split(hook["entry"])
        done = subprocess.run(
            [*installed(), *words[1:], "--help"],
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert words[0] == "attn-doctor"
        assert done.returncode == 0


@bash
@pytest.mark.thorough
def test_the_entrypoint_checks_and_becomes_the_command(programs: Path, tmp_path: Path) -> None:
    run = f"sh {shlex.quote(str(EXAMPLES / 'entrypoint.sh'))} sh -c 'echo up; exit 7'"
    done = shell(run, programs, tmp_path, ATTN_DOCTOR_FAIL_ON="never")
    assert (done.returncode, done.stdout) == (7, "up\n"), done.stderr
    refused = shell(run, programs, tmp_path, ATTN_DOCTOR_REQUIRE="flash")
    assert refused.returncode == 1
    assert refused.stdout == ""
    output = shell(
        run, programs, tmp_path, ATTN_DOCTOR_REQUIRE="flash", ATTN_DOCTOR_FAIL_ON="never"
    )
    assert (output.returncode, output.stdout) == (7, "up\n")
    assert "flash" in output.stderr


@bash
@pytest.mark.thorough
def test_the_prolog_drains_only_for_problems_of_the_node(programs: Path, tmp_path: Path) -> None:
    run = f"sh {shlex.quote(str(EXAMPLES / 'slurm-prolog.sh'))}"
    assert shell(run, programs, tmp_path).returncode == 0  # a job without GPUs
    gpu = {"SLURM_JOB_GPUS": "0", "ATTN_DOCTOR_PYTHON": sys.executable}
    code = shell(f"{run} || exit 9", programs, tmp_path, **gpu).returncode
    found = shell(
        "attn-doctor check -q --policy none --python $ATTN_DOCTOR_PYTHON", programs, tmp_path, **gpu
    )
    assert (code == 9) == (found.returncode == 1)
    missing = {**gpu, "ATTN_DOCTOR_PYTHON": str(tmp_path / "none")}
    assert shell(run, programs, tmp_path, **missing).returncode == 0


@bash
@pytest.mark.thorough
def test_the_image_s_commands_run(programs: Path, tmp_path: Path) -> None:
    text = (EXAMPLES / "Dockerfile").read_text("utf-8")
    checked = re.search(r"^RUN (attn-doctor check .*)$", text, re.MULTILINE)
    assert checked
    done = shell(checked[1], programs, tmp_path, GPU="h100")
    assert done.returncode in (0, 1), done.stderr
    assert done.returncode == 0 or "torch/not-installed" in done.stdout
    health = re.search(r"CMD (\[.*\])", text)
    assert health
    words = json.loads(health[1])[:-1]
    assert shell(shlex.join([*words, sys.executable]), programs, tmp_path).returncode in (0, 1)
    copied = re.findall(r"^COPY (\S+)", text, re.MULTILINE)
    assert all((ROOT / path).is_file() for path in copied)


@bash
@pytest.mark.thorough
def test_the_init_container_runs(programs: Path, tmp_path: Path) -> None:
    pod = yaml(EXAMPLES / "kubernetes.yaml")
    assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")
    (init,) = pod["spec"]["initContainers"]
    (main,) = pod["spec"]["containers"]
    assert init["image"] == main["image"]
    assert {mount["name"] for mount in main["volumeMounts"]} == {
        volume["name"] for volume in pod["spec"]["volumes"]
    }
    log = tmp_path / "log"
    log.touch()
    words = [word.replace("/dev/termination-log", str(log)) for word in init["command"]]
    done = shell(shlex.join(words), programs, tmp_path)
    assert done.returncode in (0, 1), done.stderr
    assert json.loads(log.read_text())["exit_code"] == done.returncode


def test_the_policy_is_one() -> None:
    assert read(EXAMPLES / "attn-doctor.toml").require == ("native",)


def test_every_example_is_listed() -> None:
    listed = set(
        re.findall(r"^\| `([^`]+)`", (EXAMPLES / "README.md").read_text("utf-8"), re.MULTILINE)
    )
    assert listed == {path.name for path in EXAMPLES.iterdir()} - {"README.md"}
