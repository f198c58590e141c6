"""`check --facts FOLDER`: one line for each machine, and how many have each problem."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.command import run

MACHINES = Path(__file__).parents[1] / "machines"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The recorded machines as a folder of snapshots."""
    into = tmp_path / "snapshots"
    into.mkdir()
    for one in MACHINES.glob("*/facts.json"):
        shutil.copy(one, into / f"{one.parent.name}.json")
    return into


@pytest.mark.thorough
@pytest.mark.parametrize("options", [(), ("--require", "sage"), ("--fail-on", "info")], ids=str)
def test_each_machine_has_the_result_of_its_own_check(
    folder: Path, options: tuple[str, ...]
) -> None:
    done = run("check", "--policy", "none", "--facts", str(folder), "--json", *options)
    found = json.loads(done.stdout)
    assert len(found["machines"]) == len(list(folder.iterdir())) >= 7
    for machine in found["machines"]:
        path = str(folder / machine["file"])
        alone = run("check", "--policy", "none", "--facts", path, "--json", *options)
        assert machine["exit_code"] == alone.returncode
        problems = {
            (one["rule"], one["title"])
            for one in json.loads(alone.stdout)["problems"]
            if not one["caused_by"]
        }
        assert {(one["rule"], one["title"]) for one in machine["problems"]} == problems
        assert (
            run("check", "--policy", "none", "--facts", path, *options, "-q").returncode
            == (machine["exit_code"])
        )
    codes = [one["exit_code"] for one in found["machines"]]
    assert done.returncode == found["exit_code"] == max(codes)
    assert found["summary"]["failing"] == sum(map(bool, codes))
    for rule, number in found["rules"].items():
        having = [
            one
            for one in found["machines"]
            if any(each["rule"] == rule and each["severity"] != "info" for each in one["problems"])
        ]
        assert number == len(having)


def test_the_page_names_machines_and_rules(folder: Path) -> None:
    done = run("check", "--policy", "none", "--facts", str(folder))
    for one in folder.iterdir():
        assert f"{one.name}: " in done.stdout
    assert "of 8 machines with problems that count" in done.stdout.replace(
        "7 machines", "8 machines"
    )
    quiet = run("check", "--policy", "none", "--facts", str(folder), "-q")
    verbose = run("check", "--policy", "none", "--facts", str(folder), "-v")
    assert len(quiet.stdout) < len(done.stdout) < len(verbose.stdout)


def test_a_file_that_is_not_a_snapshot_does_not_stop_the_others(folder: Path) -> None:
    (folder / "broken.json").write_text("{")
    (folder / "notes.txt").write_text("not read")
    done = run("check", "--policy", "none", "--facts", str(folder))
    assert done.returncode == 2
    assert f"broken.json: {folder / 'broken.json'} is not JSON" in done.text
    assert "notes.txt" not in done.stdout
    assert "h200-torch-2.11-cu130.json: " in done.stdout


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--format", "sarif"), "sarif is for one machine; many have text and json"),
        (("--config", "x.json"), "--config is for one machine"),
        (("--python", "python3"), "--facts examines a snapshot: drop --python"),
        (("--live",), "drop --facts"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_many_machines_have_not(folder: Path, options: tuple[str, ...], sentence: str) -> None:
    done = run("check", "--facts", str(folder), *options)
    assert done.returncode == 2
    assert sentence in done.text


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    done = run("check", "--facts", str(tmp_path))
    assert done.returncode == 2
    assert f"{tmp_path} has no *.json file; write snapshots into it" in done.stderr
