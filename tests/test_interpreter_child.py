"""The early start of an interpreter that describes itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from attn_doctor import interpreter_child
from attn_doctor.host.local import LocalHost
from tests.command import run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it starts programs of Linux early")


@pytest.fixture
def other(tmp_path: Path) -> Iterator[str]:
    """An interpreter that is not the one of the tests."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.symlink_to(os.path.realpath(sys.executable))
    yield str(python)
    interpreter_child.end()


def _begun(*words: str, **environ: str) -> list[str]:
    """The interpreters that are started early."""
    interpreter_child.begin(words, environ)
    found = [argv[0] for argv in interpreter_child._begun]
    interpreter_child.end()
    return found


def test_the_named_interpreter_is_started(other: str) -> None:
    assert _begun("-q", "--python", other) == [other]
    assert _begun(f"--python={other}") == [other]


def test_the_active_environment_is_started(other: str, tmp_path: Path) -> None:
    python = Path(other)
    python.rename(python.with_name("python"))
    assert _begun(VIRTUAL_ENV=str(tmp_path)) == [str(python.with_name("python"))]
    assert _begun("--python", "/nowhere/python", VIRTUAL_ENV=str(tmp_path)) == []


def test_nothing_else_is_started(other: str, tmp_path: Path) -> None:
    shim = tmp_path / "python"
    shim.write_text("#!/bin/sh\n")
    shim.chmod(0o755)
    assert _begun() == []
    assert _begun("--python") == []
    assert _begun("--python", str(shim)) == []  # a script may do anything
    assert _begun("--python", sys.executable) == []  # this one needs no child
    assert _begun("--python", os.path.relpath(other)) == []
    assert _begun("--python", other, "--facts", "facts.json") == []
    assert _begun("--python", other, "--facts=facts.json") == []
    Path(other).rename(tmp_path / "train")
    assert _begun("--python", str(tmp_path / "train")) == []


def test_its_answer_is_used(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    later = LocalHost().inside(other, 30)
    interpreter_child.begin(("--python", other), os.environ)
    with monkeypatch.context() as patched:
        patched.setattr("subprocess.Popen", None)  # no other process can be started
        assert LocalHost().inside(other, 30) == later
    assert later["outcome"] == "done"
    assert later["version"] == sys.version.split()[0]
    assert not interpreter_child._begun


def test_what_is_not_needed_is_killed(other: str) -> None:
    interpreter_child.begin(("--python", other), os.environ)
    (child,) = interpreter_child._begun.values()
    interpreter_child.end()
    assert child.poll() is not None


def test_a_mistake_is_said_as_ever(other: str) -> None:
    done = run("check", "--python", other, "--no-such-option")
    assert done.returncode == 2
    assert "--no-such-option" in done.stderr
