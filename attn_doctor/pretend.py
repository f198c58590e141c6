"""Replaces facts with values that `--pretend` gives: `--pretend gpu=rtx4090,torch=2.9.1+cu128`.

Each word replaces a group of facts and removes those that contradict it: with another torch, the
facts read from the installed files no longer hold. What has to be assumed with it (a driver that is
new enough, the Triton of that torch, packages built for this torch and GPU) is named in
`Facts.simulated`. What cannot be known stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace
from packaging.version import Version

from attn_doctor.env_vars import VARIABLES
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import (
    PACKAGES,
    Build,
    Dispatcher,
    Driver,
    Extension,
    Facts,
    Gpu,
    Package,
    PciDevice,
    Program,
    Python,
    System,
    Torch,
    Triton,
)
from attn_doctor.facts.kinds import GpuVendor, TorchBuild
from attn_doctor.gpu_names import Product, find_other, find_product, known_names, plain
from attn_doctor.numbers import natural
from attn_doctor.suggest import did_you_mean

Tables = Mapping[str, Any]

_ABSENT = ("absent", "none", "no")
#: The gap of a fact that belongs to a simulated group and was not given.
_NOT_GIVEN = "simulated: not given"


def _version(key: str, text: str) -> str:
    """Return `text`. Raises `AttnDoctorError` if it is not a version."""
    try:
        Version(text)
    except ValueError:  # also a number of more digits than Python converts
        raise AttnDoctorError(f"--pretend {key}={text}: {text} is not a version") from None
    return text


def _without_gaps(facts: Facts, *groups: str) -> dict[str, str]:
    """Return the gaps of all facts outside `groups`, whose facts are simulated."""
    return {
        name: why
        for name, why in facts.gaps.items()
        if not any(f"{name}.".startswith((f"{one}.", f"{one}[")) for one in groups)
    }


def _set_gpu(facts: Facts, value: str, tables: Tables, notes: list[str]) -> Facts:
    """Set one or several GPUs of a name, such as `2xh100`, or none."""
    gaps = _without_gaps(facts, "gpus", "pci", "driver.state", "driver.vendor")
    if value in _ABSENT:
        notes.append("no GPU")
        driver = Driver(state="no-gpu", vendor="", error="")
        return replace(facts, gpus=(), pci=(), driver=driver, gaps=gaps)
    match = re.fullmatch(r"(?:(\d{1,2})\s*[x×]\s*)?(.+)", value)
    count, name = int(match[1] or 1) if match else 1, match[2] if match else value
    product = find_product(name, tables)
    if product is None and (other := find_other(name, tables)) is not None:
        return _set_other_gpu(facts, other, count, gaps, notes)
    if product is None:
        hint = did_you_mean(plain(name), known_names(tables), "name its capability: sm=89")
        raise AttnDoctorError(f"--pretend gpu={name}: no GPU of that name is in the tables; {hint}")
    memory = product.gib * 1024 or None
    found = tuple(_gpu(number, product.name, product.sm, memory) for number in range(count))
    notes.append(f"{count} × {product.name}" if count > 1 else product.name)
    gaps["gpus"] = _NOT_GIVEN
    return replace(facts, gpus=found, pci=(), gaps=gaps)


def _set_other_gpu(
    facts: Facts, product: Product, count: int, gaps: dict[str, str], notes: list[str]
) -> Facts:
    """Set GPUs of another vendor, which NVIDIA's driver does not list."""
    notes.append(f"{count} × {product.name}" if count > 1 else product.name)
    vendor = msgspec.convert(product.vendor, GpuVendor)
    driver = Driver(state="no-gpu", vendor=vendor, error="")
    on_bus: dict[GpuVendor, PciDevice] = {
        "amd": PciDevice(vendor="amd", name=product.name, kernel_driver="amdgpu"),
        "intel": PciDevice(vendor="intel", name=product.name, kernel_driver="i915"),
    }
    pci = (on_bus[vendor],) * count if vendor in on_bus else ()
    return replace(facts, gpus=(), pci=pci, driver=driver, gaps=gaps)


def _gpu(index: int, name: str, sm: int, memory_mib: int | None) -> Gpu:
    return Gpu(
        index=index,
        name=name,
        sm=sm,
        compute_capability=f"{sm // 10}.{sm % 10}",
        memory_total_mib=memory_mib,
        memory_free_mib=memory_mib,
        mig="disabled",
        mig_devices=0,
        compute_mode="default",
        processes=0,
        visible=True,
    )


def _set_capability(facts: Facts, value: str, _: Tables, notes: list[str]) -> Facts:
    """Set the compute capability of all GPUs; adds a GPU if there is none."""
    digits = value.lower().removeprefix("sm_").removeprefix("sm").replace(".", "")
    sm = natural(digits)
    if sm is None or not 30 <= sm <= 200:
        raise AttnDoctorError(f"--pretend sm={value}: write the capability as 89 or 8.9")
    notes.append(f"compute capability {sm // 10}.{sm % 10}")
    capability = f"{sm // 10}.{sm % 10}"
    if facts.gpus:
        gpus = tuple(replace(one, sm=sm, compute_capability=capability) for one in facts.gpus)
    else:
        gpus = (_gpu(0, f"a GPU of capability {capability}", sm, None),)
    return replace(
        facts, gpus=gpus, pci=(), gaps={**_without_gaps(facts, "gpus"), "gpus": _NOT_GIVEN}
    )


def _set_memory(facts: Facts, value: str, _: Tables, notes: list[str]) -> Facts:
    """Set the memory of all GPUs, in GiB."""
    try:
        gib = float(value.lower().removesuffix("gib").removesuffix("gb").removesuffix("g"))
    except ValueError:
        raise AttnDoctorError(f"--pretend memory={value}: write GiB, such as 24") from None
    if not facts.gpus:
        raise AttnDoctorError("--pretend memory=…: name a GPU too, such as gpu=rtx4090")
    notes.append(f"{gib:g} GiB of GPU memory")
    mib = int(gib * 1024)
    gpus = tuple(replace(one, memory_total_mib=mib, memory_free_mib=mib) for one in facts.gpus)
    return replace(facts, gpus=gpus)


def _set_driver(facts: Facts, value: str, tables: Tables, notes: list[str]) -> Facts:
    """Set a working driver of a version, or of a branch: then the first that runs its CUDA."""
    firsts = (str(row.get(facts.system.os, "")) for row in tables["drivers"]["major"])
    other = value if "." in value else f"{value}.0"
    first = next((one for one in firsts if one.startswith(f"{value}.")), other)
    version = _version("driver", first)
    notes.append(f"driver {value}")
    return replace(
        facts,
        driver=_working_driver(facts, version),
        gaps=_without_gaps(facts, "driver"),
    )


def _working_driver(facts: Facts, version: str) -> Driver:
    """Return a working driver. The paths of its libraries are those of this machine's driver."""
    old = facts.driver if facts.driver.state == "ok" else Driver()
    return Driver(
        state="ok",
        error="",
        version=version,
        library_version=version,
        libcuda=old.libcuda,
        libcuda_linkable=old.libcuda_linkable if old.libcuda_linkable is not None else True,
        libcuda_compat=False,
        device_nodes=True,
        vendor="nvidia",
    )


def _with_driver(facts: Facts, words: Mapping[str, str], tables: Tables, notes: list[str]) -> Facts:
    """Keep this machine's driver for a simulated GPU, or assume the newest known one."""
    if not facts.gpus or "driver" in words:
        return facts
    if facts.driver.state == "ok" and facts.driver.version:
        return facts
    newest = str(tables["drivers"]["newest"])
    notes.append(f"driver {newest} (assumed: the newest known)")
    return replace(
        facts,
        driver=_working_driver(facts, f"{newest}.0"),
        gaps=_without_gaps(facts, "driver"),
    )


def _set_os(facts: Facts, value: str, _: Tables, notes: list[str]) -> Facts:
    """Set another operating system, of which only name and processor are known."""
    if value not in ("linux", "windows", "macos"):
        raise AttnDoctorError(f"--pretend os={value}: one of linux, windows, macos")
    notes.append(value)
    if value == facts.system.os:
        return facts
    return _on_another_system(facts, value, "arm64" if value == "macos" else "x86_64")


def _set_arch(facts: Facts, value: str, _: Tables, notes: list[str]) -> Facts:
    """Set another processor."""
    if value not in ("x86_64", "aarch64", "arm64"):
        raise AttnDoctorError(f"--pretend arch={value}: one of x86_64, aarch64, arm64")
    notes.append(value)
    if value == facts.system.arch:
        return facts
    return _on_another_system(facts, facts.system.os or "linux", value)


def _on_another_system(facts: Facts, os: str, arch: str) -> Facts:
    """Another machine, of which only the system and the processor are known."""
    system = System(os=os, arch=arch, wsl=0, container="", musl=False)
    # Files of this machine are not on the other one: a Linux toolkit does not exist on Windows.
    lists = {"directories": None, "caches": None, "shadowing_libraries": None, "toolkits": None}
    tools = dict.fromkeys(("cc", "cxx", "cl", "ninja", "cmake"), Program())
    elsewhere = ("system", *lists, "build", *tools)
    gaps = _without_gaps(facts, "manifests", *elsewhere)
    # Nor are its paths: a command that is shown has to run there.
    uv = facts.python.uv and "uv"
    pip = facts.python.pip and None  # its version is not known there
    return replace(
        facts,
        system=system,
        python=replace(facts.python, path="python", pip=pip, uv=uv, externally_managed=False),
        build=Build(),
        gaps={**gaps, **dict.fromkeys(elsewhere, _NOT_GIVEN)},
        **lists,
        **tools,
    )


def _set_python(facts: Facts, value: str, _: Tables, notes: list[str]) -> Facts:
    """Set another CPython version with the packages of the examined one."""
    notes.append(f"Python {_version('python', value)}")
    old = facts.python
    python = Python(
        path=old.path,
        selection_reason=old.selection_reason,
        version=value,
        implementation="cpython",
        free_threaded=False,
        environment=old.environment,
        headers=old.headers,
        shadowing_modules=(),
        unread_torch="",
        foreign_home="",
        foreign_variable="",
        shadowing_here=False,
        pythonpath_kept="",
        invalid_distributions=(),
    )
    return replace(facts, python=python, gaps=_without_gaps(facts, "python"))


def _set_c_compiler(facts: Facts, value: str, _: Tables, notes: list[str]) -> Facts:
    """Set a gcc of a version, for C and C++, or no compiler."""
    gaps = _without_gaps(facts, "cc", "cxx")
    if value in _ABSENT:
        notes.append("no C compiler")
        program = Program(path="", version="", family="")
    else:
        notes.append(f"gcc {_version('cc', value)}")
        program = Program(path="/usr/bin/gcc", version=value, family="gcc")
    return replace(facts, cc=program, cxx=program, gaps=gaps)


def _set_torch(facts: Facts, value: str, tables: Tables, notes: list[str]) -> Facts:
    """Set a release of torch from PyTorch's own index, or no torch."""
    gaps = _without_gaps(facts, "torch", "cuda_wheels", "shadowing_libraries")
    if value in _ABSENT:
        notes.append("no torch")
        torch = Torch(installed=False, installation_error="")
        facts = _unlinked(facts, gaps)
        return replace(facts, torch=torch, cuda_wheels=(), shadowing_libraries=(), gaps=gaps)
    parsed = Version(_version("torch", value))
    minor = f"{parsed.major}.{parsed.minor}"
    row = next((one for one in tables["torch"]["release"] if one["minor"] == minor), None)
    local = (parsed.local or "").lower()
    build, cuda = _build(local, row, facts)
    if build == "cuda" and cuda is None:
        gaps["torch.cuda"] = f"simulated: write the build too, such as torch={value}+cu130"
    notes.append(f"torch {value}" + (f" (built for CUDA {cuda})" if cuda and not local else ""))
    pinned = row["pins"].get(parsed.public, f"=={row['triton']}.*") if row else None
    torch = Torch(
        installed=True,
        version=value,
        local=local,
        build=build,
        cuda=cuda,
        debug=False,
        cxx11_abi=True if (parsed.major, parsed.minor) >= (2, 7) else None,
        installation_error="",
        from_pythonpath=False,
        source="index",
        has_flex=(parsed.major, parsed.minor) >= (2, 5),
        has_build_helper=False,
        requires_triton=_requires_triton(pinned, build, facts),
        missing_nvidia_wheels=(),
        overwritten_wheel="",
        missing_libraries=(),
        foreign_library="",
    )
    gaps.update(dict.fromkeys(("torch", "cuda_wheels"), _NOT_GIVEN))
    facts = _unlinked(facts, gaps)
    return replace(facts, torch=torch, cuda_wheels=None, shadowing_libraries=(), gaps=gaps)


def _unlinked(facts: Facts, gaps: dict[str, str]) -> Facts:
    """Forget what extensions need of libraries: it was compared with those of another torch."""
    gaps["extensions"] = _NOT_GIVEN
    unlinked = (
        replace(
            one,
            missing_libraries=None,
            missing_found_at=None,
            undefined_symbol_count=None,
            first_undefined_symbols=None,
            mismatch=None,
        )
        for one in facts.extensions or ()
    )
    return replace(facts, extensions=None if facts.extensions is None else tuple(unlinked))


def _requires_triton(pinned: str | None, build: str, facts: Facts) -> str | None:
    if build != "cuda" or facts.system.os in ("windows", "macos"):
        return ""
    return pinned


def _build(
    local: str, row: Mapping[str, Any] | None, facts: Facts
) -> tuple[TorchBuild, str | None]:
    """Return platform and CUDA of a torch: from its local part, else those of the PyPI wheel."""
    tag = re.match(r"cu(\d+)(\d)", local)
    if tag:
        return "cuda", f"{tag[1]}.{tag[2]}"
    builds: tuple[TorchBuild, ...] = ("rocm", "xpu", "cpu")
    for build in builds:
        if local.startswith(build):
            return build, None
    if facts.system.os == "macos":
        return "mps", None
    if facts.system.os == "windows":
        return "cpu", None
    if facts.system.arch not in ("x86_64", None):
        cuda = row.get(f"pypi_{facts.system.arch}") if row else None
        return ("cuda", str(cuda)) if cuda else ("cpu", None)
    return "cuda", str(row["pypi"]) if row else None


def _set_triton(facts: Facts, value: str, tables: Tables, notes: list[str]) -> Facts:
    """Set a release of Triton, or no Triton."""
    gaps = _without_gaps(facts, "triton")
    if value in _ABSENT:
        notes.append("no Triton")
        return replace(facts, triton=Triton(installed=False, providers=()), gaps=gaps)
    version = _version("triton", value)
    notes.append(f"Triton {version}")
    return replace(facts, triton=_working_triton(facts, version, tables), gaps=gaps)


def _working_triton(facts: Facts, version: str, tables: Tables) -> Triton:
    name = "triton-windows" if facts.system.os == "windows" else "triton"
    parsed = Version(version)
    minor = f"{parsed.major}.{parsed.minor}"
    rows: list[Mapping[str, Any]] = tables["triton"]["release"]
    blackwell = any(one["minor"] == minor and "blackwell" in one for one in rows)
    # The paths are placeholders for files of a complete installation.
    return Triton(
        installed=True,
        version=version,
        distribution=name,
        providers=(name,),
        backends=("nvidia", "amd"),
        ptxas="ptxas",
        ptxas_blackwell="ptxas-blackwell" if blackwell else "",
    )


def _with_triton(facts: Facts, tables: Tables, notes: list[str]) -> Facts:
    """Set the Triton that torch for Linux requires; on other systems the installed one stays."""
    wanted = facts.torch.requires_triton
    if not facts.torch.installed or facts.torch.build != "cuda" or not wanted:
        return facts
    version = re.sub(r"[^0-9.].*", "", wanted.lstrip("=~")).rstrip(".")
    notes.append(f"Triton {version} (comes with it)")
    return replace(
        facts,
        triton=_working_triton(facts, version, tables),
        gaps=_without_gaps(facts, "triton"),
    )


#: Extension modules of a complete build; those of SageAttention depend on its version.
_MODULES = {
    "flash_attn": ("flash_attn_2_cuda",),
    "flash_attn_3": ("_C",),
    "xformers": ("_C",),
}


def _set_package(facts: Facts, field: str, value: str, notes: list[str]) -> Facts:
    """Set a release of a package, correctly installed, or no such package."""
    name = field.replace("_", "-")
    if field == "diffusers":
        facts = replace(facts, dispatcher=Dispatcher())
    gaps = _without_gaps(facts, field, *(["dispatcher"] if field == "diffusers" else []))
    kept = tuple(one for one in facts.extensions or () if one.package != field)
    if value in _ABSENT:
        notes.append(f"no {name}")
        gone = Package(installed=False)
        return replace(facts, **{field: gone}, extensions=kept, gaps=gaps)
    version = _version(name, value)
    modules = _modules(field, version)
    torch, cuda = facts.torch.version, facts.torch.cuda
    assumed = " (assumed: built for this torch and GPU)" if modules else ""
    notes.append(f"{name} {version}{assumed}")
    package = Package(
        installed=True,
        version=version,
        distribution=name,
        path=f"{name} (simulated)",
        source="index",
        built_torch=torch if modules else None,
        built_cuda=cuda if modules else None,
        built_cxx11_abi=facts.torch.cxx11_abi if modules else None,
        extensions=modules,
        requires_torch="",
    )
    gaps[field] = _NOT_GIVEN
    extensions = tuple(_extension(field, module, facts) for module in modules)
    return replace(facts, **{field: package}, extensions=(*kept, *extensions), gaps=gaps)


def _modules(field: str, version: str) -> tuple[str, ...]:
    if field == "sageattention":
        if Version(version).major < 2:
            return ()
        return ("_fused", "_qattn_sm80", "_qattn_sm89", "_qattn_sm90")
    return _MODULES.get(field, ())


def _extension(field: str, name: str, facts: Facts) -> Extension:
    """Return a module that loads, with code for all GPUs."""
    archs = {str(gpu.sm) for gpu in facts.gpus or () if gpu.sm}
    return Extension(
        package=field,
        name=name,
        path="(simulated)",
        archs=tuple(sorted(archs)),
        ptx=(),
        ptx_cuda="",
        missing_libraries=(),
        missing_found_at=(),
        undefined_symbol_count=0,
        first_undefined_symbols=(),
        mismatch="",
        outdated_libraries=(),
        cuda_major=0,
        cxx11_abi=facts.torch.cxx11_abi,
    )


#: Keys that are not packages, in the order in which they are applied.
_STEPS: dict[str, Callable[[Facts, str, Tables, list[str]], Facts]] = {
    "os": _set_os,
    "arch": _set_arch,
    "python": _set_python,
    "gpu": _set_gpu,
    "sm": _set_capability,
    "memory": _set_memory,
    "driver": _set_driver,
    "torch": _set_torch,
    "triton": _set_triton,
    "cc": _set_c_compiler,
}
KEYS = tuple(_STEPS)
_EXAMPLE = "for example `--pretend gpu=rtx4090,torch=2.9.1+cu128,flash-attn=absent`"


def pretend(facts: Facts, given: Iterable[str], tables: Tables) -> Facts:
    """Return `facts` with the values of `given`; derived facts have to be derived again.

    Each of `given` is a list such as `gpu=h100,driver=570`. Raises `AttnDoctorError` for a word
    that is not understood.
    """
    words = _words(given)
    if not words:
        return facts
    notes: list[str] = []
    words = _implied(words, tables) | words
    for key, step in _STEPS.items():
        if key in words:
            facts = step(facts, words[key], tables, notes)
    if "gpu" in words or "sm" in words:
        facts = _with_driver(facts, words, tables, notes)
    if "torch" in words and "triton" not in words:
        facts = _with_triton(facts, tables, notes)
    for key, value in words.items():
        if key.startswith("env."):
            name = key.removeprefix("env.")
            facts = replace(facts, env={**facts.env, name: value})
            notes.append(f"{name}={value}" if value else f"{name} unset")
        elif key in PACKAGES:
            facts = _set_package(facts, key, value, notes)
    return replace(facts, simulated=(*facts.simulated, *notes))


def _implied(words: Mapping[str, str], tables: Tables) -> dict[str, str]:
    """The system and processor that the GPU is only sold with."""
    name = re.sub(r"^\d{1,2}\s*[x×]\s*", "", words.get("gpu", ""))
    product = find_product(name, tables) or find_other(name, tables) if name else None
    if product is None:
        return {}
    implied = {"os": product.os, "arch": product.arch if "os" not in words else ""}
    return {key: value for key, value in implied.items() if value}


def _words(given: Iterable[str]) -> dict[str, str]:
    """Return the value of each key."""
    words: dict[str, str] = {}
    for part in (part.strip() for text in given for part in text.split(",")):
        if not part:
            continue
        name, equals, value = part.partition("=")
        key = _key(name.strip())
        if not equals or (not value and not key.startswith("env.")):
            raise AttnDoctorError(f"--pretend {part}: write key=value, {_EXAMPLE}")
        words[key] = value.strip()
    return words


def _key(name: str) -> str:
    if name.startswith("env."):
        if name.removeprefix("env.") not in VARIABLES:
            raise AttnDoctorError(f"--pretend {name}: not a variable that attn-doctor reads")
        return name
    key = name.lower().replace("-", "_")
    if key in KEYS or key in PACKAGES:
        return key
    known = [known.replace("_", "-") for known in (*KEYS, *PACKAGES)]
    hint = did_you_mean(name.lower(), known, _EXAMPLE, 1)
    raise AttnDoctorError(f"--pretend {name}: not known; {hint}")
