"""What `interpreter.py` says of an interpreter is what that interpreter does at its start."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_doctor.host.local import LocalHost
from attn_doctor.worker import interpreter
from tests.probes.pythons import examinable, make_venv, pythons, too_old

SCRIPT = Path(interpreter.__file__)
#: Run without -I and -S, so that `site` sets everything up as it does for the user.
ORACLE = """
import json, os, sys, sysconfig
print(json.dumps({
    "version": ".".join(map(str, sys.version_info[:3])),
    "implementation": sys.implementation.name,
    "cache_tag": sys.implementation.cache_tag,
    "prefix": sys.prefix,
    "base_prefix": sys.base_prefix,
    "site_packages": [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))],
    "purelib": sysconfig.get_path("purelib"),
    "platlib": sysconfig.get_path("platlib"),
    "scripts": sysconfig.get_path("scripts"),
    "stdlib": sysconfig.get_path("stdlib"),
    "soabi": sysconfig.get_config_var("SOABI") or "",
    "ext_suffix": sysconfig.get_config_var("EXT_SUFFIX"),
    "ctypes": True,
}))
"""
Venv = Callable[..., Path]


@pytest.fixture(scope="session")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Venv:
    """Makes a virtual environment once: `venv("3.12.1", "--system-site-packages")`."""
    made: dict[tuple[str, ...], Path] = {}

    def make(version: str, *options: str) -> Path:
        wanted = (version, *options)
        if wanted not in made:
            folder = tmp_path_factory.mktemp("venv") / "env"
            made[wanted] = make_venv(pythons()[version], folder, *options)
        return made[wanted]

    return make


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """An environment with a user base in which every Python has a site directory."""
    base = tmp_path / "user"
    for version in examinable():
        short = ".".join(version.split(".")[:2])
        (base / f"lib/python{short}/site-packages").mkdir(parents=True, exist_ok=True)
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONUSERBASE": str(base)}


def says(python: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    asked = [str(python), "-I", "-S", "-B", str(SCRIPT)]
    ran = subprocess.run(asked, env=variables, capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def does(python: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    asked = [str(python), "-B", "-c", ORACLE]
    ran = subprocess.run(asked, env=variables, capture_output=True, text=True, check=True, cwd="/")
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def compare(python: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    said, done = says(python, variables), does(python, variables)
    assert {name: said[name] for name in done} == done
    return said


@pytest.mark.posix
@pytest.mark.parametrize("version", examinable())
def test_an_installation(version: str, variables: dict[str, str]) -> None:
    said = compare(pythons()[version], variables)
    assert said["user_site_enabled"]
    assert said["site_packages"][0] == said["user_site"]
    assert said["pyvenv"] == ""
    assert said["abi"].startswith("cp" + "".join(version.split(".")[:2]))


@pytest.mark.posix
@pytest.mark.parametrize("version", examinable())
def test_a_virtual_environment(version: str, venv: Venv, variables: dict[str, str]) -> None:
    python = venv(version)
    said = compare(python, variables)
    assert said["prefix"] == str(python.parents[1])
    assert said["pyvenv"] == str(python.parents[1] / "pyvenv.cfg")
    assert not said["user_site_enabled"]
    assert len(said["site_packages"]) == 1


@pytest.mark.posix
@pytest.mark.parametrize("version", examinable())
def test_one_that_sees_the_packages_of_its_base(
    version: str, venv: Venv, variables: dict[str, str]
) -> None:
    said = compare(venv(version, "--system-site-packages"), variables)
    assert said["user_site"] in said["site_packages"]
    assert said["site_packages"][0] == said["purelib"]


@pytest.mark.posix
@pytest.mark.parametrize("version", examinable()[-1:])
def test_without_user_site(version: str, variables: dict[str, str]) -> None:
    said = compare(pythons()[version], {**variables, "PYTHONNOUSERSITE": "1"})
    assert not said["user_site_enabled"]
    assert said["user_site"] not in said["site_packages"]


@pytest.mark.posix
@pytest.mark.symlinks
@pytest.mark.parametrize("version", examinable()[-1:])
def test_reached_through_a_link(
    version: str, venv: Venv, variables: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(venv(version).parents[1])
    said = compare(tmp_path / "link" / "bin" / "python", variables)
    assert said["prefix"] == str(tmp_path / "link")


@pytest.mark.parametrize("version", examinable())
def test_headers(version: str, venv: Venv, variables: dict[str, str]) -> None:
    """The folder named is the one that holds `Python.h`, wherever headers are installed at all."""
    for python in (pythons()[version], venv(version)):
        said = says(python, variables)
        done = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_config_h_filename())"],
            env=variables,
            capture_output=True,
            text=True,
            check=True,
        )
        if Path(done.stdout.strip()).exists():
            assert Path(said["include"], "Python.h").exists()


@pytest.mark.parametrize("version", too_old())
def test_an_old_python_says_so(version: str) -> None:
    assert says(pythons()[version], {}) == {"error": f"Python {version}", "kind": "too-old"}


def test_syntax_of_an_old_python() -> None:
    ast.parse(SCRIPT.read_text(encoding="utf-8"), feature_version=(3, 6))


def test_a_damaged_installation_gives_an_error(
    venv: Venv, variables: dict[str, str], tmp_path: Path
) -> None:
    """A `sysconfig` that cannot be imported is reported as JSON, not as a traceback."""
    script = tmp_path / "inside.py"
    script.write_text("import sys; sys.modules['sysconfig'] = None\n" + SCRIPT.read_text())
    asked = [sys.executable, "-I", "-S", "-B", str(script)]
    ran = subprocess.run(asked, capture_output=True, text=True, check=True)
    answer = json.loads(ran.stdout)
    assert answer["kind"] == "failed"
    assert "sysconfig" in answer["error"]


words = st.text(max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(json_values)
def test_json(value: object) -> None:
    assert json.loads(interpreter._json(value)) == value


def test_json_of_an_undecodable_path() -> None:
    assert json.loads(interpreter._json({"prefix": "/home/a\udcff/😀"})) == {
        "prefix": "/home/a\udcff/😀"
    }


class NoPrograms(LocalHost):
    """This machine, where starting a program fails the test."""

    def _run(
        self, argv: list[str], seconds: float, env: Mapping[str, str], *_: object
    ) -> dict[str, Any]:
        pytest.fail(f"{argv} was started")


def test_our_own_interpreter_needs_no_process() -> None:
    answer = NoPrograms().inside(sys.executable, 3.0)
    child = says(Path(sys.executable), os.environ)
    assert answer == {**child, "outcome": "done"}


def test_another_name_of_our_own_interpreter() -> None:
    twins = [
        path
        for path in Path(sys.executable).parent.glob("python3*")
        if path.exists() and path.samefile(sys.executable) and path != Path(sys.executable)
    ]
    for path in twins:
        answer, child = NoPrograms().inside(str(path), 3.0), says(path, os.environ)
        assert {**answer, "executable": ""} == {**child, "executable": "", "outcome": "done"}


def test_a_venv_of_our_own_interpreter_is_asked(tmp_path: Path) -> None:
    """Its interpreter is the same file as ours, but its environment is another."""
    python = make_venv(Path(sys.executable), tmp_path / "env")
    answer = LocalHost().inside(str(python), 10.0)
    assert answer["prefix"] == str(tmp_path / "env")


def test_pythonhome_is_not_taken_from_our_own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    answer = LocalHost().inside(sys.executable, 10.0)
    assert answer["outcome"] == "done"
    assert answer["prefix"] == sys.prefix
    with pytest.raises(pytest.fail.Exception):
        NoPrograms().inside(sys.executable, 3.0)


@pytest.mark.posix
def test_something_that_prints_other_json(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho '[1]'\n")
    script.chmod(0o755)
    answer = LocalHost().inside(str(script), 10.0)
    assert answer["outcome"] == "done"
    assert answer["out"] == "[1]\n"
