"""What is printed of the lines that a claim cites."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import cited_lines, claim_lines

TEXT = "".join(f"value_{number} = {number}\n" for number in range(1, 30))


def marked(lines: list[str]) -> list[str]:
    return [one.split()[1] for one in lines if one.strip().startswith(">")]


@pytest.mark.parametrize(
    ("source", "cited"),
    [
        ("p==1 a.py:9", ["9"]),
        ("p==1 a.py:9-10,20", ["9", "10", "20"]),
        ("p==1 a.py value_12 = 12", ["12"]),
        ("p==1 a.py without value_30", []),
        ("p==1 b.py:1", []),
    ],
)
def test_lines_of_a_wheel(source: str, cited: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_lines, "texts", lambda *_: {"a.py": TEXT})
    lines = list(cited_lines.lines_of(source, None))
    assert marked(lines) == cited
    assert ("    no wheel has this file" in lines) is ("b.py" in source)


def test_lines_of_a_clone(tmp_path: Path) -> None:
    clone = tmp_path / "owner" / "name"
    clone.mkdir(parents=True)
    (clone / "a.py").write_text(TEXT)
    me = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false")
    for argv in (("init", "-q"), ("add", "a.py"), (*me, "commit", "-qm", "a"), ("tag", "v1")):
        subprocess.run(["git", *argv], cwd=clone, check=True, timeout=60)
    at = "https://github.com/owner/name/blob/v1/a.py"
    assert marked([*cited_lines.lines_of(f"{at}#L3-L4", tmp_path)]) == ["3", "4"]
    assert marked([*cited_lines.lines_of(f"{at}#L29", tmp_path)]) == ["29"]
    (gone,) = cited_lines.lines_of("https://github.com/owner/name/blob/v1/b.py#L1", tmp_path)
    assert "b.py" in gone
    (absent,) = cited_lines.lines_of("https://github.com/owner/other/blob/v1/a.py", tmp_path)
    assert absent == f"    {tmp_path} has no clone of it"


def test_a_source_without_lines_prints_nothing() -> None:
    assert list(cited_lines.lines_of("a run on an H200", None)) == []
