"""`check --config` as a user types it, in every format that can point at a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attn_doctor.facts import to_json
from tests.command import Ended, run
from tests.configs.machines import machine, written

H200 = str(Path(__file__).parents[1] / "machines" / "h200-torch-2.11-cu130" / "facts.json")


def check(folder: Path, *arguments: str) -> Ended:
    facts = folder / "facts.json"
    facts.write_bytes(to_json(machine("4.1.0")))
    return run("check", "--facts", str(facts), *arguments, cwd=folder, COLUMNS="200")


@pytest.fixture
def flux(tmp_path: Path) -> Path:
    written(tmp_path, "config/config.json", model_family="flux", attention_mechanism="flex")
    return tmp_path


def test_the_block_and_the_finding(flux: Path) -> None:
    done = check(flux, "--config", "config/config.json")
    first, second = done.stdout.splitlines()[:2]
    assert first == "config/config.json: Flux.1, SimpleTuner 4.1.0"
    assert second.startswith("  training: native") or "training and validation: native" in second
    assert "other finding" in done.stdout
    assert "in the configuration" in done.stdout.splitlines()[-2]
    assert "at     config/config.json:9" in done.stdout
    assert "line 9: attention_mechanism: flex → diffusers" in done.stdout


def test_other_findings_of_a_simulated_machine_are_not_those_of_this_one(flux: Path) -> None:
    pretended = ("--pretend", "gpu=gtx1080ti,torch=2.9.1+cu128")
    done = check(flux, "--config", "config/config.json", *pretended)
    assert "run the same command with `--config none`" in done.stdout


def test_a_folder(flux: Path) -> None:
    done = check(flux, "--config", ".")
    assert "config/config.json (SimpleTuner reads it by default)" in done.stdout


def test_the_answer_survives_quiet(flux: Path) -> None:
    done = check(flux, "-q", "--config", "config/config.json")
    assert done.stdout.startswith("config/config.json: Flux.1, SimpleTuner 4.1.0\n")


@pytest.mark.parametrize("quiet", [(), ("-q",)])
def test_what_is_required_is_answered_beside_a_configuration(
    flux: Path, quiet: tuple[str, ...]
) -> None:
    asked = ("--config", "config/config.json", "--for", "inference", *quiet)
    missing = check(flux, *asked, "--require", "xformers")
    assert missing.returncode == 1
    assert "[required/xformers]" in missing.stdout
    assert "in the configuration" not in missing.stdout.splitlines()[-2]
    met = run("check", "--facts", H200, *asked, "--require", "native", cwd=flux)
    assert ", as required" in met.stdout
    assert "in the configuration" in met.stdout.splitlines()[-2]


def test_a_project(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "start.sh").write_text("python main.py --use-sage-attention\n", "utf-8")
    (tmp_path / "run.py").write_text('p.transformer.set_attention_backend("flash")\n', "utf-8")
    (tmp_path / "other.py").write_text("print('attention')\n", "utf-8")
    done = check(tmp_path, "--config")
    heads = [line for line in done.stdout.splitlines() if line.startswith(("run", "scr", "oth"))]
    assert [head.partition(" ")[0] for head in heads] == ["run.py", "scripts/start.sh"]


def test_a_snapshot_looks_for_nothing(flux: Path) -> None:
    assert "config    " not in check(flux).stdout


def test_none(flux: Path) -> None:
    done = run("check", "--config", "none", cwd=flux)
    assert "simpletuner/backend-not-routed" not in done.stdout


def test_what_lies_here_is_found(flux: Path) -> None:
    done = run("check", "--format", "json", cwd=flux)
    (one,) = json.loads(done.stdout)["configs"]
    assert (one["file"], one["found"]) == ("config/config.json", "SimpleTuner reads it by default")


def test_a_broken_one_that_was_not_named_is_a_line(flux: Path) -> None:
    (flux / "config" / "config.json").write_text('{"model_family": ', encoding="utf-8")
    done = run("check", cwd=flux)
    assert done.returncode in (0, 1)
    assert "config/config.json, line 1" in done.stdout


def test_sarif_github_and_gitlab_point_at_the_line(flux: Path) -> None:
    formats = [f"--format={name}:{name}.out" for name in ("sarif", "github", "gitlab", "json")]
    check(flux, "--config", "config/config.json", *formats)
    results = json.loads((flux / "sarif.out").read_text("utf-8"))["runs"][0]["results"]
    (one,) = [each for each in results if each["ruleId"] == "simpletuner/backend-not-routed"]
    place = one["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "config/config.json"
    assert place["region"]["startLine"] == 9
    assert ",file=config/config.json,line=9::" in (flux / "github.out").read_text("utf-8")
    issues = json.loads((flux / "gitlab.out").read_text("utf-8"))
    (issue,) = [each for each in issues if each["check_name"] == "simpletuner/backend-not-routed"]
    assert issue["location"] == {"path": "config/config.json", "lines": {"begin": 9}}
    assert len({each["fingerprint"] for each in issues}) == len(issues)
    data = json.loads((flux / "json.out").read_text("utf-8"))
    phases = data["configs"][0]["phases"]
    assert [each["backend"] for each in phases] == ["native", "native"]
    assert data["problems"][0]["location"] == {"file": "config/config.json", "line": 9} or any(
        each["location"] == {"file": "config/config.json", "line": 9} for each in data["problems"]
    )


def test_a_policy_accepts_it(flux: Path) -> None:
    (flux / "attn-doctor.toml").write_text(
        '[[ignore]]\nrule = "simpletuner/backend-not-routed"\nreason = "known"\n'
        "until = 2099-01-01\n",
        encoding="utf-8",
    )
    done = check(flux, "--config", "config/config.json", "--format", "json")
    data = json.loads(done.stdout)
    assert "simpletuner/backend-not-routed" in [one["rule"] for one in data["suppressed"]]


def test_a_baseline_knows_it(flux: Path) -> None:
    check(flux, "--config", "config/config.json", "--format", "json:before.json")
    done = check(
        flux, "--config", "config/config.json", "--baseline", "before.json", "--format", "json"
    )
    assert json.loads(done.stdout)["problems"] == []


def test_several(flux: Path) -> None:
    written(flux, "other.json", model_family="wan", attention_mechanism="flex")
    done = check(flux, "--config", "config/config.json", "--config", "other.json")
    assert "Flux.1, SimpleTuner" in done.stdout
    assert "Wan, SimpleTuner" in done.stdout


def test_problems_without_a_part_in_it_do_not_decide_the_exit_code(tmp_path: Path) -> None:
    """This xformers needs a newer torch, which matters only to a script that uses it."""
    (tmp_path / "a.py").write_text('pipe.transformer.set_attention_backend("native")\n')
    (tmp_path / "b.py").write_text("pipe.enable_xformers_memory_efficient_attention()\n")
    broken = "torch=2.9.1+cu130,torchvision=0.24.1,torchaudio=2.9.1,xformers=0.0.36"
    plain = run("check", "--facts", H200, "--pretend", broken)
    assert (plain.returncode, "xformers" in plain.stdout) == (1, True)
    codes = [
        run("check", "--facts", H200, "--pretend", broken, "--config", str(one)).returncode
        for one in sorted(tmp_path.iterdir())
    ]
    assert codes == [0, 1]


def test_wrong_gradients_stay_in_view_of_a_training(flux: Path) -> None:
    simulated = ("--pretend", "gpu=rtx4090,torch=2.11.0+cu130")
    for phase, shown in (("training", True), ("inference", False)):
        done = check(flux, "--config", "config/config.json", "--for", phase, *simulated)
        assert ("[torch/mix-order-reduction]" in done.stdout) is shown


def test_the_phase_that_is_asked_for(flux: Path) -> None:
    done = check(flux, "--config", "config/config.json", "--for", "inference")
    assert "  validation: " in done.stdout
    assert "  training: " not in done.stdout


def test_branches_of_a_start_share_a_heading(tmp_path: Path) -> None:
    content = (
        "ARGS=--sdpa\nif [ $X = 1 ]; then\n  ARGS=--xformers\nfi\npython train_network.py $ARGS\n"
    )
    (tmp_path / "train.sh").write_text(content, encoding="utf-8")
    lines = check(tmp_path, "--config", "train.sh").stdout.splitlines()
    assert lines.count("train.sh: sd-scripts") == 1
    assert lines[1].startswith("  training: native (torch's own) if line 3 does not run")
    assert lines[2].startswith("  training: xformers if line 3 runs")
    assert sum("from the source of sd-scripts" in line for line in lines) == 1
