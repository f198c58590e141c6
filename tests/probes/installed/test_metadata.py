"""Damaged metadata, and packages that are installed twice."""

from __future__ import annotations

from typing import Any

import pytest

from attn_doctor.facts import Duplicate
from attn_doctor.probes.distributions import scan
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.installed.metadata import read
from tests.probes.tree import machine

SITE = "/venv/lib/python3.12/site-packages"
USER = "/home/ada/.local/lib/python3.12/site-packages"
HEAD = "Metadata-Version: 2.1\nName: torch\nVersion: 2.10.0\n"


def installed(*names: str, site: str = SITE) -> dict[str, str]:
    """Metadata of distributions such as `torch-2.9.0`."""
    return {f"{site}/{name}.dist-info/METADATA": HEAD for name in names}


def look(files: dict[str, str], *sites: str, **how: Any) -> dict[str, Any]:
    host = machine(files, cwd="/home/ada/work", home="/home/ada", **how)
    return read(host, scan(host, sites, "/venv", Gaps()), Gaps())


def twice(files: dict[str, str], *sites: str, **how: Any) -> tuple[Duplicate, ...]:
    found: tuple[Duplicate, ...] = look(files, *sites, **how)["duplicates"]
    return found


@pytest.mark.parametrize(
    ("version", "keep"),
    [("", "2.11.0+cu130"), ("2.10.0+cu128", "2.10.0"), ("2.9.0", "2.11.0+cu130")],
)
def test_two_versions_in_one_folder(version: str, keep: str) -> None:
    files = installed("torch-2.10.0", "torch-2.11.0+cu130", "numpy-2.1.0")
    if version:
        files[f"{SITE}/torch/version.py"] = f"__version__ = '{version}'\n"
    (found,) = twice(files, SITE)
    assert (found.package, found.versions) == ("torch", ("2.10.0", "2.11.0+cu130"))
    assert (found.folders, found.place, found.keep) == ((SITE,), "folder", keep)
    other = "torch-2.10.0" if keep != "2.10.0" else "torch-2.11.0+cu130"
    assert found.stray == f"{SITE}/{other}.dist-info"


def test_a_copy_in_the_folder_of_the_user() -> None:
    there = installed("nvidia_cudnn_cu12-9.1", "pip-25.0", site=USER)
    (found,) = twice({**installed("nvidia_cudnn_cu12-9.8", "pip-24.0"), **there}, USER, SITE)
    assert (found.package, found.versions) == ("nvidia-cudnn-cu12", ("9.1", "9.8"))
    assert (found.place, found.folders) == ("user", (USER, SITE))


@pytest.mark.parametrize(
    ("base", "place"), [("/opt/user", "user"), ("/opt", "environments"), ("", "environments")]
)
def test_a_copy_in_a_folder_of_the_user_that_a_variable_names(base: str, place: str) -> None:
    user = "/opt/user/lib/python3.12/site-packages"
    files = {**installed("torch-2.10.0"), **installed("torch-2.11.0", site=user)}
    (found,) = twice(files, user, SITE, env={"PYTHONUSERBASE": base})
    assert found.place == place


def test_any_package_twice_in_one_folder() -> None:
    files = installed("packaging-19.0", "packaging-26.0")
    files[f"{SITE}/packaging/__init__.py"] = '__version__ = "26.0"\n'
    (found,) = twice(files, SITE)
    assert (found.package, found.place, found.keep) == ("packaging", "folder", "26.0")
    assert found.stray == f"{SITE}/packaging-19.0.dist-info"
    there = installed("packaging-19.0", site=USER)
    assert twice({**installed("packaging-26.0"), **there}, USER, SITE) == ()


def test_a_copy_in_pythonpath() -> None:
    files = {**installed("torch-2.9.0"), **installed("torch-2.4.1", site="/opt/pt")}
    (found,) = twice(files, "/opt/pt", SITE, env={"PYTHONPATH": "/opt/other:/opt/pt"})
    assert (found.place, found.pythonpath) == ("pythonpath", "/opt/other")
    (found,) = twice(files, "/opt/pt", SITE)
    assert (found.place, found.pythonpath) == ("environments", "")


def test_a_copy_stays_where_pythonpath_has_all() -> None:
    files = {**installed("torch-2.6.0", site="/b"), **installed("torch-2.5.1", site="/a")}
    files["/a/torch/version.py"] = "__version__ = '2.5.1'\n"
    (found,) = twice(files, "/a", "/b", SITE, env={"PYTHONPATH": "/a:/b:/c"})
    assert (found.keep, found.pythonpath) == ("2.5.1", "/a:/c")


def test_one_folder_by_two_names_is_not_a_copy() -> None:
    other = SITE.replace("lib/", "lib64/")
    files = {**installed("torch-2.9.0"), **installed("torch-2.9.0", site=other)}
    link = {f"{other}/torch-2.9.0.dist-info": f"{SITE}/torch-2.9.0.dist-info"}
    assert twice(files, SITE, other, links=link) == ()
    assert len(twice(files, SITE, other)) == 1


def test_damaged_metadata() -> None:
    files = installed("torch-2.10.0", "diffusers-0.42.1")
    files[f"{SITE}/diffusers-0.42.1.dist-info/METADATA"] = ""
    (found,) = look(files, SITE)["damaged_metadata"]
    assert (found.package, found.version) == ("diffusers", "0.42.1")
    assert (found.folder, found.reason) == (
        f"{SITE}/diffusers-0.42.1.dist-info",
        "METADATA has no Name and no Version",
    )


def test_a_byte_order_mark() -> None:
    """Python's parser then sees no header at all."""
    files = {f"{SITE}/numpy-2.4.0.dist-info/METADATA": "\ufeff" + HEAD}
    (found,) = look(files, SITE)["damaged_metadata"]
    assert found.reason == "METADATA begins with a byte order mark"


def test_an_empty_folder_beside_good_metadata() -> None:
    """`importlib.metadata` can find it first. Installed again is the release that is there."""
    folder = f"{SITE}/diffusers-0.30.0.dist-info"
    (found,) = look(installed("diffusers-0.38.0"), SITE, folders=(folder,))["damaged_metadata"]
    assert (found.version, found.folder) == ("0.38.0", folder)


def test_folders_that_cannot_be_read() -> None:
    gaps = Gaps()
    gaps.add("python.distribution_count", "/x cannot be read: Permission denied")
    host = machine({})
    found = read(host, scan(host, (), "/venv", Gaps()), gaps)
    assert found == {"damaged_metadata": None, "duplicates": None}
    assert gaps.reasons["duplicates"] == "/x cannot be read: Permission denied"
