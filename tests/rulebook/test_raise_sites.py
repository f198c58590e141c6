"""The search for packages that print the text of a symptom, and the table of what was read."""

from __future__ import annotations

import runpy
import sys
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest

from attn_doctor.rulebook.library import folder
from attn_doctor.rulebook.rule import Rule, Symptom
from attn_doctor.rulebook.rule_files import rule_paths

ROOT = Path(__file__).parents[2]
tool = SimpleNamespace(**runpy.run_path(str(ROOT / "tools" / "raise_sites.py")))

CODE = '''
"""A docstring says that this kernel has no mask."""
def attention(q):
    """It says so too: this kernel has no mask."""
    raise ValueError(f"this kernel has no mask for {q.shape} of the queries")
'''
TEXT = "this kernel has no mask for {} of the queries"


def rule(symptom: Symptom) -> Rule:
    return Rule(
        id="a/b",
        severity="error",
        cause="x",
        title="t",
        why="w",
        checked=date(2026, 11, 23),
        evidence=(),
        symptoms=(symptom,),
    )


@pytest.fixture
def package(tmp_path: Path) -> Path:
    source = tmp_path / "Other_Package-1.2" / "other" / "attention.py"
    source.parent.mkdir(parents=True)
    source.write_text(CODE)
    tests = source.parent / "tests" / "test_it.py"
    tests.parent.mkdir()
    tests.write_text(CODE)
    return tmp_path / "Other_Package-1.2"


def test_literals_are_read_and_docstrings_are_not(package: Path) -> None:
    (site,) = tool.sites(package)
    assert (site.package, site.file, site.line) == ("other-package", "other/attention.py", 5)
    assert tool.template(site.text) == TEXT


@pytest.mark.parametrize(
    ("symptom", "found"),
    [
        (Symptom(pattern=r"has no mask for \(\d"), True),
        (Symptom(pattern=r"has no mask for torch\.\w+ of"), True),
        (Symptom(pattern="has no gradients"), False),
        (Symptom(pattern="has no mask", near=(r"other[/\\]attention\.py",)), True),
        (Symptom(pattern="has no mask", near=("flash_attn",)), False),
        (Symptom(pattern="has no mask", absent=(r"other[/\\]attention\.py",)), False),
    ],
)
def test_a_pattern_meets_the_message_of_a_package(
    package: Path, symptom: Symptom, found: bool
) -> None:
    matched = tool.printed([rule(symptom)], tool.sites(package))
    assert list(matched) == [("a/b", "other-package", TEXT)] * found


def test_a_message_that_was_not_read_fails(
    package: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = package / "other" / "attention.py"
    source.write_text('raise ImportError("Torch not compiled with CUDA enabled here")\n')
    monkeypatch.setattr(sys, "argv", ["raise_sites.py", "--folder", str(package)])
    assert tool.main() == 1
    assert "torch/cpu-build: other-package other/attention.py:1\n" in capsys.readouterr().out


def test_each_row_is_about_a_rule() -> None:
    rows = tool.accepted()
    ids = {path.relative_to(folder()).with_suffix("").as_posix() for path in rule_paths(folder())}
    assert len(rows) >= 100
    assert {row.rule for row in rows} <= ids


@pytest.mark.sources
def test_newest_wheels_print_nothing_new(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = ["accelerate", "diffusers", "kernels", "sageattention", "transformers", "triton"]
    monkeypatch.setattr(sys, "argv", ["raise_sites.py", "--only", *packages])
    assert tool.main() == 0
