"""What wheels of xformers and Transformers say of themselves is what the tables declare.

Each wheel is fetched from the package index, read and deleted, never installed: `pytest -m
sources`.
All releases of xformers are 1.2 GB, those of Transformers since 4.57 are 0.7 GB.
"""

from __future__ import annotations

import ast
import json
import runpy
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from attn_doctor.backends.catalogue import load
from attn_doctor.backends.framework_source import _names
from attn_doctor.host.local import LocalHost
from attn_doctor.probes.installed.packages import _flash_attn_range
from tests.command import whole_tables

pytestmark = pytest.mark.sources

ROOT = Path(__file__).parents[1]
TABLES: Mapping[str, Any] = whole_tables()
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64")
XFORMERS = [row for row in TABLES["xformers"]["release"] if row["version"] >= "0.0.28"]
#: Kernels for GPUs of NVIDIA, and what xformers.toml and flash.toml declare of each.
OPERATORS = {
    "cutlass.FwOp.SUPPORTED_MAX_K": {"65536"},
    "cutlass.FwOp.SUPPORTED_DTYPES": {"{torch.float, torch.half, torch.bfloat16}"},
    "flash.FwOp.SUPPORTED_MAX_K": {"256"},
    "flash.FwOp.SUPPORTED_DTYPES": {"{torch.half, torch.bfloat16}"},
    "flash.FwOp.CUDA_MINIMUM_COMPUTE_CAPABILITY": {"(8, 0)"},
    "flash3.FwOp.CUDA_MINIMUM_COMPUTE_CAPABILITY": {"(9, 0)", "(8, 0)"},
    "flash3.FwOp.SUPPORTED_MAX_K": {"256"},
    "common.AttentionOpBase.CUDA_MINIMUM_COMPUTE_CAPABILITY": {"(5, 0)"},
}


def pip(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout


def unpacked(requirement: str, python: str, folder: Path) -> Path:
    """The Python files and metadata of a wheel for Linux."""
    platforms = [word for one in (*PLATFORMS, "any") for word in ("--platform", one)]
    kind = ["--only-binary=:all:", "--python-version", python, *platforms]
    pip("download", "--quiet", "--no-deps", *kind, "--dest", str(folder), requirement)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        kept = [one for one in archive.namelist() if one.endswith((".py", "METADATA"))]
        archive.extractall(folder, kept)
    wheel.unlink()
    return folder


def constraints(folder: Path) -> Iterator[tuple[str, str]]:
    """Class attributes of the operators: `flash.FwOp.SUPPORTED_MAX_K` and its value."""
    for file in (folder / "xformers" / "ops" / "fmha").glob("*.py"):
        operators = ast.parse(file.read_text("utf-8")).body
        for operator in (one for one in operators if isinstance(one, ast.ClassDef)):
            for node in operator.body:
                if isinstance(node, (ast.AnnAssign, ast.Assign)) and node.value is not None:
                    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                    name = f"{file.stem}.{operator.name}.{ast.unparse(target)}"
                    yield name, ast.unparse(node.value)


@pytest.mark.parametrize("row", XFORMERS, ids=lambda row: row["version"])
def test_xformers_of_its_own_source(row: Mapping[str, Any], tmp_path: Path) -> None:
    folder = unpacked(f"xformers=={row['version']}", row["python"][-1], tmp_path)
    (metadata,) = folder.glob("*.dist-info/METADATA")
    headers = HeaderParser().parsestr(metadata.read_text("utf-8"))
    needs = {one.name: one for one in map(Requirement, headers.get_all("Requires-Dist") or ())}
    assert needs["torch"].specifier == SpecifierSet(row["torch"])
    assert _flash_attn_range(LocalHost(), str(folder / "xformers")) == row["flash"]
    found = dict(constraints(folder))
    for name, values in OPERATORS.items():
        assert found[name] in values, name


def test_the_code_of_the_newest_releases_is_that_of_the_table(tmp_path: Path) -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "code_table.py"))
    platforms = [word for one in (*PLATFORMS, "any") for word in ("--platform", one)]
    kind = ["--quiet", "--no-deps", "--only-binary=:all:", "--python-version", "3.12", *platforms]
    asked = [f"{row['name']}=={row['version']}" for row in TABLES["code"]["release"]]
    pip("download", *kind, "--dest", str(tmp_path), *asked)
    assert tool["main"]([*map(str, tmp_path.glob("*.whl")), "--check"]) == 0


def trainers() -> Iterator[str]:
    """The releases of SimpleTuner and Finetrainers that the tables were compared with."""
    yield from (f"simpletuner=={version}" for version in TABLES["families"]["compared"])
    yield from (f"finetrainers=={one}" for one in _compared("finetrainers"))
    yield from (f"diffusers=={one}" for one in _compared("diffusers"))


def _compared(framework: str) -> tuple[str, ...]:
    return load().framework(framework).compared


def test_trainers_of_their_own_source(tmp_path: Path) -> None:
    """Their names, and the families that reach the dispatcher: 32 wheels of 0.1 GB."""
    for release in trainers():
        name, _, version = release.partition("==")
        for python in ("3.13", "3.12", "3.11"):
            kind = ["--quiet", "--no-deps", "--only-binary=:all:", "--python-version", python]
            command = [sys.executable, "-m", "pip", "download", *kind, "--dest", str(tmp_path)]
            subprocess.run([*command, release], capture_output=True, check=False, timeout=600)
            if [*tmp_path.glob(f"{name}-{version}-*.whl")]:
                break
    wheels = sorted(tmp_path.glob("*.whl"))
    assert len(wheels) == len([*trainers()])
    families = runpy.run_path(str(ROOT / "tools" / "families.py"))
    assert families["compare"](families["record"](tmp_path)) == []
    names = runpy.run_path(str(ROOT / "tools" / "backends_table.py"))
    assert names["compare"](names["read"](wheels)) == []


def transformers() -> list[str]:
    answer = json.loads(pip("index", "versions", "transformers", "--json", "--python-version=3.12"))
    return [one for one in answer["versions"] if Version(one) >= Version("4.57")]


def test_names_of_transformers_are_those_declared(tmp_path: Path) -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "backends_table.py"))
    differing = []
    for version in transformers():
        folder = unpacked(f"transformers=={version}", "3.12", tmp_path / version)
        names = _names(str(folder / "transformers"), "transformers")
        assert names, version
        differing += tool["compare"]({"transformers": {version: sorted(names)}})
    assert differing == []
