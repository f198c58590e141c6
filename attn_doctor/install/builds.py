"""The builds of torch that PyTorch publishes, and which of them run on a machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from attn_doctor.derived import torch_wheels
from attn_doctor.derived.releases import major, parts, series, tag
from attn_doctor.facts import Facts, Gpu

#: Where PyTorch keeps its builds, one index for each CUDA version.
INDEX = "https://download.pytorch.org/whl"
_CPU_INDEX_SYSTEMS = ("linux",)
#: The builds of torch that use the GPUs of other vendors; the tables do not list them.
_OWN_BUILD = {"amd": "rocm", "intel": "xpu"}


class TorchBuild(Struct, frozen=True, kw_only=True):
    """One build of a release."""

    version: str
    """Release, such as `2.10.0`."""
    cuda: str = ""
    """Empty for a build for the processor."""
    index: str = ""
    """Name of PyTorch's index with it, such as `cu130`; empty for PyPI."""
    installed: str = ""
    """The version as installed, with its local part, if it is the installed one."""

    @property
    def full(self) -> str:
        """The version that the installed build would have."""
        return self.installed or (f"{self.version}+{self.index}" if self.index else self.version)

    @property
    def text(self) -> str:
        """The build as a person writes it."""
        built = f"for CUDA {self.cuda}" if self.cuda else "for the processor"
        return f"torch {self.version} {built}"


def other_vendor(facts: Facts) -> str:
    """Return what a GPU of another vendor needs that is not installed; empty if nothing."""
    build = _OWN_BUILD.get(facts.driver.vendor or "")
    if build is None or (facts.torch.installed and facts.torch.build == build):
        return ""
    gpu, name = ("an AMD GPU", "ROCm") if build == "rocm" else ("an Intel GPU", "XPU")
    return (
        f"this is {gpu}, which needs a torch built for {name}, and `install` chooses builds for"
        f" NVIDIA and the processor only: https://pytorch.org/get-started/locally/ has the command"
    )


def installed_build(facts: Facts) -> TorchBuild | None:
    """Return the installed torch; None if there is none, or a damaged one."""
    torch = facts.torch
    if not torch.installed or not torch.version or torch.installation_error:
        return None
    if torch.build not in ("cuda", "cpu", "mps", _OWN_BUILD.get(facts.driver.vendor or "")):
        return None
    version = torch.version.partition("+")[0]
    return TorchBuild(version=version, cuda=torch.cuda or "", installed=torch.version)


def published(facts: Facts, tables: Mapping[str, Any], *, cuda: bool) -> Iterator[TorchBuild]:
    """Yield the builds for this system, the newest release first, for CUDA or for the processor."""
    system = facts.system
    for row in reversed(tables["torch"]["release"]):
        version = max(row["pins"], key=parts, default=f"{row['minor']}.0")
        on_pypi = row["pypi"] if (system.os, system.arch) == ("linux", "x86_64") else ""
        if not cuda:
            index = "cpu" if system.os in _CPU_INDEX_SYSTEMS else ""
            yield TorchBuild(version=version, index=index)
            continue
        for one in reversed(row["cuda"]):
            yield TorchBuild(version=version, cuda=one, index="" if one == on_pypi else tag(one))


def on_default_index(facts: Facts, tables: Mapping[str, Any]) -> Iterator[TorchBuild]:
    """Yield the builds that PyPI has for Linux, newest first. All run on a processor alone too."""
    key = "pypi" if facts.system.arch == "x86_64" else "pypi_aarch64"
    for row in reversed(tables["torch"]["release"]):
        version = max(row["pins"], key=parts, default=f"{row['minor']}.0")
        yield TorchBuild(version=version, cuda=row.get(key, ""))


class Fit(Struct, frozen=True, kw_only=True):
    """How a build fits a machine. Each fault is empty where there is none."""

    system: str = ""
    python: str = ""
    driver: str = ""
    gpu: str = ""
    certain: bool = True
    """It certainly has code for the GPUs; otherwise its CUDA could have it."""
    whole: bool = True
    """The driver knows its CUDA version; otherwise it runs by minor version compatibility."""


#: The first torch whose wheels for x86_64 are all tagged manylinux_2_28; for aarch64 2.6 is.
_ON_GLIBC_2_28 = (2, 7)


def fit(build: TorchBuild, facts: Facts, tables: Mapping[str, Any]) -> Fit:
    """Return how a build fits the machine of the facts."""
    row = next(
        (one for one in tables["torch"]["release"] if one["minor"] == series(build.version)), None
    )
    if row is None:
        return Fit(certain=False)
    listed = torch_wheels.serves(row, build.cuda, facts, tables) if build.cuda else True
    return Fit(
        system=_system_fault(build, row, facts),
        python=_python_fault(row, facts),
        driver=_driver_fault(build, facts, tables),
        gpu=_gpu_fault(build, facts) if listed is False else "",
        certain=listed is True,
        whole=not build.cuda or parts(build.cuda) <= parts(facts.driver.cuda_max or "99"),
    )


def _system_fault(build: TorchBuild, row: Mapping[str, Any], facts: Facts) -> str:
    system = facts.system
    if system.musl:
        return "PyTorch publishes no torch for musl"
    if system.glibc and parts(system.glibc) < (2, 28) and parts(build.version) >= _ON_GLIBC_2_28:
        return f"{build.text} needs glibc 2.28, and this system has {system.glibc}"
    if system.os == "macos" and build.cuda:
        return "PyTorch publishes no torch for CUDA for macOS"
    if system.arch not in ("x86_64", "aarch64", "arm64", None):
        return f"PyTorch publishes no torch for {system.arch}"
    if build.cuda and not torch_wheels.is_built(row, build.cuda, facts):
        return f"no {build.text} is known for {system.arch}"
    return ""


def _python_fault(row: Mapping[str, Any], facts: Facts) -> str:
    if torch_wheels.for_python(row, facts):
        return ""
    oldest, newest = row["python"]
    return f"torch {row['minor']} is for Python {oldest} to {newest}"


def _driver_fault(build: TorchBuild, facts: Facts, tables: Mapping[str, Any]) -> str:
    known, version = facts.driver.cuda_max, facts.driver.version
    if not build.cuda or not known:
        return ""
    if (major(build.cuda) or 0) > (major(known) or 0):
        return f"{build.text} needs a driver for CUDA {major(build.cuda)}; this one knows {known}"
    rows = (row for row in tables["drivers"]["major"] if row["cuda"] == major(build.cuda))
    least = next((str(row.get(facts.system.os or "", "")) for row in rows), "")
    if version and least and parts(version) < parts(least):
        return f"{build.text} needs driver {least}; this is {version}"
    return ""


def _gpu_fault(build: TorchBuild, facts: Facts) -> str:
    names = ", ".join(sorted({_named(gpu) for gpu in facts.gpus or ()}))
    return f"{build.text} has no code for {names}"


def _named(gpu: Gpu) -> str:
    return f"{gpu.name or 'the GPU'} ({gpu.compute_capability})"
