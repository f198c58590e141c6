"""attn-doctor finds its own modules as Python would."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

import attn_doctor
from attn_doctor import own_modules

PACKAGE = Path(attn_doctor.__file__).parent
NAMES = [
    "attn_doctor." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    for path in sorted(PACKAGE.rglob("*.py"))
]


def test_every_module_is_found_where_python_finds_it() -> None:
    finder = own_modules.Finder()
    for name in NAMES:
        name = name.removesuffix(".__init__")
        parent = [str(PACKAGE.joinpath(*name.split(".")[1:-1]))]
        if name == "attn_doctor":
            continue
        found, expected = finder.find_spec(name, parent), PathFinder.find_spec(name, parent)
        assert found is not None
        assert expected is not None
        for field in ("name", "origin", "cached", "submodule_search_locations", "has_location"):
            assert getattr(found, field) == getattr(expected, field), (name, field)


@pytest.mark.parametrize("name", ["json", "json.decoder", "datetime", "collections"])
def test_modules_of_python_are_found_where_python_finds_them(name: str) -> None:
    folder = Path(os.__file__).parent
    path = [str(folder / "json")] if "." in name else None
    found, expected = own_modules.Finder().find_spec(name, path), PathFinder.find_spec(name, path)
    assert found is not None
    assert expected is not None
    for field in ("name", "origin", "cached", "submodule_search_locations", "has_location"):
        assert getattr(found, field) == getattr(expected, field), (name, field)


@pytest.mark.parametrize("name", ["attn_doctor.api", "attn_doctor.facts"])
def test_a_module_has_the_attributes_that_python_gives(name: str) -> None:
    found = own_modules.Finder().find_spec(name, [str(PACKAGE)])
    expected = PathFinder.find_spec(name, [str(PACKAGE)])
    assert found is not None
    assert expected is not None
    ours = vars(importlib.util.module_from_spec(found))
    theirs = vars(importlib.util.module_from_spec(expected))
    own = {"__loader__": found.loader, "__spec__": found}
    assert ours == {**theirs, **own}


def test_other_modules_are_left_to_python() -> None:
    finder = own_modules.Finder()
    assert finder.find_spec("msgspec", None) is None
    assert finder.find_spec("time", None) is None  # built in
    assert finder.find_spec("runpy", None) is None or sys.version_info < (3, 11)  # frozen
    assert finder.find_spec("json.decoder", ["/elsewhere/json"]) is None
    assert finder.find_spec("attn_doctor_rules", None) is None
    assert finder.find_spec("attn_doctor.no_such_module", [str(PACKAGE)]) is None
    assert finder.find_spec("attn_doctor.translations", [str(PACKAGE)]) is None  # no modules
    assert finder.find_spec("attn_doctor.any", ["/no/such/folder"]) is None


def imported(finder: own_modules.Finder, folder: Path) -> object:
    spec = finder.find_spec("attn_doctor.made", [str(folder)])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.VALUE


@pytest.fixture
def made(tmp_path: Path) -> Path:
    (tmp_path / "made.py").write_text("VALUE = 1\n", encoding="utf-8")
    return tmp_path / "made.py"


def test_a_module_without_bytecode_is_compiled(made: Path) -> None:
    assert imported(own_modules.Finder(), made.parent) == 1


def test_bytecode_is_loaded(made: Path) -> None:
    py_compile.compile(str(made))
    times = made.stat().st_mtime_ns, made.stat().st_mtime_ns
    made.write_text("VALUE = 2\n", encoding="utf-8")  # as long, and of the same time
    os.utime(made, ns=times)
    assert imported(own_modules.Finder(), made.parent) == 1


def test_a_changed_source_counts(made: Path) -> None:
    py_compile.compile(str(made))
    made.write_text("VALUE = 22\n", encoding="utf-8")
    assert imported(own_modules.Finder(), made.parent) == 22


def test_long_bytecode_is_left_to_python(made: Path) -> None:
    made.write_text(f"VALUE = len({'x' * own_modules._MOST!r})\n", encoding="utf-8")
    py_compile.compile(str(made))
    assert imported(own_modules.Finder(), made.parent) == own_modules._MOST


@pytest.mark.parametrize("content", [b"", b"no bytecode", bytes(40)])
def test_damaged_bytecode_is_not_loaded(made: Path, content: bytes) -> None:
    compiled = Path(py_compile.compile(str(made)) or "")
    compiled.write_bytes(content)
    assert imported(own_modules.Finder(), made.parent) == 1


def test_the_command_uses_it() -> None:
    code = (
        "import os, sys, attn_doctor.__main__ as main;"
        "os._exit = lambda code: print(type(sys.modules['attn_doctor.cli'].__loader__).__module__);"
        "sys.argv = ['attn-doctor', '--version']; main.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "attn_doctor.own_modules"
