"""The tables are derived again from their sources: metadata of releases on the package index.

Nothing is installed, and no wheel is downloaded where the index has its metadata apart. Run it when
a release comes out: `pytest -m sources`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.command import whole_tables

TABLES: Mapping[str, Any] = whole_tables()

pytestmark = pytest.mark.sources


def pip(*arguments: str) -> Any:
    """What pip answers as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-500:]
    return json.loads(done.stdout)


def requirements(release: str, python: str, folder: Path) -> dict[str, SpecifierSet]:
    """What a wheel for Linux requires, by name; of several requirements of a name the last."""
    report = pip(
        "install",
        *("--dry-run", "--quiet", "--no-deps", "--ignore-installed", "--report", "-"),
        *("--target", str(folder), "--only-binary=:all:", "--python-version", python),
        *("--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64"),
        *("--platform", "manylinux1_x86_64", "--platform", "any", release),
    )
    (found,) = report["install"]
    lines = map(Requirement, found["metadata"].get("requires_dist", ()))
    here = {"platform_system": "Linux", "platform_machine": "x86_64", "extra": ""}
    return {
        one.name: one.specifier for one in lines if one.marker is None or one.marker.evaluate(here)
    }


def torch_pins() -> Iterator[tuple[str, str, str]]:
    for row in TABLES["torch"]["release"]:
        for version, pin in row["pins"].items():
            yield version, pin, row["python"][0]


@pytest.mark.parametrize(("version", "pin", "python"), list(torch_pins()))
def test_the_triton_that_torch_pins(version: str, pin: str, python: str, tmp_path: Path) -> None:
    assert requirements(f"torch=={version}", python, tmp_path)["triton"] == SpecifierSet(pin)


@pytest.mark.parametrize("row", TABLES["xformers"]["release"], ids=lambda row: row["version"])
def test_the_torch_that_xformers_requires(row: Mapping[str, Any], tmp_path: Path) -> None:
    found = requirements(f"xformers=={row['version']}", row["python"][0], tmp_path)
    assert found["torch"] == SpecifierSet(row["torch"])


@pytest.mark.parametrize(
    ("package", "table"),
    [("torch", "torch"), ("triton", "triton"), ("xformers", "xformers"), ("flash-attn",) * 2],
)
def test_no_release_is_newer_than_the_table(package: str, table: str) -> None:
    newest = Version(pip("index", "versions", package, "--json", "--python-version=3.12")["latest"])
    listed = Version(TABLES[table]["newest"])
    assert newest.release[: len(listed.release)] == listed.release, newest


@pytest.mark.parametrize("row", TABLES["cuda-toolkits"]["release"], ids=lambda row: row["cuda"])
def test_the_newest_update_of_a_toolkit(row: Mapping[str, Any]) -> None:
    found = pip("index", "versions", "cuda-toolkit", "--json", "--python-version=3.12")["versions"]
    updates = [one for one in map(Version, found) if f"{one.major}.{one.minor}" == row["cuda"]]
    if not updates:
        pytest.skip("the index has no package for this toolkit")
    assert max(updates).release[:3] == Version(row["newest"]).release


def test_the_sageattention_of_the_index() -> None:
    newest = pip("index", "versions", "sageattention", "--json", "--python-version=3.12")["latest"]
    rows = {row["version"]: row for row in TABLES["sageattention"]["release"]}
    assert rows[newest]["compiled"] is False


def test_the_last_torchaudio_that_is_tied_to_torch() -> None:
    newest = pip("index", "versions", "torchaudio", "--json", "--python-version=3.12")["latest"]
    assert newest == TABLES["companions"]["torchaudio"]["last"]


@pytest.mark.parametrize("row", TABLES["triton"]["release"], ids=lambda row: row["minor"])
def test_the_assembler_in_the_wheel_of_triton(row: Mapping[str, Any], tmp_path: Path) -> None:
    platforms = [f"manylinux{one}_x86_64" for one in ("2014", "_2_17", "_2_27", "_2_28")]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    command += [
        "--no-deps",
        "--only-binary=:all:",
        "--python-version=3.12",
        "--dest",
        str(tmp_path),
    ]
    command += [part for one in platforms for part in ("--platform", one)]
    subprocess.run([*command, f"triton=={row['minor']}.*"], check=True, timeout=600)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name, field in (("ptxas", "ptxas"), ("ptxas-blackwell", "blackwell")):
            member = f"triton/backends/nvidia/bin/{name}"
            if field not in row:
                assert member not in archive.namelist()
                continue
            program = Path(archive.extract(member, tmp_path))
            program.chmod(0o700)
            done = subprocess.run(
                [program, "--version"], capture_output=True, text=True, check=True, timeout=60
            )
            assert f"V{row[field]}" in done.stdout
