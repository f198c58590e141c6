"""A toolkit in attn-doctor's own folder is found again, and its table names real releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_doctor.examination import examine
from attn_doctor.host.local import LocalHost
from attn_doctor.probes.toolchain.toolkits import own_folder
from attn_doctor.rulebook import library
from tests.fixes.cuda_home.trees import make


@pytest.mark.gcc
def test_a_toolkit_of_ones_own_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    root = make(tmp_path / "attn-doctor" / "toolkits" / "cuda-13.0", "13.0")
    (root.parent / "half-done").mkdir()
    found = [one for one in examine(LocalHost()).toolkits or () if one.source == "attn-doctor"]
    assert [(one.root, one.version, one.missing_components) for one in found] == [
        (str(root), "13.0", ())
    ]


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"XDG_DATA_HOME": "/data", "HOME": "/h"}, "/data/attn-doctor/toolkits"),
        ({"XDG_DATA_HOME": "relative", "HOME": "/h"}, "/h/.local/share/attn-doctor/toolkits"),
        ({"LOCALAPPDATA": r"C:\l"}, r"C:\l\attn-doctor\toolkits"),
        ({}, ""),
    ],
)
def test_the_folder(environ: dict[str, str], folder: str) -> None:
    assert own_folder(environ, windows="LOCALAPPDATA" in environ) == folder


def test_every_torch_release_has_a_row_or_is_older() -> None:
    """Advice for a torch of the last years names an update and an installer that exist."""
    rows = library.tables()["cuda-toolkits"]["release"]
    names = [row["cuda"] for row in rows]
    assert names == sorted(set(names), key=lambda name: tuple(map(int, name.split("."))))
    for row in rows:
        assert row["newest"].startswith(row["cuda"] + ".")
    newest = library.tables()["torch"]["release"][-1]
    known = {cuda for release in library.tables()["torch"]["release"] for cuda in release["cuda"]}
    assert {"12.1", "12.4", "12.6", "12.8", "13.0"} <= known & set(names), newest
