"""Imports that fail because of another package."""

from __future__ import annotations

from typing import Literal

import pytest
from msgspec.structs import replace

from attn_doctor.derived import derive
from attn_doctor.facts import (
    DamagedMetadata,
    Extension,
    Facts,
    IncompletePackage,
    Package,
    System,
    Torch,
)
from attn_doctor.rulebook import library

HERE = Package(installed=True, version="5.23.0", import_error="", imports_torchvision=True)


def transformers(**fields: object) -> str | None:
    facts = Facts(**{"torch": Torch(installed=True), "transformers": HERE, **fields})  # type: ignore[arg-type]
    return derive(facts, library.tables()).transformers.import_error


def test_nothing_wrong() -> None:
    assert transformers(damaged_metadata=()) == ""


def test_damaged_metadata_of_torch() -> None:
    """Transformers 5.23 without METADATA of torch: NameError: name 'nn' is not defined."""
    damaged = DamagedMetadata(package="torch", reason="METADATA is missing")
    said = transformers(damaged_metadata=(damaged,))
    assert said == "it reads torch's version from the metadata: METADATA is missing"
    other = DamagedMetadata(package="einops", reason="METADATA is missing")
    assert transformers(damaged_metadata=(other,)) == ""


@pytest.mark.parametrize(
    ("version", "reason", "fails"),
    [
        ("4.56.2", "METADATA is not text in UTF-8", True),
        ("4.56.2", "METADATA is missing", False),
        ("5.0.0", "METADATA cannot be read: Too many levels", True),
        ("5.22.0", "METADATA is not text in UTF-8", True),
        ("5.22.0", "METADATA is missing", False),
        ("5.23.0", "METADATA is not text in UTF-8", False),
    ],
)
def test_more_metadata_that_transformers_reads(version: str, reason: str, fails: bool) -> None:
    damaged = DamagedMetadata(package="peft", reason=reason)
    said = transformers(damaged_metadata=(damaged,), transformers=replace(HERE, version=version))
    assert bool(said) is fails


@pytest.mark.parametrize(
    ("package", "reason", "stopped"),
    [
        ("transformers", "METADATA is missing", {"diffusers"}),
        ("accelerate", "METADATA has no Version", {"transformers"}),
        ("accelerate", "METADATA is not text in UTF-8", {"transformers", "diffusers"}),
        ("huggingface-hub", "METADATA is missing", {"transformers"}),
        ("requests", "METADATA is missing", set()),
        ("requests", "METADATA cannot be read: Too many levels", {"diffusers"}),
        ("numpy", "METADATA is not text in UTF-8", {"transformers", "diffusers", "accelerate"}),
        ("numpy", "METADATA is missing", {"transformers", "accelerate"}),
        ("sageattention", "METADATA is missing", {"diffusers"}),
        ("xformers", "METADATA is missing", {"diffusers"}),
        ("torchvision", "METADATA has no Version", set()),
    ],
)
def test_damaged_metadata_of_what_is_compared(package: str, reason: str, stopped: set[str]) -> None:
    """As Diffusers 0.42.1, Transformers 5.24 and Accelerate 1.15 were imported."""
    one = Package(installed=True, version="0.42.1", import_error="")
    facts = Facts(
        torch=Torch(installed=True, version="2.13.0"),
        diffusers=one,
        transformers=one,
        accelerate=Package(installed=True, version="1.15.0", import_error=""),
        damaged_metadata=(DamagedMetadata(package=package, reason=reason),),
    )
    found = derive(facts, library.tables())
    failing = {
        name
        for name in ("diffusers", "transformers", "accelerate")
        if getattr(found, name).import_error
    }
    assert failing == stopped


@pytest.mark.parametrize(
    ("version", "reason", "fails"),
    [
        ("0.34.0", "METADATA has no Version", False),
        ("0.34.0", "METADATA is not text in UTF-8", True),
        ("0.34.0", "METADATA cannot be read: Is a directory", False),
        ("0.35.2", "METADATA has no Version", True),
    ],
)
def test_damaged_metadata_of_torch_beside_an_older_diffusers(
    version: str, reason: str, fails: bool
) -> None:
    facts = Facts(
        torch=Torch(installed=True, version="2.6.0"),
        diffusers=Package(installed=True, version=version, import_error=""),
        damaged_metadata=(DamagedMetadata(package="torch", reason=reason),),
    )
    assert bool(derive(facts, library.tables()).diffusers.import_error) is fails


@pytest.mark.parametrize(
    ("version", "build", "fails"),
    [
        ("2.12.0", "cuda", False),
        ("2.13.0", "cuda", True),
        ("2.14.1", "cuda", True),
        ("2.15.0", "cuda", False),
        ("2.13.0", "cpu", False),
    ],
)
def test_damaged_metadata_of_triton(
    version: str, build: Literal["cuda", "cpu"], fails: bool
) -> None:
    facts = Facts(
        torch=Torch(installed=True, version=version, build=build, import_error=""),
        damaged_metadata=(DamagedMetadata(package="triton", reason="METADATA is missing"),),
    )
    said = derive(facts, library.tables()).torch.import_error
    expected = "it reads triton's version from the metadata: METADATA is missing"
    assert said == (expected if fails else "")


@pytest.mark.parametrize(
    ("transformers", "kernels", "error", "fails"),
    [
        ("5.12.0", "0.15.2", "", True),
        ("5.12.0", "0.14.1", "", False),
        ("5.13.0", "0.15.2", "", False),
        ("4.57.6", "0.15.2", "", False),
        ("5.12.0", "0.15.2", "it imports x, which is not installed", False),
    ],
)
def test_kernels_that_want_a_version(
    transformers: str, kernels: str, error: str, fails: bool
) -> None:
    """Transformers catches the error of a kernels that cannot be imported."""
    facts = Facts(
        torch=Torch(installed=True, version="2.13.0"),
        transformers=Package(installed=True, version=transformers, import_error=""),
        kernels=Package(installed=True, version=kernels, import_error=error),
    )
    assert bool(derive(facts, library.tables()).transformers.import_error) is fails


def test_a_damaged_triton_beside_sageattention() -> None:
    damaged = IncompletePackage(package="triton", file="triton/_C/libtriton.so", reason="cut short")
    facts = Facts(
        torch=Torch(installed=True, version="2.13.0", import_error=""),
        sageattention=Package(
            installed=True, distribution="sageattention", version="1.0.6", import_error=""
        ),
        incomplete_packages=(damaged,),
    )
    found = derive(facts, library.tables())
    assert found.sageattention.import_error is None
    assert found.torch.import_error == ""


@pytest.mark.parametrize(
    ("wanted", "fails"),
    [(">=0.16.0,<0.17.0", True), (">=0.17.2,<0.18.0", False), (">=0.10.2", False)],
)
def test_transformers_imports_the_kernels_that_it_accepts(wanted: str, fails: bool) -> None:
    """Transformers 5.17 with kernels 0.16.2 without kernels-data; before 5.13 it catches that."""
    error = "kernels/__init__.py imports kernels_data, which is not installed"
    facts = Facts(
        torch=Torch(installed=True, version="2.11.0"),
        transformers=Package(installed=True, version="5", import_error="", kernels_range=wanted),
        kernels=Package(installed=True, version="0.16.2", import_error=error),
    )
    assert bool(derive(facts, library.tables()).transformers.import_error) is fails


@pytest.mark.parametrize(("fault", "said"), [("no metadata", True), ("no torch/lib", False)])
def test_deleted_metadata_of_torch(fault: str, said: bool) -> None:
    torch = Torch(installed=True, installation_error=f"{fault}, no torch/version.py")
    assert bool(transformers(torch=torch)) is said


@pytest.mark.parametrize(
    ("torch", "there", "fails"),
    [("2.2.1", True, True), ("2.2.1", False, False), ("2.3.1", True, False)],
)
def test_metadata_of_torch_stop_what_imports_onnx(torch: str, there: bool, fails: bool) -> None:
    facts = Facts(
        torch=Torch(installed=True, version=torch),
        torchvision=Package(installed=True, version="0.17.1", import_error=""),
        diffusers=Package(installed=True, version="0.31.0", import_error=""),
        transformers=Package(installed=there, import_error=""),
        damaged_metadata=(DamagedMetadata(package="torch", reason="METADATA has no Version"),),
    )
    found = derive(facts, library.tables())
    assert bool(found.torchvision.import_error) is fails
    assert bool(found.diffusers.import_error) is fails


@pytest.mark.parametrize(
    ("version", "fails"), [("0.7.0", True), ("0.14.1", True), ("0.15.0", False), ("0.5.0", False)]
)
def test_torchao_compares_the_version_in_the_metadata_of_torch(version: str, fails: bool) -> None:
    reason = "METADATA cannot be read: Too many levels of symbolic links"
    facts = Facts(
        torch=Torch(installed=True, version="2.9.1"),
        torchao=Package(installed=True, version=version, import_error=""),
        damaged_metadata=(DamagedMetadata(package="torch", reason=reason),),
    )
    said = derive(facts, library.tables()).torchao.import_error
    assert said == (f"it reads torch's version from the metadata: {reason}" if fails else "")


@pytest.mark.parametrize("release", [True, False])
def test_a_torchvision_that_does_not_load(release: bool) -> None:
    """torchvision 0.28.0 for CUDA beside torch 2.13.0+cpu; Transformers before 4.46 ignores it."""
    said = transformers(
        transformers=Package(installed=True, import_error="", imports_torchvision=release),
        torchvision=Package(installed=True, import_error="torchvision cannot load"),
    )
    assert bool(said) is release


def test_a_first_reason_stays() -> None:
    damaged = DamagedMetadata(package="torch", reason="METADATA is missing")
    one = Package(installed=True, import_error="it requires tqdm, and none is installed")
    assert transformers(transformers=one, damaged_metadata=(damaged,)) == one.import_error


@pytest.mark.parametrize(
    ("torch", "expected", "failing", "working"),
    [
        ("2.2.2", "<0.35", "0.36.0", "0.35.2"),
        ("2.3.1", "<0.35", "0.41.0", "0.40.0"),
        ("2.4.1+cu121", "<0.35", "0.37.1", "0.36.0"),
        ("2.5.1", "<0.41", "0.42.1", "0.40.0"),
        ("2.6.0+cu124", "", "", "0.42.1"),
    ],
)
def test_a_diffusers_that_torch_is_too_old_for(
    torch: str, expected: str, failing: str, working: str
) -> None:
    """As each was imported with each. From 0.35 on attention fails before torch 2.5."""

    def diffusers(version: str) -> Package:
        one = Package(installed=True, version=version, import_error="")
        facts = Facts(torch=Torch(installed=True, version=torch), diffusers=one)
        return derive(facts, library.tables()).diffusers

    assert diffusers(working).import_error == ""
    assert diffusers(working).expected == expected
    assert bool(failing and diffusers(failing).import_error) is bool(failing)


@pytest.mark.parametrize(
    ("version", "fails"), [("0.35.2", True), ("0.36.0", True), ("0.42.1", False)]
)
def test_a_broken_flash_attn_stops_diffusers_that_does_not_catch_it(
    version: str, fails: bool
) -> None:
    broken = Extension(package="flash_attn", name="flash_attn_2_cuda", loads=False)
    facts = Facts(
        torch=Torch(installed=True, version="2.13.0"),
        diffusers=Package(installed=True, version=version, import_error=""),
        flash_attn=Package(installed=True, version="2.8.3"),
        extensions=(replace(broken, fault="it is empty"),),
    )
    assert bool(derive(facts, library.tables()).diffusers.import_error) is fails


@pytest.mark.parametrize(
    ("release", "flash", "fails"),
    [
        ("0.36.0", "2.6.3", True),
        ("0.36.0", "2.7.0", False),
        ("0.36.0", "2.6.2", False),
        ("0.35.2", "2.6.3", False),
        ("0.37.0", "2.6.3", False),
    ],
)
def test_an_older_flash_attn_stops_diffusers_0_36(release: str, flash: str, fails: bool) -> None:
    facts = Facts(
        torch=Torch(installed=True, version="2.9.0"),
        diffusers=Package(installed=True, version=release, import_error=""),
        flash_attn=Package(installed=True, version=flash),
    )
    error = derive(facts, library.tables()).diffusers.import_error
    assert error == ("it imports functions of flash-attn 2.7.0, and 2.6.3 is installed" * fails)


@pytest.mark.parametrize(
    ("damaged", "doubtful"),
    [
        ("numpy", {"torch", "diffusers", "xformers"}),
        ("torch", {"torch", "diffusers", "xformers"}),
        ("huggingface-hub", {"diffusers"}),
        ("diffusers", {"diffusers"}),
        ("xformers", {"xformers"}),
        ("sageattention", set()),
    ],
)
def test_an_import_is_unknown_where_a_file_on_its_way_is_damaged(
    damaged: str, doubtful: set[str]
) -> None:
    one = IncompletePackage(package=damaged, version="1.0", file="a.py", reason="empty", files=1)
    facts = Facts(
        torch=Torch(installed=True, import_error=""),
        diffusers=Package(installed=True, distribution="diffusers", import_error=""),
        xformers=Package(installed=True, distribution="xformers", import_error=""),
        incomplete_packages=(one,),
    )
    found = derive(facts, library.tables())
    for name in ("torch", "diffusers", "xformers"):
        package = getattr(found, name)
        expected = (None, "a.py is empty") if name in doubtful else ("", None)
        assert (package.import_error, package.import_doubt) == expected, name


@pytest.mark.parametrize(
    ("torch", "version", "fails"),
    [
        ("2.5.1", "5.24.0", True),
        ("2.5.1", "5.19.0", True),
        ("2.5.1+cu124", "5.18.0", False),
        ("2.4.1", "5.16.0", True),
        ("2.4.1", "5.14.0", True),
        ("2.4.1", "5.13.0", False),
        ("2.4.1", "5.9.0", True),
        ("2.4.1", "5.8.1", True),
        ("2.4.1", "5.7.0", False),
        ("2.5.1", "5.10.1", True),
        ("2.5.1", "5.9.0", False),
        ("2.5.1", "5.14.0", False),
        ("2.3.1", "5.12.1", True),
        ("2.1.2", "5.0.0", True),
        ("2.0.1", "4.57.6", False),
        ("2.6.0", "5.24.0", False),
    ],
)
def test_a_transformers_that_treats_torch_as_missing(torch: str, version: str, fails: bool) -> None:
    """As each was imported with each, or with metadata of that torch."""
    one = Package(installed=True, version=version, import_error="")
    facts = Facts(torch=Torch(installed=True, version=torch), transformers=one)
    assert bool(derive(facts, library.tables()).transformers.import_error) is fails


@pytest.mark.parametrize(
    ("torch", "xformers", "diffusers", "flash", "fails"),
    [
        ("2.5.1", "0.0.35", "0.36.0", False, True),
        ("2.5.1", "0.0.35", "0.36.0", True, False),
        ("2.5.1", "0.0.35", "0.37.1", False, False),
        ("2.5.1", "0.0.29.post1", "0.36.0", False, False),
        ("2.4.1", "0.0.35", "0.35.2", False, True),
        ("2.4.0", "0.0.31", "0.34.0", False, True),
        ("2.4.0", "0.0.29.post3", "0.34.0", False, False),
        ("2.2.1", "0.0.29.post3", "0.32.2", False, True),
        ("2.2.1", "0.0.29", "0.32.2", False, False),
        ("2.5.1", "0.0.31", "0.36.0", False, False),
        ("2.10.0", "0.0.35", "0.36.0", False, False),
    ],
)
def test_an_xformers_that_torch_is_too_old_for_stops_diffusers(
    torch: str, xformers: str, diffusers: str, flash: bool, fails: bool
) -> None:
    facts = Facts(
        system=System(os="linux"),
        torch=Torch(installed=True, version=torch, build="cuda"),
        diffusers=Package(installed=True, version=diffusers, import_error=""),
        xformers=Package(installed=True, version=xformers),
        flash_attn=Package(installed=flash, version="2.7.4" if flash else None),
    )
    assert bool(derive(facts, library.tables()).diffusers.import_error) is fails


def test_a_file_that_this_user_may_not_read() -> None:
    """What it stops is unknown."""
    facts = Facts(
        torch=Torch(installed=True, import_error=""),
        kernels=Package(installed=True, import_error=""),
        unreadable_files=("/venv/lib/x.so",),
    )
    derived = derive(facts, library.tables())
    assert derived.kernels.import_error is derived.torch.import_error is None
    assert derived.kernels.import_doubt == "this user may not read /venv/lib/x.so"


def test_kernels_beside_a_damaged_requirement() -> None:
    """Seen with kernels 0.17.2 and without the folder of huggingface_hub."""
    gone = IncompletePackage(package="huggingface-hub", file="huggingface_hub/utils", reason="gone")
    kernels = Package(installed=True, distribution="kernels", import_error="")
    facts = Facts(kernels=kernels, torch=Torch(installed=True), incomplete_packages=(gone,))
    assert derive(facts, library.tables()).kernels.import_doubt


@pytest.mark.parametrize(
    ("torch", "version", "expected"),
    [
        ("2.4.1", "5.8.1", "<5.8"),
        ("2.4.1", "5.16.0", "<5.14"),
        ("2.5.1", "5.19.0", "<5.19"),
        ("2.0.1", "4.53.0", "<4.52"),
    ],
)
def test_the_transformers_that_this_torch_can_import(
    torch: str, version: str, expected: str
) -> None:
    """Releases that fail and are older than the installed one set no bound."""
    one = Package(installed=True, version=version, import_error="")
    facts = Facts(torch=Torch(installed=True, version=torch), transformers=one)
    assert derive(facts, library.tables()).transformers.expected == expected
