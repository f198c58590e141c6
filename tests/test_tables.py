"""The compatibility tables: versions parse, rows name their sources, none contradicts another."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.command import whole_tables

TABLES: Mapping[str, Any] = whole_tables()
#: The tables of releases, and what their rows are called by.
RELEASES = {
    "torch": "minor",
    "triton": "minor",
    "xformers": "version",
    "flash-attn": "version",
    "sageattention": "version",
}
NAMES = (*RELEASES, "drivers", "cuda-toolkits")


def rows(name: str) -> Iterator[Mapping[str, Any]]:
    """Every row of a table, whatever its list is called."""
    for value in TABLES[name].values():
        if isinstance(value, list):
            yield from value
        elif isinstance(value, dict):
            yield value


def release(name: str, which: str) -> Mapping[str, Any]:
    return next(row for row in TABLES[name]["release"] if row[RELEASES[name]] == which)


@pytest.mark.parametrize("name", NAMES)
def test_every_row_has_a_source_and_a_day(name: str) -> None:
    assert isinstance(TABLES[name]["checked"], datetime.date)
    assert TABLES[name]["schema"] == 1
    for row in rows(name):
        assert str(row["source"]).startswith("https://"), row
        assert isinstance(row["checked"], datetime.date), row
        assert row["checked"] <= TABLES[name]["checked"], row


@pytest.mark.parametrize(("name", "key"), RELEASES.items())
def test_releases_are_in_order_and_end_at_the_newest(name: str, key: str) -> None:
    versions = [Version(row[key]) for row in TABLES[name]["release"]]
    assert versions == sorted(set(versions))
    assert versions[-1] == Version(TABLES[name]["newest"])


def test_torch_rows() -> None:
    for row in TABLES["torch"]["release"]:
        assert row["pypi"] in row["cuda"], row
        oldest, newest = map(Version, row["python"])
        assert oldest < newest
        # torch.compile never reaches beyond the wheels, nor far behind them.
        assert oldest <= Version(row["compile"]) <= newest
        assert Version(TABLES["triton"]["release"][0]["minor"]) <= Version(row["triton"])
        for exact, pin in row["pins"].items():
            assert exact.startswith(f"{row['minor']}.")
            assert f"{row['triton']}.99" in SpecifierSet(f"~={row['triton']}.0")
            assert any(f"{row['triton']}.{patch}" in SpecifierSet(pin) for patch in range(5))
        lists = [(cuda, codes) for archs in row["archs"].values() for cuda, codes in archs.items()]
        for cuda, codes in lists:
            Version(cuda)
            assert codes == sorted(set(codes))
            assert all(50 <= code <= 130 for code in codes)
        assert row["pypi"] in row["archs"]["x86_64"], "what most people have is known"


def test_torch_codes_are_ones_its_compiler_knows() -> None:
    compilers = TABLES["drivers"]["compiler"]
    for row in TABLES["torch"]["release"]:
        for archs in row["archs"].values():
            for cuda, codes in archs.items():
                known = [one for one in compilers if Version(one["cuda"]) <= Version(cuda)][-1]
                assert known["oldest"] <= codes[0], (row["minor"], cuda)
                assert codes[-1] // 10 <= known["newest"] // 10, (row["minor"], cuda)


def test_torch_and_triton_tables_meet() -> None:
    known = {row["minor"] for row in TABLES["triton"]["release"]}
    assert {row["triton"] for row in TABLES["torch"]["release"]} <= known
    windows = TABLES["triton"]["windows"]
    assert {row["triton"] for row in windows} <= known
    assert {row["torch"] for row in windows} <= {row["minor"] for row in TABLES["torch"]["release"]}


def test_ptxas_versions() -> None:
    for row in TABLES["triton"]["release"]:
        assert len(Version(row["ptxas"]).release) == 3
        if "blackwell" in row:
            assert Version(row["blackwell"]) > Version(row["ptxas"])


def test_xformers_pins_name_torch_releases() -> None:
    exact = {version for row in TABLES["torch"]["release"] for version in row["pins"]}
    for row in TABLES["xformers"]["release"]:
        matching = [one for one in exact if one in SpecifierSet(row["torch"])]
        assert matching, row
        assert len(matching) == 1 or row["version"] == TABLES["xformers"]["newest"]
        assert row["pypi"] in row["cuda"]
        SpecifierSet(row["flash"])
        assert set(row.get("windows", ())) <= set(row["cuda"])
        for one in (*row["cuda"], *row["python"]):
            Version(one)


def test_every_torch_has_an_xformers() -> None:
    pins = [SpecifierSet(row["torch"]) for row in TABLES["xformers"]["release"]]
    for row in TABLES["torch"]["release"]:
        for version in row["pins"]:
            assert any(version in pin for pin in pins), version


def test_flash_attn_matrix() -> None:
    for row in TABLES["flash-attn"]["release"]:
        Version(row["nvcc"])
        assert row["archs"][0] == 80
        if "torch" not in row:
            continue
        assert set(row["cuda"]) <= {11, 12, 13}
        for one in (*row["torch"], *row["python"]):
            Version(one)
        for wheel in row.get("later", ()):
            assert wheel["torch"] not in row["torch"]
            assert wheel["python"] in row["python"]
        for torch, python in row["without"]:
            assert torch in row["torch"]
            assert python in row["python"]
    assert "2.8" in release("flash-attn", "2.8.3")["torch"]
    assert "2.9" not in release("flash-attn", "2.8.3")["torch"]


def test_sageattention() -> None:
    for row in TABLES["sageattention"]["release"]:
        Version(row["torch"])
        if row["compiled"]:
            assert set(row["nvcc_by_arch"]) <= set(map(str, row["archs"]))
            for nvcc in row["nvcc_by_arch"].values():
                assert Version(nvcc) > Version(row["nvcc"])
    for row in TABLES["sageattention"]["wheel"]:
        SpecifierSet(row["torch"])
        Version(row["python"])


def test_driver_branches() -> None:
    branches = TABLES["drivers"]["branch"]
    assert str(branches[0]["branch"]) == TABLES["drivers"]["newest"]
    for newer, older in pairwise(branches):
        assert newer["branch"] > older["branch"]
        assert Version(newer["cuda"]) > Version(older["cuda"])


def test_driver_minimum_lies_in_the_branch_that_brought_the_major_version() -> None:
    first = {Version(row["cuda"]).major: row["branch"] for row in TABLES["drivers"]["branch"]}
    for row in TABLES["drivers"]["major"]:
        for system in ("linux", "windows"):
            assert 0 <= Version(row[system]).major - first[row["cuda"]] < 5, row
