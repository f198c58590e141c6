"""Packages installed past a project's lock file."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_doctor.facts import Facts, Python
from attn_doctor.fixes.installers import lock_file_warning


def venv(prefix: Path) -> Facts:
    return Facts(python=Python(prefix=str(prefix), environment="venv"))


@pytest.mark.parametrize(
    ("lock", "told"),
    [
        ("uv.lock", "`uv sync` takes back what is installed past it"),
        ("poetry.lock", "Keep a change with `poetry add` too"),
        ("pdm.lock", "`pdm sync` takes back"),
        ("Pipfile.lock", "`pipenv install`"),
    ],
)
def test_a_project_takes_its_environment_back(lock: str, told: str, tmp_path: Path) -> None:
    (tmp_path / lock).touch()
    assert told in lock_file_warning(venv(tmp_path / ".venv"))
    assert lock_file_warning(venv(tmp_path / ".venv")).startswith(str(tmp_path / lock))


def test_no_project(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").mkdir()  # a folder is no lock file
    assert lock_file_warning(venv(tmp_path / ".venv")) == ""
    assert lock_file_warning(Facts()) == ""
    (tmp_path / "poetry.lock").touch()
    assert (
        lock_file_warning(Facts(python=Python(prefix=str(tmp_path / "env"), environment="conda")))
        == ""
    )
