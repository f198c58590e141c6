"""`attn-doctor backends`, and the backends of `check`, as their users call them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from attn_doctor import __main__
from attn_doctor.rulebook import library
from attn_doctor.rulebook.library import folder
from tests.command import installed, read_index

MACHINES = Path(__file__).parents[1] / "machines"
H200 = str(MACHINES / "h200-torch-2.11-cu130" / "facts.json")
BARE = str(MACHINES / "debian-no-torch" / "facts.json")


class Done(NamedTuple):
    """What a command left."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def index() -> Any:
    """The prebuilt index, as a wheel has it; reading the rule files each time would take long."""
    return read_index()


#: The fixtures of the test that runs.
HERE: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def quick(
    index: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[None]:
    library.tables.cache_clear()
    library._all.cache_clear()
    monkeypatch.setattr(library, "_index", lambda: index)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    HERE.update(monkeypatch=monkeypatch, capsys=capsys)
    yield
    library.tables.cache_clear()
    library._all.cache_clear()


def run(*arguments: str, cwd: Path | None = None) -> Done:
    """The command line in this process, with its exit code."""
    HERE["capsys"].readouterr()
    HERE["monkeypatch"].setattr(sys, "argv", ["attn-doctor", *arguments])
    if cwd is not None:
        HERE["monkeypatch"].chdir(cwd)
    code = __main__._run()
    return Done(code, *HERE["capsys"].readouterr())


def backends(*arguments: str) -> Any:
    done = run("backends", *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_table() -> None:
    done = run("backends", "--facts", H200)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert "Diffusers 0.42.1 (not installed; assumed: the newest known release)" in done.stdout
    native = next(line for line in lines if line.startswith("native "))
    assert native.split() == ["native", *["ready,", "but"] * 4]
    flash = next(line for line in lines if line.startswith("_native_flash "))
    assert flash.split()[1:] == ["ready", "no", "ready", "no"]
    code = "import torch, torch.nn.attention.flex_attention as fa; fa.flex_attention ="
    assert any(code in line and line.endswith("(fa.flex_attention)") for line in lines)
    assert "→ use native: 0.41 ms a call on one NVIDIA H200" in done.stdout
    assert all(len(line) <= 100 for line in lines if code not in line and "pip" not in line)


def test_many_calls_are_split_over_lines() -> None:
    done = run("backends", "native", "--facts", H200, "--mask", "none,varlen,bool,float")
    lines = done.stdout.splitlines()
    assert [line.count("ready") for line in lines if line.startswith("native ")] == [7, 1]
    assert all(len(line) <= 100 for line in lines)


def test_json_has_every_name_and_reason() -> None:
    data = backends("--facts", H200, "--for", "training", "--mask", "bool,none")
    assert [(one["phase"], one["mask"]) for one in data["calls"]] == [
        ("training", "bool"),
        ("training", "none"),
    ]
    assert {one["recommended"]["name"] for one in data["calls"]} == {"native"}
    rows = {row["name"]: row for row in data["rows"]}
    assert len(rows) == 28
    reason = rows["_native_flash"]["answers"][0]["reasons"][0]
    assert reason["rule"] == "diffusers/mask-rejected"
    assert reason["because"][0]["wanted"] == "< 0.37"
    assert data["facts"]["torch"]["version"] == "2.11.0+cu130"


def test_markdown_is_one_table() -> None:
    done = run("backends", "--facts", H200, "--format", "markdown", "--framework", "finetrainers")
    rows = [line for line in done.stdout.splitlines() if line.startswith("| `")]
    assert len(rows) == 15
    assert rows[0].startswith("| `native` | ready | ready | ready | ready |")


@pytest.mark.parametrize("format", ["text", "json", "markdown"])
def test_why(format: str) -> None:
    done = run("backends", "--facts", H200, "--why", "flash", "--format", format)
    assert done.returncode == 0
    text = done.stdout.replace("\\_", "_")
    assert ("flash-attn is not installed" if format == "text" else "flash_attn.installed") in text
    assert "https://github.com/Dao-AILab/flash-attention" in text
    if format == "text":
        assert "torch is installed" in text
        assert "declared" in text
        assert "really" in text


def test_only_some() -> None:
    data = backends("flash", "flash-attn-2", "--facts", H200)
    assert [row["name"] for row in data["rows"]] == ["flash", "flash_varlen"]


def test_a_machine_that_is_not_here() -> None:
    done = run("backends", "--facts", BARE, "--pretend", "gpu=rtx4090,torch=2.9.1+cu128")
    assert done.returncode == 0
    assert "simulated: NVIDIA GeForce RTX 4090, torch 2.9.1+cu128" in done.stdout
    assert "not measured on sm_89" in done.stdout
    data = backends("--facts", BARE, "--pretend", "gpu=rtx4090,torch=2.9.1+cu128")
    assert data["simulated"][0] == "NVIDIA GeForce RTX 4090"
    assert data["rows"][0]["answers"][0]["state"] == "ready"


def test_this_machine_itself() -> None:
    words = [*installed(), "backends", "--python", sys.executable, "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    data = json.loads(done.stdout)
    assert data["facts"]["python"]["path"]
    assert {answer["state"] for row in data["rows"] for answer in row["answers"]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--why", "flesh"), "did you mean flash"),
        (("flesh",), "did you mean flash"),
        (("--mask", "round"), "choose from none, varlen, bool, float"),
        (("--pretend", "gpu=rtx409"), "did you mean rtx4090"),
        (("--framework", "forge"), "forge"),
        (("--live",), "--live runs the backends here"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], said: str) -> None:
    done = run("backends", "--facts", H200, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_check_shows_the_short_form() -> None:
    done = run("check", "--facts", H200, "--policy", "none")
    lines = [line.strip() for line in done.stdout.splitlines()]
    start = next(n for n, line in enumerate(lines) if line.startswith("backends"))
    assert lines[start].startswith("backends  ready: native, _native_cudnn, _native_efficient")
    assert lines[start + 1] == "slow: _native_math, flex"
    assert lines[start + 2] == (
        "not ready: flash* (2), *_hub (7), _flash_3* (2), xformers, sage* (6)"
    )
    assert lines[start + 3].startswith("use native: 0.41 ms a call on one NVIDIA H200")
    assert lines[start + 5] == ""
    bare = run("check", "--facts", BARE, "--policy", "none").stdout
    assert "backends  none is ready: torch is not installed" in bare
    assert "backends" not in run("check", "--facts", H200, "--policy", "none", "--quiet").stdout


def test_check_in_json_and_markdown() -> None:
    data = json.loads(run("check", "--facts", H200, "--policy", "none", "--format", "json").stdout)
    assert data["backends"]["framework"] == "diffusers"
    assert data["backends"]["calls"][0]["recommended"]["name"] == "native"
    done = run("check", "--facts", H200, "--policy", "none", "--format", "markdown")
    assert "| backends | ready: native," in done.stdout


REQUIRED = ("check", "--facts", H200, "--policy", "none", "--require")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("native,_native_cudnn",), 0, ""),
        (("flash",), 1, "The required backend flash is not ready for inference without a mask"),
        (("native,flash",), 1, "flash-attn is not installed"),
        (("flash", "--fail-on", "never"), 1, "flash-attn is not installed"),
        (("native", "--fail-on", "never"), 0, ""),
        (("flex",), 1, "The required backend flex is slow for inference"),
        (("flex", "--compiled"), 0, ""),
        (("_native_flash", "--mask", "bool"), 1, "with a bool mask"),
        (("flash", "--pretend", "flash-attn=2.8.3"), 0, ""),
        (
            ("flash", "--pretend", "flash-attn=2.8.3", "--mask", "float"),
            1,
            "does not support masks",
        ),
        (("sage", "--pretend", "sageattention=2.2.0"), 0, ""),
        (("sage", "--pretend", "sageattention=2.2.0", "--for", "training"), 1, "no backward pass"),
        (("flash-attn-2", "--framework", "simpletuner"), 1, "flash-attn-2 is not ready"),
        (("flash_hub", "--pretend", "kernels=0.16.2"), 1, "is not known to be ready"),
    ],
)
def test_required_backends(arguments: tuple[str, ...], code: int, said: str) -> None:
    done = run(*REQUIRED, *arguments)
    assert done.returncode == code, done.stdout
    assert said in " ".join(done.stdout.split())


def test_an_unknown_required_backend_is_wrong_usage() -> None:
    done = run(*REQUIRED, "flsh")
    assert done.returncode == 2
    assert "did you mean flash" in done.stderr


def test_required_backends_are_in_the_formats_of_ci() -> None:
    case = 'classname="attn-doctor.required" name="flash"'
    assert case in run(*REQUIRED, "native,flash", "--format", "junit").stdout
    data = json.loads(run(*REQUIRED, "flash", "--format", "json").stdout)
    assert data["exit_code"] == 1
    assert "required/flash" in {one["rule"] for one in data["problems"]}
    sarif = json.loads(run(*REQUIRED, "flash", "--format", "sarif").stdout)
    results = sarif["runs"][0]["results"]
    assert "required/flash" in {one["ruleId"] for one in results}


def test_a_policy_may_require_backends(tmp_path: Path) -> None:
    (tmp_path / "attn-doctor.toml").write_text(
        'require = ["sage"]\ntraining = true\n', encoding="utf-8"
    )
    words = ("check", "--facts", H200, "--pretend", "sageattention=2.2.0")
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 1
    assert "sage is not ready for training" in " ".join(done.stdout.split())
    (tmp_path / "attn-doctor.toml").write_text('require = ["sage"]\n', encoding="utf-8")
    assert run(*words, cwd=tmp_path).returncode == 0


@pytest.mark.thorough
def test_the_linter_checks_the_catalogue(tmp_path: Path) -> None:
    assert "45 backends: 89 names" in run("rules", "lint").stdout
    place = tmp_path / "tables" / "backends"
    place.mkdir(parents=True)
    (place / "x.toml").write_text("schema = 1\n", encoding="utf-8")
    (tmp_path / "flash").mkdir()
    rule = folder() / "flash" / "head-dim.toml"
    (tmp_path / "flash" / "mine.toml").write_bytes(rule.read_bytes())
    done = run("rules", "lint", "--rules", str(tmp_path))
    assert done.returncode == 2
    assert "x.toml" in done.stdout
