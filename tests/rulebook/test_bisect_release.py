"""The search for the release in which something changed, on made-up releases in a folder."""

from __future__ import annotations

import io
import runpy
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "bisect_release.py"
NAMES: dict[str, Any] = runpy.run_path(str(TOOL))
VERSIONS = [f"1.{minor}" for minor in range(12)]

#: A build backend that needs nothing, so that pip can name the sdist without an index.
BACKEND = """
from pathlib import Path

def prepare_metadata_for_build_wheel(folder, settings=None):
    info = Path(folder, "made_up-{version}.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: made-up\\nVersion: {version}\\n")
    return info.name

def build_wheel(folder, settings=None, metadata=None):
    raise NotImplementedError
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


@pytest.mark.parametrize("first", range(13))
def test_the_first_release_is_found_with_few_looks(first: int) -> None:
    looked: list[str] = []

    def holds(version: str) -> bool:
        looked.append(version)
        return VERSIONS.index(version) >= first

    without, found = NAMES["bisect"](VERSIONS, holds)
    assert without == (VERSIONS[first - 1] if first else "")
    assert found == (VERSIONS[first] if first < 12 else "")
    assert len(looked) <= 6


def test_a_file_or_its_text(tmp_path: Path) -> None:
    contains: Callable[[Path, str, str], bool] = NAMES["contains"]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.py").write_text("LIMIT = 8\n")
    assert contains(tmp_path, "a/b.py", "")
    assert contains(tmp_path, "**/*.py", r"LIMIT = \d")
    assert not contains(tmp_path, "**/*.py", "limit")
    assert not contains(tmp_path, "a", "")


def sdist(folder: Path, version: str, text: str) -> None:
    with tarfile.open(folder / f"made_up-{version}.tar.gz", "w:gz") as archive:
        for name, content in (
            ("PKG-INFO", f"Metadata-Version: 2.1\nName: made-up\nVersion: {version}\n"),
            ("pyproject.toml", PROJECT),
            ("backend.py", BACKEND.replace("{version}", version)),
            ("made_up.py", text),
        ):
            member = tarfile.TarInfo(f"made_up-{version}/{name}")
            data = content.encode()
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


@pytest.mark.sources
def test_releases_in_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for minor in range(5):
        sdist(tmp_path, f"1.{minor}", "new = True\n" if minor >= 3 else "old = True\n")
    local = ["--no-index", "--find-links", str(tmp_path)]
    asked = ["made-up", "made_up.py", "new", "--sdist", "--from", "1.1", "--", *local]
    assert NAMES["main"](asked) == 0
    assert capsys.readouterr().out.endswith("last without: 1.2; first with: 1.3\n")
    command = ["made-up", "--command", "grep -q old made_up.py", "--sdist", "--to", "1.2", "--"]
    assert NAMES["main"]([*command, *local]) == 0
    assert capsys.readouterr().out.endswith("last without: none; first with: 1.0\n")


@pytest.mark.sources
def test_without_an_index_one_sentence_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["made-up", "x", "--", "--index-url", "http://127.0.0.1:9/", "--retries", "0"]
    assert NAMES["main"](asked) == 2
    error = capsys.readouterr().err
    assert error.startswith("bisect_release: pip index failed: ")
    assert error.count("\n") == 1
