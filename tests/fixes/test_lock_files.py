"""Packages installed past a project's lock file."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_doctor.facts import Facts, Python
from attn_doctor.fixes.installers import lock_file_warning


def venv(prefix: Path) -> Facts:
    return Facts(python=Python(prefix=str(prefix), environment="venv"))


@pytest.mark.parametrize(
    ("lock", "message"),
    [
        ("uv.lock", "`uv sync` removes other packages"),
        ("poetry.lock", "Keep a change with `poetry add` too"),
        ("pdm.lock", "`pdm sync` removes"),
        ("Pipfile.lock", "`pipenv install`"),
    ],
)
def test_a_lock_file_decides_what_is_installed(lock: str, message: str, tmp_path: Path) -> None:
    (tmp_path / lock).touch()
    assert message in lock_file_warning(venv(tmp_path / ".venv"))
    assert lock_file_warning(venv(tmp_path / ".venv")).startswith(str(tmp_path / lock))


def test_no_project(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").mkdir()  # a folder is not a lock file
    assert lock_file_warning(venv(tmp_path / ".venv")) == ""
    assert lock_file_warning(Facts()) == ""
    (tmp_path / "poetry.lock").touch()
    assert (
        lock_file_warning(Facts(python=Python(prefix=str(tmp_path / "env"), environment="conda")))
        == ""
    )
