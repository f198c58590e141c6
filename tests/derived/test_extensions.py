"""What compiled modules amount to for the GPUs of a machine."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from attn_doctor.examination import derive
from attn_doctor.facts import Driver, Extension, Facts, Gpu, Package, System, Torch

THERE = Package(installed=True)
SOUND: dict[str, Any] = {
    "missing_libraries": (),
    "outdated_libraries": (),
    "undefined_symbol_count": 0,
}


def module(
    name: str = "_C",
    archs: tuple[str, ...] | None = (),
    ptx: tuple[str, ...] | None = (),
    package: str = "xformers",
    **more: Any,
) -> Extension:
    known = {"ptx_cuda": "12.8", **SOUND, **more}
    return Extension(package=package, name=name, archs=archs, ptx=ptx, **known)


def facts(*modules: Extension, sms: tuple[int | None, ...] = (90,), **fields: Any) -> Facts:
    gpus = tuple(Gpu(index=number, sm=sm, visible=True) for number, sm in enumerate(sms))
    known = {
        "driver": Driver(cuda_max="13.0"),
        "gpus": gpus,
        "xformers": THERE,
        "torch": Torch(cuda="13.0"),
        **fields,
    }
    return derive(Facts(extensions=modules, **known))


@pytest.mark.parametrize(
    ("archs", "ptx", "sms", "code"),
    [
        (("80", "90"), (), (90,), "yes"),
        (("80",), (), (90,), "no"),
        (("80",), ("80",), (90,), "ptx"),
        (("80",), ("80",), (80, 90), "ptx"),
        (("80",), ("80",), (80,), "yes"),
        (("90a",), ("90a",), (100,), "no"),
        (("90a",), (), (80, 90), "no"),
        (("100f",), (), (103,), "yes"),
        ((), (), (90,), ""),
        (("80",), (), (), ""),
    ],
)
def test_gpu_code(
    archs: tuple[str, ...], ptx: tuple[str, ...], sms: tuple[int, ...], code: str
) -> None:
    found = facts(module(archs=archs, ptx=ptx), sms=sms)
    assert (found.extensions or ())[0].gpu_code == code
    assert found.xformers.gpu_code == code


@pytest.mark.parametrize(
    ("version", "sm", "code"),
    [
        ("0.0.32.post2", 120, "no"),
        ("0.0.32.post2", 90, "yes"),
        ("0.0.33", 120, "ptx"),
        ("0.0.29.post3", 120, "ptx"),
    ],
)
def test_xformers_that_takes_its_kernel_for_hopper(version: str, sm: int, code: str) -> None:
    """https://github.com/facebookresearch/xformers/issues/1323"""
    there = Package(installed=True, version=version)
    ours = module(archs=("80", "90a"), ptx=("80",))
    assert facts(ours, sms=(sm,), xformers=there).xformers.gpu_code == code


def test_ptx_newer_than_the_driver_does_not_run() -> None:
    found = facts(module(ptx=("80",), ptx_cuda="13.1"))
    assert found.xformers.gpu_code == "no"


@pytest.mark.parametrize(
    "fields",
    [
        {"driver": Driver()},
        {"gpus": None},
        {"gpus": (Gpu(index=0, visible=True),)},
    ],
)
def test_gpu_code_is_unknown_if_versions_are(fields: dict[str, Any]) -> None:
    found = facts(module(ptx=("80",)), **fields)
    assert found.xformers.gpu_code is None
    assert found.gap("xformers.gpu_code")
    assert found.gap("extensions[0].gpu_code")


def test_a_file_that_was_not_read() -> None:
    found = facts(module(archs=None), module("_D", archs=("90",)))
    assert found.xformers.gpu_code is None
    assert [one.gpu_code for one in found.extensions or ()] == [None, "yes"]


def test_a_hidden_gpu_does_not_count() -> None:
    gpus = (Gpu(index=0, sm=90, visible=True), Gpu(index=1, sm=120, visible=False))
    assert facts(module(archs=("90",)), gpus=gpus).xformers.gpu_code == "yes"


def test_each_gpu_takes_the_best_of_several_files() -> None:
    files = (module("_qattn_sm80", ("80",)), module("_qattn_sm90", ("90a",)))
    found = facts(*files, sms=(80, 90))
    assert found.xformers.gpu_code == "yes"
    assert [one.gpu_code for one in found.extensions or ()] == ["no", "no"]


@pytest.mark.parametrize(
    ("faults", "loads"),
    [
        ({}, True),
        ({"missing_libraries": ("libcudart.so.12",)}, False),
        ({"undefined_symbol_count": 2}, False),
        ({"outdated_libraries": ("libc.so.6",)}, False),
        ({"missing_libraries": ("libcudart.so.12",), "undefined_symbol_count": None}, False),
        ({"undefined_symbol_count": None}, None),
        ({"missing_libraries": None}, None),
    ],
)
def test_loads(faults: dict[str, Any], loads: bool | None) -> None:
    found = facts(module(**faults))
    assert (found.extensions or ())[0].loads is loads
    assert found.xformers.loads is loads
    assert found.xformers.known_to_load is (loads is True)


def test_main_modules_decide_for_a_package() -> None:
    missing: dict[str, Any] = {"missing_libraries": ("libjpeg.so.8",)}
    main, image = module("_C", package="torchvision"), module("image", package="torchvision")
    broken = module("image", package="torchvision", **missing)
    assert facts(main, broken, torchvision=THERE).torchvision.loads is True
    unsound = module("_C", package="torchvision", **missing)
    assert facts(unsound, image, torchvision=THERE).torchvision.loads is False
    cut = module("image", package="torchvision", fault="it ends after 9 of at least 12 bytes")
    found = facts(main, cut, torchvision=THERE).torchvision
    assert found.loads is False, "it stops the process"
    assert found.load_error == "image: it ends after 9 of at least 12 bytes"
    pair = (module("_qattn_sm90", **missing), module("_qattn_sm80"))
    assert facts(*pair).xformers.loads is True


@pytest.mark.parametrize(
    ("wanted", "loads"),
    [("==2.9.1", None), ("==2.8.0", True), ("", True), ("2.8", True), (f"=={'9' * 5000}", True)],
)
def test_torchvision_for_another_torch_is_not_said_to_load(wanted: str, loads: bool | None) -> None:
    vision = msgspec.structs.replace(THERE, requires_torch=wanted)
    found = derive(
        Facts(
            extensions=(module("image", package="torchvision"),),
            torch=Torch(installed=True, version="2.8.0+cu128"),
            torchvision=vision,
        )
    )
    assert [one.loads for one in found.extensions or ()] == [loads]


def test_a_package_without_modules() -> None:
    found = facts()
    assert (found.xformers.loads, found.xformers.known_to_load) == (None, False)
    assert found.xformers.gpu_code == ""
    assert found.flash_attn.gpu_code is None
    unread = derive(Facts(xformers=THERE))
    assert unread.xformers.gpu_code is None


@pytest.mark.parametrize(
    ("cubins", "ptx", "sm", "cuda_max", "code"),
    [
        (("80", "90"), (), 90, "13.0", "yes"),
        (("80",), (), 90, "13.0", "no"),
        (("80",), ("80",), 90, "13.0", "ptx"),
        (("80",), ("80",), 90, "12.8", "no"),
        (("80",), ("80",), 90, None, None),
        (("90a",), (), 90, "13.0", "yes"),
    ],
)
def test_the_code_of_torch_itself(
    cubins: tuple[str, ...], ptx: tuple[str, ...], sm: int, cuda_max: str | None, code: str | None
) -> None:
    torch = Torch(
        installed=True,
        version="2.99.0a0+me",
        build="cuda",
        cuda="13.0",
        cubins=cubins,
        ptx=ptx,
    )
    found = derive(
        Facts(torch=torch, driver=Driver(cuda_max=cuda_max), gpus=(Gpu(index=0, sm=sm),))
    )
    assert found.torch.archs_source == "file"
    (gpu,) = found.gpus or ()
    assert (gpu.torch_code, found.torch.gpu_code) == (code, code)
    assert gpu.in_torch_archs is (None if code is None else code != "no")
    assert bool(found.gap("gpus[0].torch_code")) is (code is None)


def test_a_module_is_unknown_beside_a_library_of_its_package_that_does_not_load() -> None:
    """torchaudio 2.9.1 beside torch 2.15: `libtorchaudio.so` lacks a symbol, and so fails
    `_torchaudio.so`, which needs it."""
    broken = module("libtorchaudio", package="torchaudio", undefined_symbol_count=1)
    needing = module("_torchaudio", package="torchaudio")
    other = module("_C", package="torchvision")
    found = facts(broken, needing, other).extensions or ()
    assert [one.loads for one in found] == [False, None, True]
    sound = module("libtorchaudio", package="torchaudio")
    assert [one.loads for one in facts(sound, needing).extensions or ()] == [True, True]


@pytest.mark.parametrize(
    ("version", "system", "build", "wanted"),
    [
        ("2.2.0", "linux", "cuda", "git+https://github.com/thu-ml/SageAttention"),
        ("2.2.0", "windows", "cuda", "sageattention==2.2.0"),
        ("2.2.0", "linux", "cpu", "sageattention==2.2.0"),
        ("1.0.6", "linux", "cuda", "sageattention==1.0.6"),
    ],
)
def test_sageattention_2_is_installed_from_its_sources(
    version: str, system: Any, build: Any, wanted: str
) -> None:
    there = Package(installed=True, distribution="sageattention", version=version)
    found = facts(
        module(package="sageattention"),
        sageattention=there,
        system=System(os=system),
        torch=Torch(build=build),
    )
    assert (found.extensions or ())[0].requirement == wanted


@pytest.mark.parametrize(
    ("version", "torch", "old_abi", "wanted"),
    [
        ("2.8.3", "2.6.0+cu124", True, "flash-attn==2.7.4.post1"),
        ("2.8.3", "2.6.0+cu126", False, "flash-attn==2.8.3"),
        ("2.8.3", "2.5.1+cu124", True, "flash-attn==2.8.3"),
        ("2.7.3", "2.6.0+cu124", True, "flash-attn==2.7.3"),
    ],
)
def test_flash_attn_for_torch_2_6_has_a_wheel_of_the_older_abi(
    version: str, torch: str, old_abi: bool, wanted: str
) -> None:
    found = facts(
        module(package="flash_attn"),
        flash_attn=Package(installed=True, distribution="flash-attn", version=version),
        system=System(os="linux"),
        torch=Torch(build="cuda", version=torch, cxx11_abi=not old_abi),
    )
    assert (found.extensions or ())[0].requirement == wanted
