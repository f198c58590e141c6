"""The rulebook's commands as a user types them, and a team's own rules beside ours."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from attn_doctor.facts import Driver, Facts, Gpu, System, Torch, to_json
from attn_doctor.rulebook import library
from tests.command import run

RULES = library.load()
#: A rule that a team might have: sound, and with a fix that asks for no consent.
OWN = """\
schema   = 1
severity = "warning"
cause    = "torch-cpu-only"
backends = ["sage"]
evidence = ["https://wiki.example.org/1"]
checked  = 2026-11-21

[text]
title = "Our cluster has no index for torch {torch.version}"
why   = "The mirror carries two releases only."

[applies]
all = ['torch.installed == true']

[when]
all = ['torch.version < "2.9"']

[[fix]]
title  = "Install from the mirror"
safety = "auto"
run    = [["pip", "install", "torch==2.9.1"]]

[[symptom]]
pattern = 'mirror has no torch \\d'
logs    = ["ERROR: mirror has no torch 2.8.0"]

[[example]]
name   = "the old image"
expect = "problem"
run    = ["pip install torch==2.9.1"]
[example.facts]
torch.installed = true
torch.version = "2.8.0"

[[example]]
name   = "the new image"
expect = "ok"
[example.facts]
torch.installed = true
torch.version = "2.9.1"

[[example]]
name   = "no torch"
expect = "not applicable"
[example.facts]
torch.installed = false
torch.version = "2.8.0"

[[example]]
name   = "an unreadable torch"
expect = "unknown"
[example.facts]
torch.installed = true
"""
OLD_TORCH = Facts(
    system=System(os="linux", wsl=0, container=""),
    driver=Driver(state="ok", version="580.95.05", cuda_max="13.0", vendor="nvidia"),
    gpus=(Gpu(index=0, name="NVIDIA H100", sm=90),),
    torch=Torch(installed=True, version="2.8.0+cu128", local="cu128", build="cuda"),
)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with one rule of a team's own."""
    return put(tmp_path / "own", "mirror/old-torch", OWN)


def put(folder: Path, id: str, text: str) -> Path:
    path = folder / f"{id}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return folder


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    path = tmp_path / "facts.json"
    path.write_bytes(to_json(OLD_TORCH))
    return str(path)


def test_list_has_one_plain_line_a_rule_and_a_count() -> None:
    done = run("rules", "list", COLUMNS="40")
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("  ")]
    assert [row.split()[0] for row in rows] == [rule.id for rule in RULES]
    assert f"{len(RULES)} rules: " in done.stdout
    assert "\x1b" not in done.stdout
    assert "…" not in done.stdout
    assert "torch is a build without CUDA, which cannot use an NVIDIA GPU" in done.stdout


def test_list_takes_every_filter_at_once() -> None:
    arguments = ("--area", "torch", "--severity", "error", "--cause", "torch-cpu-only")
    done = run("rules", "list", *arguments, "--backend", "sage", "--format", "json")
    data = json.loads(done.stdout)
    ids = [rule["id"] for rule in data["rules"]]
    assert "torch/cpu-build" in ids
    assert data["count"] == len(ids)
    wanted = [
        rule.id
        for rule in RULES
        if rule.id.startswith("torch/")
        and (rule.severity, rule.cause) == ("error", "torch-cpu-only")
        and "sage" in rule.backends
    ]
    assert ids == wanted


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("list", "--area", "torhc"), "did you mean torch?"),
        (("list", "--cause", "torch-cpu"), "torch-cpu-only"),
        (("list", "--backend", "sagee"), "did you mean sage"),
        (("show", "cpu-biuld"), "did you mean torch/cpu-build"),
        (("show", "torch/cpu-biuld"), "did you mean torch/cpu-build"),
        (("show", "torch"), "rules list --area torch"),
        (("new", "Flash/Thing"), "is not an id of a rule"),
        (("new", "../thing"), "is not an id of a rule"),
        (("new", "tables/thing"), "is not an id of a rule"),
        (("new", "torch/cpu-build", "--rules", "/nowhere"), "attn-doctor's own"),
        (("new", "flash/thing", "--from-log", "/nowhere/log"), "/nowhere/log cannot be read"),
        (("test", "cpu-biuld"), "did you mean torch/cpu-build"),
        (("test", "--rules", "/nowhere"), "nowhere is not a folder"),
        (("lint", "--rules", "/nowhere"), "nowhere is not a folder"),
    ],
)
def test_wrong_names_are_code_2_with_the_nearest(arguments: tuple[str, ...], expected: str) -> None:
    done = run("rules", *arguments)
    assert done.returncode == 2, done.stderr
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize("format", ["text", "markdown", "json"])
@pytest.mark.parametrize("name", ["torch/cpu-build", "cpu-build"])
def test_show_takes_an_id_and_its_last_part(name: str, format: str) -> None:
    done = run("rules", "show", name, "--format", format)
    assert done.returncode == 0, done.stderr
    assert "torch/cpu-build" in done.stdout
    assert "Torch not compiled with CUDA enabled" in done.stdout
    if format == "json":
        data = json.loads(done.stdout)
        assert data["when"] == {"all": ['torch.build == "cpu"'], "any": [], "none": []}
        assert "flash/extension-missing" in data["explains"]
    else:
        assert "<torch.pin_for_driver>" in done.stdout.replace("\\", "")


def test_show_takes_a_cause_and_lists_its_rules() -> None:
    done = run("rules", "show", "torch-cpu-only")
    assert done.returncode == 0, done.stderr
    assert "torch is a build without CUDA, or sees no CUDA device." in done.stdout
    assert "torch/cpu-build  " in done.stdout


@pytest.mark.posix
def test_a_new_rule_loads_and_the_linter_lists_what_is_left(tmp_path: Path) -> None:
    folder = str(tmp_path / "mine")
    done = run("rules", "new", "sage/wrong-thing", "--rules", folder)
    assert done.returncode == 0, done.stderr
    linted = run("rules", "lint", "--rules", folder)
    assert linted.returncode == 1, linted.stderr
    complaint, summary = linted.stdout.splitlines()
    assert complaint.startswith(f"{folder}/sage/wrong-thing.toml: is not filled in yet: cause,")
    assert summary == "1 complaint about 1 rule"
    assert run("rules", "test", "--rules", folder).returncode == 0


def test_a_filled_in_rule_passes(tmp_path: Path) -> None:
    """What the linter asks for is enough."""
    folder = tmp_path / "mine"
    run("rules", "new", "sage/wrong-thing", "--rules", str(folder))
    path = folder / "sage" / "wrong-thing.toml"
    text = path.read_text("utf-8").replace('cause    = "FILL IN"', 'cause    = "torch-cpu-only"')
    path.write_text(text.replace("FILL IN", "torch cpu9"), "utf-8")
    done = run("rules", "lint", "--rules", str(folder))
    assert done.stdout == (
        "No complaints about 1 rule: 4 examples, 1 log line, 0 reports, 0 look-alikes\n"
        "1 rule with symptoms, but with fewer than two look-alikes\n"
    )
    assert done.returncode == 0


def test_new_overwrites_nothing(tmp_path: Path) -> None:
    put(tmp_path, "sage/mine", "kept")
    done = run("rules", "new", "sage/mine", "--rules", str(tmp_path))
    assert done.returncode == 2
    assert "exists" in done.stderr
    assert (tmp_path / "sage" / "mine.toml").read_text("utf-8") == "kept"


def test_new_takes_symptom_cause_and_facts_from_a_log(tmp_path: Path) -> None:
    log = (
        "Collecting things\nPyTorch version: 2.8.0+cu128\nTraceback (most recent call last):\n"
        '  File "train.py", line 3, in <module>\n    import flash_attn\n'
        "ImportError: /opt/v/flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2E\n"
    )
    arguments = ("new", "flash/mine", "--from-log", "-", "--rules", str(tmp_path))
    done = run("rules", *arguments, input=log.encode())
    assert done.returncode == 0, done.stderr
    assert "Note: flash/" in done.stdout
    assert "matches this line already" in done.stdout
    text = (tmp_path / "flash" / "mine.toml").read_text("utf-8")
    assert 'cause    = "ext-torch-abi-mismatch"' in text
    assert '# From the log: torch.version = "2.8.0+cu128"' in text
    tested = run("rules", "test", "mine", "--rules", str(tmp_path))
    assert "line 'ImportError: /opt/v/flash_attn_2_cuda.so: undefined symbol" in tested.stdout
    assert tested.returncode == 0


def test_a_log_without_a_failure_makes_no_rule(tmp_path: Path) -> None:
    arguments = ("new", "flash/mine", "--from-log", "-", "--rules", str(tmp_path))
    done = run("rules", *arguments, input=b"Epoch 1/10\nEpoch 2/10\n")
    assert done.returncode == 2
    assert "shows no failure" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_tests_of_our_own_rules_pass() -> None:
    done = run("rules", "test")
    assert done.returncode == 0, done.stdout
    assert len(done.stdout.splitlines()) == len(RULES) + 1
    assert done.stdout.endswith(", 0 failures\n")


def test_a_failing_example_and_a_line_not_found_are_named(own: Path) -> None:
    put(own, "mirror/wrong", OWN.replace('< "2.9"', '< "2.8"').replace("has no torch \\d", "gone"))
    done = run("rules", "test", "--rules", str(own))
    assert done.returncode == 1
    assert "ok    mirror/old-torch  4 examples, 1 line" in done.stdout
    assert "FAIL  mirror/wrong" in done.stdout
    assert "example 'the old image': expected problem, got ok" in done.stdout
    assert "symptom 'mirror gone' does not match its own line" in done.stdout
    assert done.stdout.endswith("10 tests, 2 failures\n")
    one = run("rules", "test", "wrong", "--rules", str(own))
    assert one.returncode == 1
    assert "ok    mirror/wrong  example 'the new image': ok" in one.stdout
    assert "mirror/old-torch" not in one.stdout


@pytest.mark.posix
def test_lint_names_every_file_and_each_fault_on_a_line(own: Path) -> None:
    put(own, "mirror/broken", "schema = 1\nseverity =\n")
    put(own, "mirror/slow", OWN.replace("mirror has no torch \\d", "(a+)+mirror has no torch"))
    put(own, "torch/cpu-build", OWN)
    (own / "lost.toml").write_text("", "utf-8")
    done = run("rules", "lint", "--rules", str(own))
    assert done.returncode == 2
    faults = [line.removeprefix(f"{own}{os.sep}") for line in done.stdout.splitlines()]
    assert any(one.startswith("mirror/broken.toml: line 2") for one in faults)
    assert any(one.startswith("mirror/slow.toml: symptom '(a+)+mirror") for one in faults)
    assert any(one.startswith("torch/cpu-build.toml: has the id of one of") for one in faults)
    assert any(one.startswith("lost.toml: is never read") for one in faults)
    assert not any(one.startswith("mirror/old-torch") for one in faults)
    assert done.stderr == ""


def test_a_teams_rule_may_refer_to_ours(own: Path) -> None:
    text = OWN.replace("[text]", 'requires = ["driver/no-driver"]\n\n[text]')
    put(own, "mirror/second", text)
    assert run("rules", "lint", "--rules", str(own)).returncode == 0
    put(own, "mirror/second", text.replace("no-driver", "no-drivel"))
    done = run("rules", "lint", "--rules", str(own))
    assert "requires 'driver/no-drivel', which is not a rule" in done.stdout


def test_check_judges_by_a_teams_rules_and_never_repairs_unasked(own: Path, snapshot: str) -> None:
    arguments = ("check", "--facts", snapshot, "--format", "json")
    plain = json.loads(run(*arguments).stdout)
    for done in (
        run(*arguments, "--rules", str(own)),
        run(*arguments, ATTN_DOCTOR_RULES=f"{os.pathsep}{own}"),
        run(*arguments, "--rules", str(own), ATTN_DOCTOR_RULES=f"{own}/."),
    ):
        data = json.loads(done.stdout)
        assert data["summary"]["rules"] == plain["summary"]["rules"] + 1
        found = next(one for one in data["problems"] if one["rule"] == "mirror/old-torch")
        assert [fix["safety"] for fix in found["fixes"]] == ["ask"]
    assert "mirror/old-torch" not in {one["rule"] for one in plain["problems"]}


@pytest.mark.posix
def test_explain_and_show_know_a_teams_rules(own: Path) -> None:
    log = b"ERROR: mirror has no torch 2.8.0\n"
    done = run("explain", "--no-probe", "--format", "json", "--rules", str(own), input=log)
    assert [one["rule"] for one in json.loads(done.stdout)["matches"]] == ["mirror/old-torch"]
    assert run("explain", "--no-probe", input=log).returncode == 0
    shown = run("rules", "show", "old-torch", "--rules", str(own))
    assert f"File: {own}/mirror/old-torch.toml" in shown.stdout


@pytest.mark.parametrize(
    ("id", "text", "expected"),
    [
        ("mirror/x", "schema = 1\nseverity =\n", "mirror/x.toml: line 2"),
        ("mirror/x", OWN.replace("torch.version <", "torch.versoin <"), "did you mean"),
        ("mirror/x", OWN.replace("mirror has", "(a+)+mirror has"), "mirror/x.toml: symptom"),
        ("mirror/x", OWN.replace('< "2.9"', 'matches "^(a+)+$"'), "condition on torch.version"),
        ("torch/cpu-build", OWN, "has the id torch/cpu-build already"),
    ],
    ids=["no TOML", "no fact", "a slow symptom", "a slow condition", "an id of ours"],
)
@pytest.mark.parametrize("command", ["check", "explain"])
@pytest.mark.posix
def test_a_faulty_rule_of_a_team_is_one_sentence(
    tmp_path: Path, snapshot: str, command: str, id: str, text: str, expected: str
) -> None:
    folder = put(tmp_path / "faulty", id, text)
    done = run(command, "--facts", snapshot, "--rules", str(folder), input=b"log")
    assert done.returncode == 2
    assert expected in done.stderr
    assert f"{folder}/{id}.toml" in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_two_folders_with_one_id_are_both_named(own: Path, tmp_path: Path) -> None:
    other = put(tmp_path / "other", "mirror/old-torch", OWN)
    done = run("rules", "list", "--rules", str(own), "--rules", str(other))
    assert done.returncode == 2
    assert str(own) in done.stderr
    assert str(other) in done.stderr


def test_an_empty_folder_of_rules_is_a_mistake(tmp_path: Path, snapshot: str) -> None:
    for folder, expected in ((tmp_path / "none", "is not a folder"), (tmp_path, "has no rules")):
        done = run("check", "--facts", snapshot, "--rules", str(folder))
        assert done.returncode == 2
        assert expected in done.stderr
