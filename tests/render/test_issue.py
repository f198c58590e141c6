"""The block for an issue: few lines, the rest to unfold, and no one's name."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec.structs import replace

import attn_doctor
from attn_doctor.findings import Diagnosis
from attn_doctor.render.findings.issue import LIMIT, issue
from tests.command import run
from tests.render.sample import DIAGNOSIS, FACTS, OLD_DRIVER

MACHINES = Path(__file__).parents[1] / "machines"
MATRIX = attn_doctor.backends(facts=MACHINES / "h200-torch-2.11-cu130" / "facts.json").matrix


def visible(block: str) -> list[str]:
    return block.partition("<details>")[0].strip().splitlines()


def test_few_lines_and_the_rest_unfolds() -> None:
    block = issue(DIAGNOSIS, MATRIX)
    lines = visible(block)
    assert len(lines) <= LIMIT
    assert lines[0] == "**attn-doctor 0.1.0: 1 error, 1 warning, 1 note**"
    assert any(line.startswith("- ✗ ") and "`driver/too-old-for-torch`" in line for line in lines)
    assert any(line.startswith("- torch: torch 2.11.0+cu130") for line in lines)
    rest = block.partition("</summary>\n\n")[2]
    assert rest.startswith("### attn-doctor")
    assert block.count("<details>") == block.count("</details>") == 1
    assert block.endswith("</details>\n")


def test_the_command_for_the_backends_is_code() -> None:
    block = issue(DIAGNOSIS, MATRIX)
    (line,) = [line for line in block.splitlines() if line.startswith("| backends |")]
    assert "`attn-doctor backends" in line
    assert "\\`" not in line


def test_many_problems_are_counted() -> None:
    many = tuple(replace(OLD_DRIVER, rule=f"driver/rule-{n}", title=f"T{n}") for n in range(30))
    lines = visible(issue(Diagnosis(facts=FACTS, findings=many, rules=30), MATRIX))
    assert len(lines) == LIMIT
    shown = sum(line.startswith("- ✗ ") for line in lines)
    assert lines[-1] == f"- and {30 - shown} more, below"


def test_the_machine_cannot_end_the_part_that_unfolds() -> None:
    evil = replace(OLD_DRIVER, title="</details> ![x](http://y)", why="</details>")
    block = issue(Diagnosis(facts=FACTS, findings=(evil,), rules=1), MATRIX)
    assert len(re.findall(r"(?<!\\)</details", block)) == 1
    assert "![x]" not in block


def test_the_command_prints_it_or_writes_it(tmp_path: Path) -> None:
    ended = run("report", "--issue", cwd=tmp_path)
    assert ended.returncode == 0
    assert len(visible(ended.stdout)) <= LIMIT
    assert list(tmp_path.iterdir()) == []
    file = tmp_path / "issue.md"
    assert run("report", "--issue", "-o", str(file)).returncode == 0
    assert visible(file.read_text("utf-8"))[0] == visible(ended.stdout)[0]
    assert run("report", "--issue", "-o", str(file)).returncode == 2
    assert run("report", "--issue", "--record", str(tmp_path / "x")).returncode == 2
