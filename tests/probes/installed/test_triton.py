"""Triton by metadata and file names, and which of several distributions wrote last."""

from __future__ import annotations

from typing import Any

import pytest

from attn_doctor.facts import Triton
from attn_doctor.host.recorded import RecordedHost, key
from attn_doctor.probes.distributions import scan
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.installed import triton
from tests.probes.environments import SITE, distribution, environment

FILES = (
    "triton/backends/__init__.py",
    "triton/backends/compiler.py",
    "triton/backends/__pycache__/compiler.cpython-312.pyc",
    "triton/backends/amd/compiler.py",
    "triton/backends/nvidia/compiler.py",
    "triton/backends/nvidia/bin/ptxas",
    "triton/backends/nvidia/bin/ptxas-blackwell",
)


def init(version: str) -> dict[str, str]:
    return {"triton/__init__.py": f'"""isort:skip_file"""\n__version__ = \'{version}\'\n'}


def read(*parts: dict[str, str], **platform: Any) -> tuple[Triton, dict[str, str]]:
    host, there = environment(*parts, **platform)
    gaps = Gaps()
    return triton.read(host, there, gaps)["triton"], gaps.reasons


def test_linux_wheel() -> None:
    found, gaps = read(distribution("triton", "3.6.0", files=FILES, texts=init("3.6.0")))
    assert found == Triton(
        installed=True,
        version="3.6.0",
        distribution="triton",
        path=f"{SITE}/triton",
        providers=("triton",),
        backends=("amd", "nvidia"),
        setuptools_missing=False,
        ptxas=f"{SITE}/triton/backends/nvidia/bin/ptxas",
        ptxas_blackwell=f"{SITE}/triton/backends/nvidia/bin/ptxas-blackwell",
    )
    assert gaps == {}


def test_windows_wheel() -> None:
    folder = r"C:\env\Lib\site-packages"
    files = {
        f"{folder}\\triton_windows-3.5.1.post24.dist-info\\METADATA": "Name: triton-windows\n",
        f"{folder}\\triton\\__init__.py": "__version__ = '3.5.1'\n",
        f"{folder}\\triton\\backends\\nvidia\\bin\\ptxas.exe": "",
    }
    host, _ = environment(files, os="windows")
    found = triton.read(host, scan(host, (folder,), r"C:\env", Gaps()), Gaps())["triton"]
    assert (found.distribution, found.version) == ("triton-windows", "3.5.1.post24")
    assert found.ptxas == f"{folder}\\triton\\backends\\nvidia\\bin\\ptxas.exe"
    assert found.ptxas_blackwell == ""


@pytest.mark.parametrize(
    ("said", "expected"),
    [("3.6.0", "triton"), ("3.5.1", "triton-windows"), ("3.5", "triton"), ("9.9", "triton")],
)
def test_the_files_show_the_distribution_installed_last(said: str, expected: str) -> None:
    found, _ = read(
        distribution("triton", "3.6.0", files=FILES, texts=init(said)),
        distribution("triton_windows", "3.5.1.post24"),
    )
    assert found.providers == ("triton", "triton-windows")
    assert found.distribution == expected


def test_rocm() -> None:
    found, _ = read(
        distribution("pytorch_triton_rocm", "3.5.1", files=("triton/backends/amd/compiler.py",))
    )
    assert (found.distribution, found.backends) == ("pytorch-triton-rocm", ("amd",))
    assert found.ptxas == ""


def test_metadata_without_files() -> None:
    found, gaps = read(distribution("triton", "3.6.0"))
    assert (found.installed, found.path, found.backends) == (True, "", None)
    assert "but no folder" in gaps["triton.backends"]


def test_backends_that_cannot_be_listed() -> None:
    host, there = environment(distribution("triton", "3.6.0", files=FILES))
    answers = {**host.answers, key("list", f"{SITE}/triton/backends"): {"error": "EACCES"}}
    gaps = Gaps()
    found = triton.read(RecordedHost(answers), there, gaps)["triton"]
    assert found.backends is None
    assert "cannot be read" in gaps.reasons["triton.backends"]


def test_not_installed() -> None:
    assert read() == (Triton(installed=False, providers=()), {})


@pytest.mark.parametrize(
    ("first", "beside", "missing"),
    [
        ("import setuptools", (), True),
        ("import setuptools", (distribution("setuptools", "80.9.0"),), False),
        ("import setuptools", ({f"{SITE}/setuptools/__init__.py": ""},), False),
        ("    import setuptools", (), False),  # within a function, of which one may do without
        ("import sysconfig", (), False),
    ],
    ids=["3.2", "3.2 with setuptools", "without metadata", "indented", "3.3"],
)
def test_setuptools_that_its_first_lines_import(
    first: str, beside: tuple[dict[str, str], ...], missing: bool
) -> None:
    build = {f"{SITE}/triton/runtime/build.py": f"import os\n{first}\n"}
    package = distribution("triton", "3.2.0", files=FILES, texts=init("3.2.0"))
    found, gaps = read(package, build, *beside)
    assert found.setuptools_missing is missing
    assert gaps == {}


@pytest.mark.parametrize("file", ["common/build.py", "compiler.py"])
def test_setuptools_that_another_file_of_older_releases_imports(file: str) -> None:
    build = {f"{SITE}/triton/{file}": "import setuptools\n"}
    found, gaps = read(distribution("triton", "2.0.0", texts=init("2.0.0")), build)
    assert found.setuptools_missing is True
    assert gaps == {}
