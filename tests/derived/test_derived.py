"""Derived facts on small sets of facts, with the real tables: what follows, and what does not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from attn_doctor import derived
from attn_doctor import facts as facts_module
from attn_doctor.facts import (
    Build,
    Driver,
    Facts,
    Gpu,
    Package,
    PciDevice,
    Python,
    System,
    Toolkit,
    Torch,
    Triton,
)
from attn_doctor.facts.kinds import TorchBuild
from attn_doctor.rulebook.fact_catalogue import sentences
from tests.command import whole_tables

TABLES: Mapping[str, Any] = whole_tables()
LINUX = System(os="linux", arch="x86_64", musl=False)
WINDOWS = System(os="windows", arch="x86_64", musl=False)
PYTHON = Python(version="3.12.3", free_threaded=False)


def torch(version: str, cuda: str | None = None, **more: Any) -> Torch:
    """A wheel of PyTorch's own."""
    local = version.partition("+")[2]
    build: TorchBuild = "cuda" if cuda else "cpu"
    known = {"installed": True, "source": "index", "local": local, "cxx11_abi": True}
    return Torch(version=version, cuda=cuda, build=build, **{**known, **more})


def derive(**fields: Any) -> Facts:
    return derived.derive(Facts(**{"system": LINUX, "python": PYTHON, **fields}), TABLES)


#: What `drift` works out of each manifest.
DRIFT = ("device_present", "awaiting_gpu", "harmless_drift", "drift", "stale", "driver_change")


def documented_as_derived() -> set[str]:
    """`Class.field` of every field whose sentence begins with `Derived:`."""
    return {
        f"{group}.{name}"
        for group, fields in sentences().items()
        for name, sentence in fields.items()
        if sentence.startswith("Derived:")
    }


def test_every_derived_fact_has_a_function() -> None:
    types = {field.name: field.type for field in msgspec.structs.fields(Facts)}
    places = [place.split(".") for place, _ in derived.STEPS if "." in place]
    worked = {f"{types[group].__name__}.{name}" for group, name in places}
    worked |= {"Gpu.in_torch_archs", "Gpu.torch_code", "Gpu.min_nvcc", "Package.accepts_flash_attn"}
    worked |= {"Package.load_error", "Package.accepts_kernels", "Extension.load_error"}
    worked |= {"Extension.loads", "Extension.gpu_code", "Extension.requirement"}
    worked |= {"Extension.again", "Extension.rebuild", "Package.again"}
    worked |= {f"{name}.again" for name in ("DamagedMetadata", "IncompletePackage", "Duplicate")}
    worked |= {"Torch.gpu_code", "Facts.newer_releases"}
    worked |= {f"Package.{name}" for name in ("built_minor", "built_cuda_major")}
    worked |= {
        f"Package.{name}"
        for name in ("expected", "index", "wheel", "loads", "known_to_load", "gpu_code")
    }
    worked |= {f"BuiltKernels.{name}" for name in DRIFT}
    assert worked - {"Driver.cuda_max"} == documented_as_derived()


def test_unknown_facts_derive_unknown_facts() -> None:
    assert derived.derive(Facts(), TABLES) == Facts()


def test_missing_packages_leave_no_gaps() -> None:
    found = derive(torch=Torch(installed=False), triton=Triton(installed=False))
    assert found.gaps == {}
    assert found.triton.expected is None


@pytest.mark.parametrize(
    ("version", "minor"), [("2.11.0+cu130", "2.11"), ("2.10", "2.10"), ("2.16.0.dev1", "2.16")]
)
def test_minor(version: str, minor: str) -> None:
    assert derive(torch=torch(version)).torch.minor == minor


@pytest.mark.parametrize(
    ("cuda", "major", "tag"), [("13.0", 13, "cu130"), ("12.8", 12, "cu128"), (None, None, None)]
)
def test_cuda(cuda: str | None, major: int | None, tag: str | None) -> None:
    found = derive(torch=torch("2.11.0", cuda)).torch
    assert (found.cuda_major, found.cuda_tag) == (major, tag)


def test_archs_of_a_pypi_wheel() -> None:
    found = derive(torch=torch("2.11.0+cu130", "13.0"))
    assert found.torch.archs == (75, 80, 86, 90, 100, 120)
    assert found.gaps.get("torch.archs") is None


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"source": "conda"}, "not one of PyTorch's own wheels"),
        ({"local": "ecf3bae40a.nv25.01"}, "not one of PyTorch's own wheels"),
        ({"version": "2.12.0a0+git70d99e9"}, "is not a release of PyTorch"),
        ({"version": "99.0.0+cu130"}, "the tables of this attn-doctor end at"),
        ({"version": "1.13.1+cu130"}, "the tables of this attn-doctor begin at 2.4"),
        ({"cuda": "11.8", "local": "cu118"}, "do not list its architectures"),
    ],
)
def test_archs_of_other_builds_are_not_guessed(changed: dict[str, Any], reason: str) -> None:
    one = msgspec.structs.replace(torch("2.11.0+cu130", "13.0"), **changed)
    found = derive(torch=one)
    assert found.torch.archs is None
    assert reason in found.gaps["torch.archs"]


@pytest.mark.parametrize(
    ("version", "cuda", "sm", "expected"),
    [
        ("2.11.0+cu130", "13.0", 90, True),
        ("2.11.0+cu130", "13.0", 89, True),  # runs the code for 8.6
        ("2.11.0+cu130", "13.0", 121, True),  # runs the code for 12.0
        ("2.11.0+cu130", "13.0", 70, False),  # a V100
        ("2.6.0+cu124", "12.4", 120, False),  # an RTX 5090, with neither code nor PTX
        ("2.7.1+cu128", "12.8", 130, True),  # by PTX for 12.0
        ("2.9.1+cu130", "13.0", 130, None),  # whether that build has PTX is not known
        ("2.11.0+cu130", "13.0", 87, False),  # Orin's code is apart …
        ("2.15.0+cu132", "13.2", 87, True),  # … until CUDA 13.2
    ],
)
def test_gpu_in_torch_archs(version: str, cuda: str, sm: int, expected: bool | None) -> None:
    found = derive(torch=torch(version, cuda), gpus=(Gpu(index=0, sm=sm),))
    assert found.gpus is not None
    assert found.gpus[0].in_torch_archs is expected
    assert bool(found.gap("gpus[0].in_torch_archs")) == (expected is None)


@pytest.mark.parametrize(
    ("system", "cuda", "driver"),
    [
        (LINUX, "13.0", "580"),
        (LINUX, "12.8", "525.60.13"),
        (LINUX, "11.8", "450.80.02"),
        (WINDOWS, "12.8", "527.41"),
        (System(os="macos"), "12.8", None),
    ],
)
def test_min_driver(system: System, cuda: str, driver: str | None) -> None:
    assert derive(system=system, torch=torch("2.8.0", cuda)).torch.min_driver == driver


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("580.159.04", "13.0"),
        ("581.57", "13.0"),  # Windows counts on within a branch
        ("570.86.10", "12.8"),
        ("535.288.01", "12.2"),
        ("450.51.06", "11.0"),
        ("390.157", None),
        ("999.1", None),
    ],
)
def test_cuda_of_a_driver_that_did_not_answer(version: str, expected: str | None) -> None:
    found = derive(driver=Driver(version=version), gaps={"driver.cuda_max": "no NVML"})
    assert found.driver.cuda_max == expected
    # The probe's own reason stays if the table does not help, and goes if it does.
    assert found.gaps.get("driver.cuda_max") == (None if expected else "no NVML")


def test_the_drivers_own_answer_stands() -> None:
    found = derive(driver=Driver(version="580.159.04", cuda_max="13.1"))
    assert found.driver.cuda_max == "13.1"


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (None, None),
        ((), 0),
        ((Gpu(sm=86), Gpu(sm=120, visible=True)), 120),
        ((Gpu(sm=86), Gpu(sm=120, visible=False)), 86),
        ((Gpu(sm=86), Gpu()), None),
    ],
)
def test_best_sm(gpus: tuple[Gpu, ...] | None, expected: int | None) -> None:
    assert derive(gpus=gpus).driver.best_sm == expected


@pytest.mark.parametrize(
    ("version", "cuda_max", "sms", "expected"),
    [
        ("2.10.0+cu130", "12.8", [90], "cu128"),
        ("2.11.0+cu130", "12.8", [90], "cu126"),  # what its cu128 carries is not in the table
        ("2.11.0+cu130", "12.8", [120], "cu128"),  # but cu126 is too old for that GPU
        ("2.11.0+cu130", "13.2", [90], "cu130"),
        ("2.11.0+cu130", "12.2", [90], "cu126"),  # minor version compatibility
        ("2.11.0+cu130", "13.0", [70], "cu126"),  # only that one carries code for a V100
        ("2.13.0+cpu", "13.0", [89], "cu130"),
        ("2.6.0+cu124", "13.0", [120], "cu130"),  # no build of 2.6 runs there: the newest release
        ("2.6.0+cu124", "12.8", [120], "cu128"),
        ("2.11.0+cu130", "10.2", [61], ""),
        ("2.12.0a0+git1", "13.0", [89], "cu130"),
    ],
)
def test_index_for_driver(version: str, cuda_max: str, sms: list[int], expected: str) -> None:
    found = derive(
        torch=torch(version, "13.0"),
        driver=Driver(cuda_max=cuda_max),
        gpus=tuple(Gpu(sm=sm) for sm in sms),
    )
    assert found.torch.index_for_driver == expected


def test_index_without_torch_or_driver() -> None:
    found = derive(torch=Torch(installed=False), driver=Driver(cuda_max="12.8"))
    assert (found.torch.index_for_driver, found.torch.pin_for_driver) == ("cu126", "torch")
    found = derive(torch=torch("2.11.0"))
    assert (found.torch.index_for_driver, found.torch.pin_for_driver) == (None, None)


@pytest.mark.parametrize(
    ("version", "cuda_max", "sm", "expected"),
    [
        ("2.11.0+cu130", "12.8", 89, "torch==2.11.*"),
        ("2.6.0+cu124", "12.8", 120, "torch"),  # no build of 2.6 has code for that GPU
        ("2.12.0a0+git1", "13.0", 89, "torch"),
        ("2.11.0+cu130", "10.2", 61, ""),
    ],
)
def test_pin_for_driver(version: str, cuda_max: str, sm: int, expected: str) -> None:
    found = derive(
        torch=torch(version, "13.0"), driver=Driver(cuda_max=cuda_max), gpus=(Gpu(sm=sm),)
    )
    assert found.torch.pin_for_driver == expected


@pytest.mark.parametrize(
    ("python", "arch", "cuda_max", "sm", "expected"),
    [
        ("3.12", "x86_64", "13.2", 89, ("cu132", "2.15")),
        ("3.10", "x86_64", "13.2", 89, ("cu132", "2.14")),  # 2.15 is for Python 3.11 and newer
        ("3.9", "x86_64", "12.8", 89, ("cu128", "2.8")),
        ("3.12", "x86_64", "13.2", 61, ("cu126", "2.15")),
        ("3.12", "x86_64", "11.4", 86, ("cu118", "2.7")),
        ("3.12", "aarch64", "13.0", 121, ("cu130", "2.15")),
        ("3.12", "aarch64", "12.8", 121, ("cu128", "2.10")),  # later ones have none for aarch64
        ("3.12", "x86_64", "10.2", 61, ("", "")),
    ],
)
def test_the_newest_release_for_a_machine(
    python: str, arch: str, cuda_max: str, sm: int, expected: tuple[str, str]
) -> None:
    found = derive(
        torch=torch("2.6.0+cu124", "12.4"),
        python=Python(version=python),
        system=System(os="linux", arch=arch),
        driver=Driver(cuda_max=cuda_max),
        gpus=(Gpu(sm=sm),),
    )
    assert (found.torch.newest_index, found.torch.newest_release) == expected


@pytest.mark.parametrize(
    ("version", "local", "expected"),
    [
        ("2.9.1+cu128", "cu128", "cu128"),
        ("2.9.1+rocm6.4", "rocm6.4", "rocm6.4"),
        ("2.9.1+rocm6.4.2.git76481f7c", "rocm6.4.2.git76481f7c", ""),  # AMD's own wheels
        ("2.9.0a0+50eac811a6.nv25.09", "50eac811a6.nv25.09", ""),  # NVIDIA's container
        ("2.14.0.dev20260901+cu132", "cu132", ""),  # nightly builds have an index of their own
        ("2.8.0", "", ""),
        (None, None, None),
    ],
)
def test_the_index_of_the_installed_build(
    version: str | None, local: str | None, expected: str | None
) -> None:
    found = derive(torch=Torch(installed=True, version=version, local=local))
    assert found.torch.index == expected


@pytest.mark.parametrize(
    ("release", "sm", "index", "wheel"),
    [
        ("2.9.1", 70, "", "no"),
        ("2.9.1", 75, "cu128", "yes"),
        ("2.8.0", 120, "", "no"),
        ("2.8.0", 90, "cu128", "yes"),
    ],
)
def test_no_wheel_of_xformers_for_a_gpu(release: str, sm: int, index: str, wheel: str) -> None:
    found = derive(
        torch=torch(f"{release}+cu128", "12.8"),
        python=Python(version="3.12", free_threaded=False),
        system=System(os="linux", arch="x86_64", musl=False),
        gpus=(Gpu(sm=sm),),
    )
    assert (found.xformers.index, found.xformers.wheel) == (index, wheel)


def test_no_wheel_of_triton_or_xformers_for_a_processor() -> None:
    system = System(os="linux", arch="aarch64", musl=False)
    old = derive(torch=torch("2.8.0+cu129", "12.9"), system=system)
    assert old.triton.pin is None
    assert old.gap("triton.pin") == "triton 3.4 has no wheel for aarch64"
    assert derive(torch=torch("2.9.1+cu130", "13.0"), system=system).triton.pin == "triton==3.5.1"
    assert old.xformers.index == ""


@pytest.mark.parametrize(
    ("version", "python"), [("2.4.1", "3.12"), ("2.9.1", "3.13"), ("2.15.0", "3.15")]
)
def test_max_python(version: str, python: str) -> None:
    assert derive(torch=torch(version)).torch.max_python == python


@pytest.mark.parametrize(
    ("system", "one", "expected", "pin"),
    [
        (LINUX, torch("2.11.0+cu130", "13.0"), "==3.6.*", "triton==3.6.0"),
        (LINUX, torch("2.7.1+cu128", "12.8"), "==3.3.*", "triton==3.3.1"),
        (
            LINUX,
            torch("2.14.1+cu130", "13.0", requires_triton="~=3.8.0"),
            "==3.8.*",
            "triton~=3.8.0",
        ),
        (WINDOWS, torch("2.8.0+cu129", "12.9"), "==3.4.*", "triton-windows==3.4.*"),
        (WINDOWS, torch("2.4.1+cu121", "12.1"), "==3.1.*", "triton-windows==3.1.*"),
        (LINUX, torch("2.13.0+cpu"), "==3.7.*", None),
        (System(os="macos"), torch("2.13.0"), None, None),
        (LINUX, torch("99.0.0+cu140", "14.0"), None, None),
    ],
)
def test_triton_that_pairs(
    system: System, one: Torch, expected: str | None, pin: str | None
) -> None:
    found = derive(system=system, torch=one)
    assert (found.triton.expected, found.triton.pin) == (expected, pin)


@pytest.mark.parametrize(
    ("version", "ptxas", "blackwell"),
    [
        ("3.0.0", "12.4.99", None),
        ("3.6.0", "12.8.93", "12.9.86"),
        ("3.5.1.post24", "12.8.93", None),
        ("99.0", None, None),
    ],
)
def test_ptxas_of_triton(version: str, ptxas: str | None, blackwell: str | None) -> None:
    one = Triton(installed=True, version=version, ptxas="/p/ptxas", ptxas_blackwell="/p/b")
    found = derive(triton=one)
    assert found.triton.ptxas_version == ptxas
    assert found.triton.ptxas_blackwell_version == blackwell
    assert ("triton.ptxas_version" in found.gaps) == (ptxas is None)


def test_ptxas_that_is_not_there_has_no_version() -> None:
    found = derive(triton=Triton(installed=True, version="3.6.0", ptxas="", ptxas_blackwell=""))
    assert found.triton.ptxas_version is None
    assert found.gaps == {}


@pytest.mark.parametrize(
    ("mib", "cpus", "jobs"),
    [(64 * 1024, 16, 7), (64 * 1024, 4, 4), (4 * 1024, 16, 1), (None, 4, None), (1, None, None)],
)
def test_jobs(mib: int | None, cpus: int | None, jobs: int | None) -> None:
    system = System(ram_available_mib=mib, cpus=cpus)
    assert derive(system=system).build.jobs == jobs


def toolkit(version: str | None, root: str, lacks: tuple[str, ...] = (), **more: Any) -> Toolkit:
    return Toolkit(version=version, root=root, missing_components=lacks, **more)


@pytest.mark.parametrize(
    ("toolkits", "expected"),
    [
        ((toolkit("12.8", "/a"), toolkit("13.2", "/b"), toolkit("13.0", "/c")), "/c"),
        ((toolkit("13.0", "/a", ("nvcc",)), toolkit("13.2", "/b")), "/b"),
        ((toolkit("13.2", "/a"), toolkit("13.1", "/b", in_use=True)), "/b"),
        ((toolkit("12.8", "/a"),), ""),
        ((), ""),
        ((toolkit("12.8", "/a"), toolkit(None, "/b")), None),
        (None, None),
    ],
)
def test_fitting_home(toolkits: tuple[Toolkit, ...] | None, expected: str | None) -> None:
    found = derive(torch=torch("2.11.0+cu130", "13.0"), toolkits=toolkits)
    assert found.build.compatible_toolkit == expected


def test_build_and_python() -> None:
    found = derive(build=Build(version="12.8"))
    assert (found.build.cuda_major, found.python.minor) == (12, "3.12")


def test_pci_devices_get_names() -> None:
    found = derive(pci=(PciDevice(vendor="nvidia", device_id="2684", name=""),))
    assert found.pci is not None
    assert (found.pci[0].name, found.pci[0].sm) == ("GeForce RTX 4090", 89)


def test_what_a_package_was_built_for() -> None:
    found = derive(xformers=Package(built_torch="2.10.0+cu128", built_cuda="12.8"))
    assert (found.xformers.built_minor, found.xformers.built_cuda_major) == ("2.10", 12)
    assert found.diffusers.built_minor is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "yes"),
        ({"python": Python(version="3.8.10", free_threaded=False)}, None),
        ({"system": WINDOWS}, "no"),
        ({"torch": torch("2.11.0+cu130", "13.0")}, None),  # the newest release is not looked up
        ({"torch": torch("2.8.0+cu128", "12.8", cxx11_abi=None)}, None),
        ({"torch": torch("2.8.0+cpu")}, None),
        ({"flash_attn": Package(version="2.8.3")}, "yes"),
        ({"flash_attn": Package(version="2.7.4.post1")}, "no"),
        ({"flash_attn": Package(version="2.8.3"), "torch": torch("2.10.0+cu128", "12.8")}, "no"),
        ({"flash_attn": Package(version="2.8.3"), "torch": torch("2.9.0+cu128", "12.8")}, "yes"),
        ({"flash_attn": Package(version="2.8.3"), "torch": torch("2.9.0+cu130", "13.0")}, "no"),
        (
            {
                "flash_attn": Package(version="2.8.3"),
                "torch": torch("2.9.0+cu128", "12.8"),
                "python": Python(version="3.11.9", free_threaded=False),
            },
            "no",
        ),
        ({"flash_attn": Package(version="2.8.3"), "torch": torch("2.8.0", "13.0")}, "no"),
        (
            {
                "flash_attn": Package(version="2.8.3"),
                "python": Python(version="3.13.1", free_threaded=True),
            },
            "no",
        ),
        ({"flash_attn": Package(version="1.0.9")}, None),
    ],
)
def test_flash_attn_wheel(changes: dict[str, Any], expected: str | None) -> None:
    found = derive(**{"torch": torch("2.8.0+cu128", "12.8"), **changes})
    assert found.flash_attn.wheel == expected


def test_flash_attn_wheels_that_the_matrix_leaves_out() -> None:
    python = Python(version="3.13.1", free_threaded=False)
    release = Package(version="2.8.3")
    found = derive(torch=torch("2.4.1+cu121", "12.1"), python=python, flash_attn=release)
    assert found.flash_attn.wheel == "no"
    found = derive(torch=torch("2.5.1+cu124", "12.4"), python=python, flash_attn=release)
    assert found.flash_attn.wheel == "yes"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.8.0", ">=2.8.3,<=2.8.3.post1"),
        ("2.6.0", ">=2.7.4.post1,<=2.8.3.post1"),
        ("2.9.1", "==2.8.3"),
        ("2.10.0", "==2.8.1"),
        ("2.11.0", None),
    ],
)
def test_flash_attn_expected(version: str, expected: str | None) -> None:
    found = derive(torch=torch(version, "12.8"))
    assert found.flash_attn.expected == expected
    assert ("flash_attn.expected" in found.gaps) == (expected is None)


@pytest.mark.parametrize(
    ("version", "cuda", "changes", "expected", "wheel"),
    [
        ("2.5.1+cu124", "12.4", {}, ">=0.0.28.post3,<=0.0.29.post1", "yes"),
        ("2.9.1+cu128", "12.8", {}, "==0.0.33.post2", "yes"),
        ("2.10.0+cu128", "12.8", {}, ">=0.0.34,<=0.0.35", "yes"),
        ("2.11.0+cu130", "13.0", {}, "==0.0.35", "yes"),
        ("2.6.0+cu118", "11.8", {}, ">=0.0.29.post2,<=0.0.29.post3", "yes"),
        ("2.8.0+cu130", "13.0", {}, ">=0.0.32.post1,<=0.0.32.post2", "no"),
        (
            "2.7.0+cu128",
            "12.8",
            {"python": Python(version="3.13.1", free_threaded=False)},
            "==0.0.30",
            "no",
        ),
        (
            "2.11.0+cu130",
            "13.0",
            {"system": System(os="linux", arch="aarch64", musl=False)},
            "==0.0.35",
            "no",
        ),
        ("2.11.0+cu130", "13.0", {"xformers": Package(version="0.0.99")}, None, "yes"),
        ("99.0.0+cu130", "13.0", {}, None, None),
        # Windows has wheels for CUDA 12.4 only, to 0.0.29.post2.
        ("2.5.1+cu121", "12.1", {"system": WINDOWS}, ">=0.0.28.post3,<=0.0.29.post1", "no"),
        ("2.5.1+cu118", "11.8", {"system": WINDOWS}, ">=0.0.28.post3,<=0.0.29.post1", "no"),
        ("2.5.1+cu124", "12.4", {"system": WINDOWS}, ">=0.0.28.post3,<=0.0.29.post1", "yes"),
        ("2.9.1+cu128", "12.8", {"system": WINDOWS}, "==0.0.33.post2", "yes"),
    ],
)
def test_xformers(
    version: str, cuda: str, changes: dict[str, Any], expected: str | None, wheel: str | None
) -> None:
    found = derive(torch=torch(version, cuda), **changes)
    assert (found.xformers.expected, found.xformers.wheel) == (expected, wheel)


@pytest.mark.parametrize(
    ("version", "cuda", "from_pypi", "index"),
    [
        ("2.9.1+cu128", "12.8", True, "pypi"),
        ("2.9.1+cu128", "12.8", False, "cu128"),
        ("2.9.1+cu130", "13.0", True, "cu130"),  # PyPI's 0.0.33.post2 is for CUDA 12.8
        ("2.15.0+cu132", "13.2", True, "cu130"),
        ("2.9.1+cu118", "11.8", False, ""),
        ("2.2.1+cu121", "12.1", False, None),  # older than the table
    ],
)
def test_xformers_for_a_torch_of_pypi_comes_from_pypi(
    version: str, cuda: str, from_pypi: bool, index: str | None
) -> None:
    found = derive(torch=msgspec.structs.replace(torch(version, cuda), from_pypi=from_pypi))
    assert found.xformers.index == index


@pytest.mark.parametrize(
    ("system", "version", "cuda", "installed", "wheel"),
    [
        (LINUX, "2.11.0+cu130", "13.0", None, "no"),
        (LINUX, "2.11.0+cu130", "13.0", "1.0.6", "yes"),
        (WINDOWS, "2.11.0+cu130", "13.0", None, "yes"),
        (WINDOWS, "2.8.0+cu128", "12.8", "2.2.0+cu128torch2.8.0.post3", "yes"),
        (WINDOWS, "2.7.0+cu118", "11.8", None, "no"),
        (WINDOWS, "99.0.0+cu130", "13.0", None, None),
    ],
)
def test_sageattention_wheel(
    system: System, version: str, cuda: str, installed: str | None, wheel: str | None
) -> None:
    found = derive(
        system=system, torch=torch(version, cuda), sageattention=Package(version=installed)
    )
    assert found.sageattention.wheel == wheel
    assert found.sageattention.expected == ">=1.0.6"


def test_deriving_twice_changes_nothing() -> None:
    once = derive(
        torch=torch("2.11.0+cu130", "13.0"),
        driver=Driver(version="580.1"),
        gpus=(Gpu(sm=89),),
        pci=(PciDevice(vendor="nvidia", device_id="2684"),),
    )
    assert derived.derive(once, TABLES) == once


def test_a_snapshot_with_derived_facts_survives_json() -> None:
    found = derive(torch=torch("99.0.0+cu130", "13.0"), gpus=(Gpu(sm=89),))
    assert found.gaps
    assert msgspec.json.decode(facts_module.to_json(found), type=Facts) == found


def test_reasons_read_as_sentences() -> None:
    found = derive(torch=torch("99.0.0+cu130", "13.0"), triton=Triton(version="99.1", ptxas="/p"))
    assert len(found.gaps) > 3
    for reason in found.gaps.values():
        assert re.fullmatch(r"[a-z].{10,150}[^.]", reason), reason


@pytest.mark.parametrize(
    ("sm", "cuda"),
    [(75, "11.8"), (90, "11.8"), (100, "12.8"), (103, "12.9"), (110, "13.0"), (120, "12.8"),
     (121, "12.9"), (30, None), (None, None)],
)  # fmt: skip
def test_the_oldest_nvcc_for_a_gpu(sm: int | None, cuda: str | None) -> None:
    (gpu,) = derive(gpus=(Gpu(index=0, sm=sm),)).gpus or ()
    assert gpu.min_nvcc == cuda


@pytest.mark.parametrize(
    ("xformers", "flash_attn", "accepts"),
    [("0.0.30", "2.7.4.post1", True), ("0.0.30", "2.8.0.post2", False), ("0.0.31", "2.8.2", False),
     ("0.0.35", "2.8.3", True), ("0.0.35+git1", "2.6.3", False), ("0.0.99", "2.8.3", None),
     ("0.0.35", None, None)],
)  # fmt: skip
def test_whether_xformers_accepts_flash_attn(
    xformers: str, flash_attn: str | None, accepts: bool | None
) -> None:
    found = derive(xformers=Package(version=xformers), flash_attn=Package(version=flash_attn))
    assert found.xformers.accepts_flash_attn is accepts


def test_a_torch_newer_than_triton_windows() -> None:
    windows = System(os="windows", arch="x86_64")
    found = derive(
        system=windows,
        torch=Torch(installed=True, version="2.15.0+cu130", build="cuda", cuda="13.0"),
    )
    assert found.triton.expected is None
    assert "triton-windows newer than" in str(found.gap("triton.expected"))
