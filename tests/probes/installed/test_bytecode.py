"""Compiled modules of torch: where Python itself puts them, and what keeps it from doing so."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from attn_doctor.host.local import LocalHost
from attn_doctor.host.recorded import RecordedHost, key
from attn_doctor.probes.distributions import Site, scan
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.installed.bytecode import compiled
from tests.probes.answers import machine

TORCH = "/env/lib/python3.12/site-packages/torch"
SOURCES = {f"{TORCH}/__init__.py": "", f"{TORCH}/_inductor/compile_fx.py": ""}
FIRST = f"{TORCH}/__pycache__/__init__.cpython-312.pyc"
LATER = f"{TORCH}/_inductor/__pycache__/compile_fx.cpython-312.pyc"


def bytecode_of(
    host: RecordedHost, path: str = TORCH, tag: str = "cpython-312"
) -> tuple[bool | None, bool | None, dict[str, str]]:
    gaps = Gaps()
    found = compiled(host, scan(host, (), "/env", Gaps(), cache_tag=tag), path, gaps)
    return found.get("bytecode"), found.get("bytecode_writable"), gaps.reasons


@pytest.mark.parametrize(
    ("files", "kept"),
    [
        ({}, False),
        # `import torch` alone does not import its compiler.
        ({FIRST: ""}, False),
        ({LATER: ""}, False),
        ({FIRST: "", LATER: ""}, True),
        # Another Python's files serve it alone.
        ({FIRST.replace("312", "311"): "", LATER.replace("312", "311"): ""}, False),
    ],
)
def test_both_halves_count(files: dict[str, str], kept: bool) -> None:
    assert bytecode_of(machine({**SOURCES, **files})) == (kept, False, {})


def test_torch_1_has_no_compiler() -> None:
    assert bytecode_of(machine({f"{TORCH}/__init__.py": "", FIRST: ""}))[0] is True


@pytest.mark.parametrize("prefix", ["/var/pyc", "pyc"])
def test_a_folder_for_all_compiled_modules(prefix: str) -> None:
    base = "/var/pyc" if prefix.startswith("/") else "/home/me/project/pyc"
    beside = {FIRST: "", LATER: ""}
    there = {f"{base}{path.replace('__pycache__/', '')}": text for path, text in beside.items()}
    environ = {"PYTHONPYCACHEPREFIX": prefix}
    # Python then looks at nothing that lies beside the modules.
    assert bytecode_of(machine({**SOURCES, **beside}, environ=environ))[0] is False
    assert bytecode_of(machine({**SOURCES, **there}, environ=environ))[0] is True


def test_a_folder_for_all_compiled_modules_on_windows() -> None:
    root = "C:\\env\\Lib\\site-packages\\torch"
    files = {
        f"{root}\\__init__.py": "",
        "D:\\pyc\\env\\Lib\\site-packages\\torch\\__init__.cpython-312.pyc": "",
    }
    host = machine(files, environ={"PYTHONPYCACHEPREFIX": "D:\\pyc"}, os="windows")
    assert bytecode_of(host, root)[0] is True


def test_on_windows_write_access_is_unknown() -> None:
    root = "C:\\env\\Lib\\site-packages\\torch"
    more = {key("access", root, mode): {"answer": True} for mode in "wx"}
    kept, writes, gaps = bytecode_of(
        machine({f"{root}\\__init__.py": ""}, os="windows", more=more), root
    )
    assert (kept, writes) == (False, None)
    assert "Windows" in gaps["torch.bytecode_writable"]


def test_unreadable_files_are_not_missing() -> None:
    denied = {key("stat", FIRST): {"error": errno.errorcode[errno.EACCES]}}
    kept, _, gaps = bytecode_of(machine(SOURCES, more=denied))
    assert kept is None
    assert FIRST in gaps["torch.bytecode"]


def test_an_interpreter_without_a_cache_tag() -> None:
    """Machines that were recorded before it was asked."""
    kept, writes, gaps = bytecode_of(machine(SOURCES), tag="")
    assert (kept, writes) == (None, None)
    assert set(gaps) == {"torch.bytecode", "torch.bytecode_writable"}


@pytest.mark.parametrize("path", ["", "/env/lib/torch.py"])
def test_no_folder(path: str) -> None:
    assert bytecode_of(machine(SOURCES), path)[:2] == (None, None)


@pytest.mark.parametrize("prefix", [False, True])
def test_paths_agree_with_python(prefix: bool, tmp_path: Path) -> None:
    """A package of two modules in the place of torch, imported by this Python."""
    root = tmp_path / "torch"
    (root / "_inductor").mkdir(parents=True)
    for part in ("__init__.py", "_inductor/__init__.py", "_inductor/compile_fx.py"):
        (root / part).write_text("", encoding="utf-8")
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    if prefix:
        variables["PYTHONPYCACHEPREFIX"] = str(tmp_path / "pyc")
    host = LocalHost()
    host.__dict__["environ"] = variables
    site = scan(host, (), "", Gaps(), cache_tag=str(sys.implementation.cache_tag))
    seen = [_now(host, site, root)]
    for module, more in (("torch", {"PYTHONDONTWRITEBYTECODE": "1"}), ("torch", {}), ("", {})):
        subprocess.run(
            [sys.executable, "-c", f"import {module or 'torch._inductor.compile_fx'}"],
            check=True,
            cwd=tmp_path,
            env={**variables, **more},
        )
        seen.append(_now(host, site, root))
    assert seen == [False, False, False, True]
    assert (root / "__pycache__").exists() is not prefix


def _now(host: LocalHost, site: Site, root: Path) -> bool | None:
    found = compiled(host, site, str(root), Gaps())
    assert found["bytecode_writable"] is True
    kept: bool | None = found["bytecode"]
    return kept
