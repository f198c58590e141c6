"""What pip installs to get a release again, from where it came."""

from __future__ import annotations

from typing import Any

import pytest

from attn_doctor import derived
from attn_doctor.facts import (
    DamagedMetadata,
    Duplicate,
    Extension,
    Facts,
    IncompletePackage,
    Package,
    Torch,
)
from attn_doctor.rulebook import library

INDEX = "https://download.pytorch.org/whl/"
#: Builds of torch, by where they came from.
TORCH = {
    "PyPI": Torch(installed=True, version="2.11.0+cu130", local="cu130", from_pypi=True),
    "index": Torch(installed=True, version="2.11.0+cu128", local="cu128", from_pypi=False),
    "macOS": Torch(installed=True, version="2.11.0", local="", source="index"),
    "conda": Torch(installed=True, version="2.11.0", local="", source="conda"),
    "NVIDIA": Torch(installed=True, version="2.11.0a0+nv26.03", local="nv26.03", from_pypi=False),
    "unknown": Torch(installed=True, version="2.11.0"),
    "late": Torch(installed=True, version="2.13.0+cu132", local="cu132", from_pypi=False),
    "late ROCm": Torch(installed=True, version="2.13.0+rocm7.1", local="rocm7.1", from_pypi=False),
}


def facts(torch: str, **others: Any) -> Facts:
    return derived.derive(Facts(torch=TORCH[torch], **others), library.tables())


@pytest.mark.parametrize(
    ("torch", "again"),
    [
        ("PyPI", ("torch==2.11.0",)),
        ("index", ("torch==2.11.0+cu128", "--extra-index-url", f"{INDEX}cu128")),
        ("macOS", ("torch==2.11.0",)),
        ("conda", ()),
        ("NVIDIA", ()),
        ("unknown", None),
    ],
)
def test_torch(torch: str, again: tuple[str, ...] | None) -> None:
    assert facts(torch).torch.again == again


@pytest.mark.parametrize(
    ("torch", "again"),
    [
        ("PyPI", ("torchaudio==2.11.0",)),
        ("index", ("torchaudio==2.11.0", "--index-url", f"{INDEX}cu128")),
        ("late", ("torchaudio==2.11.1",)),
        ("late ROCm", ()),
        ("conda", ()),
        ("unknown", None),
    ],
)
def test_the_torchaudio_of_this_torch(torch: str, again: tuple[str, ...] | None) -> None:
    audio = Package(installed=True, distribution="torchaudio", version="2.9.1")
    module = Extension(package="torchaudio", name="_torchaudio")
    found = facts(torch, torchaudio=audio, extensions=(module,))
    assert found.torchaudio.again == again
    assert found.extensions is not None
    assert found.extensions[0].again == again


@pytest.mark.parametrize(
    ("torch", "package", "version", "again"),
    [
        ("index", "diffusers", "0.42.1", ("diffusers==0.42.1",)),
        ("index", "diffusers", "0.43.0.dev0", ()),
        ("index", "diffusers", "", ()),
        ("index", "natten", "0.21.0", ()),
        ("PyPI", "torchvision", "0.26.0", ("torchvision==0.26.0",)),
        (
            "index",
            "torchvision",
            "0.26.0+cu128",
            ("torchvision==0.26.0+cu128", "--index-url", f"{INDEX}cu128"),
        ),
        ("conda", "torchvision", "0.26.0", ()),
        ("PyPI", "torch", "2.11.0+cu130", ("torch==2.11.0",)),
        ("unknown", "torch", "2.11.0", None),
    ],
)
def test_a_package(torch: str, package: str, version: str, again: tuple[str, ...] | None) -> None:
    found = facts(
        torch,
        incomplete_packages=(IncompletePackage(package=package, version=version),),
        damaged_metadata=(DamagedMetadata(package=package, version=version),),
        duplicates=(Duplicate(package=package, keep=version),),
    )
    lists = (found.incomplete_packages, found.damaged_metadata, found.duplicates)
    assert [one.again for list_ in lists for one in list_ or ()] == [again] * 3


def _module(package: str, version: str, torch: str = "index", **said: Any) -> Extension:
    one = Package(installed=True, distribution=package, version=version, **said)
    name = package.replace("-", "_")
    found = facts(torch, **{name: one}, extensions=(Extension(package=name, name="_C"),))
    assert found.extensions is not None
    return found.extensions[0]


def test_a_wheel_for_this_torch() -> None:
    vision = ("torchvision==0.26.0", "--index-url", f"{INDEX}cu128")
    assert _module("torchvision", "0.26.0+cu128", requires_torch="==2.11.0").again == vision
    assert _module("torchvision", "0.24.0+cu128", requires_torch="==2.9.0").again == ()
    assert _module("bitsandbytes", "0.49.0").again == ("bitsandbytes==0.49.0",)
    assert _module("torchao", "0.12.0").again == ("torchao==0.12.0",)
    assert _module("flash-attn", "2.8.3").again == ()


@pytest.mark.parametrize(
    ("package", "version", "built"),
    [
        ("sageattention", "1.0.6", True),
        ("flash-attn", "2.8.3", True),
        ("flash-attn", "2.8.4", False),  # the index has no sdist of it
        ("sageattention", "2.2.0", False),
        ("xformers", "0.0.35", False),
        ("torchvision", "0.26.0", False),
    ],
)
def test_a_build_for_this_torch(package: str, version: str, *, built: bool) -> None:
    arguments = ("--no-build-isolation", "--no-cache-dir", f"{package}=={version}")
    assert _module(package, version).rebuild == (arguments if built else ())


def test_a_kernel_of_the_hub() -> None:
    found = facts("index", extensions=(Extension(package="hub", name="activation"),))
    assert found.extensions is not None
    assert (found.extensions[0].again, found.extensions[0].rebuild) == ((), ())


@pytest.mark.parametrize(
    ("torch", "wheel"),
    [
        ("index", ("natten==0.21.6+torch2110cu128", "-f", "https://whl.natten.org")),
        ("late", ("natten==0.21.7+torch2130cu132", "-f", "https://whl.natten.org")),
        ("conda", ()),
        ("unknown", None),
    ],
)
def test_the_wheel_of_natten(torch: str, wheel: tuple[str, ...] | None) -> None:
    assert facts(torch).torch.natten_wheel == wheel
