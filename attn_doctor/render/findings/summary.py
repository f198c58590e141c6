"""The machine in four blocks: machine, toolkit, torch, packages. Shared by text and Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Any

from attn_doctor._version import __version__
from attn_doctor.derived.newer import age_sentence, tables_age
from attn_doctor.facts import Facts, Gpu, Package, Program
from attn_doctor.render.terminal import Terminal, clean
from attn_doctor.rulebook import library

#: Packages of the last block, in the order in which they are shown.
PACKAGES = (
    "flash_attn", "flash_attn_3", "flash_attn_4", "sageattention", "sageattn3", "xformers",
    "kernels", "diffusers", "transformers", "accelerate", "torchvision", "torchaudio", "torchao",
    "bitsandbytes", "simpletuner", "finetrainers",
)  # fmt: skip


def opening(facts: Facts, terminal: Terminal) -> list[str]:
    """The first line of every page: who speaks, and about which interpreter."""
    name = f"attn-doctor {__version__}"
    first, *rest = terminal.wrap(f"{name}  {header(facts)}", 2)
    return [first[2:].replace(name, terminal.style(name, "bold"), 1), *rest]


def header(facts: Facts) -> str:
    """Which interpreter is examined, and why that one."""
    python = facts.python
    if not python.path:
        return "no Python interpreter was examined"
    version = f"Python {python.version}" if python.version else "Python"
    kind = {
        "venv": "virtual environment",
        "conda": "conda environment",
        "embeddable": "portable build",
    }.get(python.environment or "", "")
    words = " · ".join(filter(None, (version, kind, python.selection_reason)))
    return clean(f"{python.path} ({words})")


def caveats(facts: Facts) -> list[str]:
    """What limits every verdict: releases that are newer than the tables, and old tables."""
    newer = [release.text or "" for release in facts.newer_releases or ()]
    old = age_sentence(library.tables(), date.today())
    return [clean(one) for one in (*newer, *([old] if old else ()))]


def tables_state() -> dict[str, Any]:
    """The day on which the tables were last compared with releases, and the days since."""
    checked, days = tables_age(library.tables(), date.today())
    return {"checked": checked.isoformat(), "days": days}


def blocks(facts: Facts) -> list[tuple[str, list[str]]]:
    """The four blocks, each with its lines, after the interpreters and the simulated parts."""
    found = [
        *([("python", lines)] if (lines := [*_interpreters(facts)]) else []),
        *([("simulated", [", ".join(facts.simulated)])] if facts.simulated else []),
        ("machine", [*_machine(facts)]),
        ("toolkit", [*_toolkit(facts)]),
        ("torch", [*_torch(facts)]),
        ("packages", [*_packages(facts)]),
    ]
    return [(name, [clean(line) for line in lines]) for name, lines in found]


def _interpreters(facts: Facts) -> Iterable[str]:
    """The interpreters with torch, if another one than the examined one could be meant."""
    others = [one for one in facts.interpreters or () if one.path != facts.python.path]
    if not others:
        return
    for one in facts.interpreters or ():
        examined = "examined: " if one.path == facts.python.path else ""
        yield f"torch {one.torch} in {one.path} ({examined}{one.found})"
    yield "--python PATH examines another one"


def _machine(facts: Facts) -> Iterable[str]:
    system = facts.system
    distribution = system.distribution_name or system.distribution or system.os or "unknown system"
    if system.distribution_version and system.distribution_version not in distribution:
        distribution += f" {system.distribution_version}"
    yield ", ".join(
        filter(
            None,
            (
                distribution,
                f"WSL {system.wsl}" if system.wsl else "",
                f"{system.container} container" if system.container else "",
                system.arch,
                f"{system.cpus} CPUs" if system.cpus else "",
                f"{_gib(system.ram_total_mib)} of memory" if system.ram_total_mib else "",
            ),
        )
    )
    if facts.gpus:
        yield from _gpus(facts.gpus)
        if facts.driver.version:
            yield f"NVIDIA driver {facts.driver.version}"
    else:
        yield _no_gpu(facts)


def _gpus(gpus: tuple[Gpu, ...]) -> Iterable[str]:
    """Equal GPUs on one line, however many there are."""
    groups: dict[tuple[str, str, str], list[Gpu]] = {}
    for gpu in gpus:
        same = (gpu.name or "unknown GPU", _arch(gpu), _gib(gpu.memory_total_mib))
        groups.setdefault(same, []).append(gpu)
    for (name, arch, memory), members in groups.items():
        label = "GPUs" if len(members) > 1 else "GPU"
        numbers = ", ".join(str(gpu.index) for gpu in members)
        free = [gpu.memory_free_mib for gpu in members if gpu.memory_free_mib is not None]
        details = [arch, memory + (f" ({_free(free)})" if free and memory else "")]
        if any(gpu.mig == "enabled" for gpu in members):
            details.append("MIG enabled")
        busy = sum(gpu.processes or 0 for gpu in members)
        if busy:
            details.append(f"{busy} process{'es' if busy > 1 else ''} on it")
        yield f"{label} {numbers}: {name}, {', '.join(filter(None, details))}"


def _free(mib: list[int]) -> str:
    least, most = _gib(min(mib)), _gib(max(mib))
    return f"{least} free" if least == most else f"{least} to {most} free"


def _arch(gpu: Gpu) -> str:
    return f"sm_{gpu.sm}" if gpu.sm else "compute capability unknown"


def _no_gpu(facts: Facts) -> str:
    """One line on why no GPU is listed."""
    driver = facts.driver
    on_bus = [device.name or f"PCI device {device.device_id}" for device in facts.pci or ()]
    gap = facts.gap("gpus") or facts.gap("driver")
    states = {
        "no-gpu": "no GPU",
        "no-driver": f"no NVIDIA driver for {', '.join(on_bus) or 'the GPU'}",
        "no-device": f"NVIDIA driver {driver.version or ''} shows no GPU".replace("  ", " "),
        "no-permission": "the NVIDIA driver refuses this user",
        "library-mismatch": "NVIDIA driver and its libraries have different versions",
        "no-library": "NVIDIA driver without its library libnvidia-ml",
        "container-without-runtime": "this container was started without access to the GPU",
        "wsl-stub": "no usable NVIDIA driver in this WSL",
        "not-answering": "the NVIDIA driver does not answer",
        "gpu-lost": "the NVIDIA driver has lost its GPU",
        "error": f"NVIDIA driver error: {driver.error}",
    }
    text = states.get(driver.state or "", f"GPU unknown: {gap or 'it was not examined'}")
    if driver.vendor in ("amd", "intel", "apple"):
        name = {"amd": "AMD", "intel": "Intel", "apple": "Apple"}[driver.vendor]
        text += f"; {name} GPU" + (f" ({', '.join(on_bus)})" if on_bus else "")
    return text


def _toolkit(facts: Facts) -> Iterable[str]:
    toolkits = facts.toolkits
    if toolkits is None:
        yield f"CUDA toolkits unknown: {facts.gap('toolkits') or 'not examined'}"
    elif not toolkits:
        yield "no CUDA toolkit (FlexAttention needs none; building extensions does)"
    for toolkit in toolkits or ():
        lacks = (
            f", lacks {', '.join(toolkit.missing_components)}" if toolkit.missing_components else ""
        )
        used = ", used for builds" if toolkit.in_use else ""
        yield f"CUDA {toolkit.version or '(version unknown)'} in {toolkit.root}{used}{lacks}"
    tools = [
        _program(facts.cc.family or "C compiler", facts.cc),
        _program(_cxx_name(facts.cxx), facts.cxx),
        _program("ninja", facts.ninja),
        _program("cmake", facts.cmake),
    ]
    if facts.python.headers is not None:
        tools.append("Python.h" if facts.python.headers else "no Python.h")
    if any(tools):
        yield ", ".join(filter(None, tools))


def _cxx_name(program: Program) -> str:
    return {"gcc": "g++", "clang": "clang++"}.get(program.family or "", "C++ compiler")


def _program(name: str, program: Program) -> str:
    if program.path is None:
        return ""
    if not program.path:
        return f"no {name}"
    return f"{name} {program.version or '(version unknown)'}"


def _torch(facts: Facts) -> Iterable[str]:
    torch, triton = facts.torch, facts.triton
    if torch.installed is None:
        yield f"torch unknown: {facts.gap('torch') or 'not examined'}"
        return
    if not torch.installed:
        yield "torch is not installed here"
        return
    built = {
        "cuda": f"built for CUDA {torch.cuda}",
        "rocm": f"built for ROCm {torch.hip}",
        "cpu": "a CPU build",
        "xpu": "built for Intel XPU",
        "mps": "built for Apple GPUs",
    }.get(torch.build or "", "build unknown")
    pair = f"triton {triton.version}" if triton.installed else "no triton"
    yield f"torch {torch.version or '(version unknown)'}, {built}; {pair}"
    yield from _three_cudas(facts)


#: States of `driver.state` in which there is no driver with a CUDA version.
_NO_DRIVER = ("no-gpu", "no-driver", "container-without-runtime", "wsl-stub")


def _three_cudas(facts: Facts) -> Iterable[str]:
    """The three versions called CUDA side by side, explained where they differ."""
    driver, torch, nvcc = facts.driver.cuda_max, facts.torch.cuda, facts.build.version
    known = [version for version in (driver, torch, nvcc) if version]
    if len(known) < 2:
        return
    reach = "no driver" if facts.driver.state in _NO_DRIVER else f"driver up to {driver or '?'}"
    compiler = nvcc or ("?" if facts.gap("build.version") else "none")
    yield f"CUDA: {reach} · torch {torch or 'none'} · nvcc {compiler}"
    if len({_major_minor(version) for version in known}) > 1:
        yield (
            "(the newest version that the driver runs, the version that torch contains, and the"
            " version that extensions are built with)"
        )


def _major_minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _packages(facts: Facts) -> Iterable[str]:
    found: list[str] = []
    unknown = []
    for field in PACKAGES:
        package: Package = getattr(facts, field)
        name = package.distribution or field.replace("_", "-")
        if package.installed is None:
            unknown.append(name)
        elif package.installed:
            found.append(f"{name} {package.version or '(version unknown)'}")
    if found:
        yield ", ".join(found)
    elif not unknown:
        yield "no attention package and no framework is installed here"
    if unknown:
        yield f"unknown: {', '.join(unknown)}"


def _gib(mib: int | None) -> str:
    if mib is None:
        return ""
    gib = mib / 1024
    return f"{gib:.0f} GiB" if gib >= 10 else f"{gib:.1f} GiB"
