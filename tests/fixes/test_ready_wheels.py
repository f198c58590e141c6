"""Prebuilt wheels among the files of releases."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from packaging.utils import parse_wheel_filename

from attn_doctor.derived import derive
from attn_doctor.facts import Facts, Python, System
from attn_doctor.fixes.pip_arguments import pip_call
from attn_doctor.fixes.ready_wheels import _all, ready_wheels
from attn_doctor.fixes.source_builds import built_by, pinned
from attn_doctor.fixes.wheel_check import verdict
from attn_doctor.pretend import pretend
from attn_doctor.rulebook import library


def machine(torch: str, python: str = "3.12.3", **system: Any) -> Facts:
    values = {"os": "linux", "arch": "x86_64", "musl": False, "glibc": "2.39", **system}
    facts = Facts(system=System(**values), python=Python(version=python, free_threaded=False))
    return derive(pretend(facts, [f"torch={torch}"], library.tables()), library.tables())


def first(facts: Facts, package: str = "flash-attn", *, community: bool = False) -> str:
    found = ready_wheels(package, facts, community=community)
    return found[0].file if found else ""


def test_every_file_has_the_name_of_a_wheel() -> None:
    assert len(_all()) > 700
    for one in _all():
        name, version, _, tags = parse_wheel_filename(one.file)
        assert (str(name), version.public) == (one.package, one.version)
        assert tags


@pytest.mark.parametrize(
    ("torch", "more", "file"),
    [
        ("2.8.0+cu128", {}, "2.8.3.post1+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64"),
        ("2.9.1+cu130", {}, "2.8.3+cu13torch2.9cxx11abiTRUE-cp312-cp312-linux_x86_64"),
        ("2.10.0+cu130", {}, "2.8.3+cu13torch2.10cxx11abiTRUE-cp312-cp312-linux_x86_64"),
        (
            "2.10.0+cu130",
            {"arch": "aarch64"},
            "2.8.3+cu13torch2.10cxx11abiTRUE-cp312-cp312-linux_aarch64",
        ),
        ("2.10.0+cu128", {}, "2.8.1+cu12torch2.10cxx11abiTRUE-cp312-cp312-linux_x86_64"),
        # Named after an earlier torch: it may load, which only its symbols show.
        ("2.11.0+cu130", {}, "2.8.3+cu13torch2.10cxx11abiTRUE-cp312-cp312-linux_x86_64"),
        (
            "2.10.0+cu128",
            {"python": "3.11.7"},
            "2.8.3.post1+cu12torch2.8cxx11abiTRUE-cp311-cp311-linux_x86_64",
        ),
    ],
)
def test_official_wheels(torch: str, more: dict[str, Any], file: str) -> None:
    assert first(machine(torch, **more)) == f"flash_attn-{file}.whl"


@pytest.mark.parametrize(
    ("torch", "more"),
    [
        ("2.10.0+cu128", {"musl": True}),
        ("2.10.0+cu128", {"os": "windows"}),
        ("2.10.0+cu128", {"python": "3.14.0"}),
        ("2.10.0+cpu", {}),
        ("2.3.0+cu121", {}),
    ],
)
def test_no_wheel(torch: str, more: dict[str, Any]) -> None:
    assert first(machine(torch, **more)) == ""


def test_an_earlier_torch_is_said() -> None:
    (wheel, *_) = ready_wheels("flash-attn", machine("2.11.0+cu130"))
    assert wheel.names_torch("2.11.0+cu130") is None
    assert wheel.names_torch("2.10.0") is True
    assert wheel.names_torch("2.9.1") is False


def test_wheels_of_others_only_if_asked_for() -> None:
    facts = machine("2.12.1+cu130", python="3.13.1")
    assert first(facts) == ""
    assert first(facts, community=True).startswith("flash_attn-2.8.3+cu130torch2.12-cp313-cp313-")
    old = machine("2.12.1+cu130", python="3.13.1", glibc="2.17")
    assert all(
        "manylinux_2_34" not in one.platform
        for one in ready_wheels("flash-attn", old, community=True)
    )


def test_the_port_of_sageattention_for_windows() -> None:
    facts = machine("2.13.0+cu130", os="windows")
    assert first(facts, "sageattention") == ""
    assert first(facts, "sageattention", community=True) == (
        "sageattention-2.2.0+cu130torch2.10.0andhigher.post6-cp310-abi3-win_amd64.whl"
    )


def test_a_wheel_that_pip_does_not_find_is_named_by_its_address() -> None:
    facts = machine("2.10.0+cu130")
    found = verdict("flash-attn", facts)
    assert (found.wheel, found.version) == ("yes", "2.8.3")
    assert found.requirement.startswith("flash-attn @ https://github.com/Dao-AILab/")
    call = pip_call(("pip", "install", "flash-attn", "--no-build-isolation"))
    assert call is not None
    (wanted,) = pinned(call, facts).wanted
    assert (wanted.name, wanted.text) == ("flash-attn", found.requirement)


@pytest.mark.parametrize(
    ("wanted", "built"),
    [("flash-attn", ""), ("flash-attn==2.8.3.post1", ""), ("flash-attn==2.7.2", "flash-attn")],
)
def test_a_release_without_a_wheel_is_built(wanted: str, built: str) -> None:
    call = pip_call(("pip", "install", wanted))
    assert call is not None
    facts = machine("2.6.0+cu126")
    facts = replace(facts, torch=replace(facts.torch, cxx11_abi=True))
    assert built_by(call, facts) == built


def test_wheels_of_others_are_mentioned() -> None:
    found = verdict("flash-attn", machine("2.12.1+cu130", python="3.13.1"))
    assert found.wheel != "yes"
    assert "mjun0812, not the project, publishes flash_attn-2.8.3+cu130torch2.12" in found.reason


@pytest.mark.parametrize(
    ("torch", "new_abi", "version"),
    [
        ("2.5.1+cu124", False, "2.8.3.post1"),
        # The wheel of 2.8 for it is named cxx11abiFALSE, and has the new ABI.
        ("2.6.0+cu124", False, "2.7.4.post1"),
        ("2.6.0+cu126", True, "2.8.3.post1"),
    ],
)
def test_the_abi_of_a_wheel_is_not_what_its_name_says(
    torch: str, new_abi: bool, version: str
) -> None:
    facts = machine(torch)
    facts = replace(facts, torch=replace(facts.torch, cxx11_abi=new_abi))
    found = verdict("flash-attn", facts)
    assert (found.wheel, found.requirement) == ("yes", f"flash-attn=={version}")
