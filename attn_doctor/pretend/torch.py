"""Another torch and Triton, as the wheels of their releases would be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace
from packaging.version import Version

from attn_doctor.facts import Facts, Torch, Triton
from attn_doctor.facts.kinds import TorchBuild
from attn_doctor.pretend.common import ABSENT, REASON, Tables, checked, without_gaps


def torch(facts: Facts, value: str, tables: Tables, told: list[str]) -> Facts:
    """A release of torch from PyTorch's own index, or its absence."""
    gaps = without_gaps(facts, "torch", "cuda_wheels", "shadowing_libraries")
    if value in ABSENT:
        told.append("no torch")
        torch = Torch(installed=False, installation_error="")
        return replace(facts, torch=torch, cuda_wheels=(), shadowing_libraries=(), gaps=gaps)
    parsed = Version(checked("torch", value))
    minor = f"{parsed.major}.{parsed.minor}"
    row = next((one for one in tables["torch"]["release"] if one["minor"] == minor), None)
    local = (parsed.local or "").lower()
    build, cuda = _build(local, row, facts)
    if build == "cuda" and cuda is None:
        gaps["torch.cuda"] = f"simulated: write the build too, such as torch={value}+cu130"
    told.append(f"torch {value}" + (f" (built for CUDA {cuda})" if cuda and not local else ""))
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
        source="index",
        has_flex=(parsed.major, parsed.minor) >= (2, 5),
        has_build_helper=False,
        requires_triton=_requires_triton(pinned, build, facts),
        missing_nvidia_wheels=(),
        missing_libraries=(),
    )
    gaps.update(dict.fromkeys(("torch", "cuda_wheels"), REASON))
    return replace(facts, torch=torch, cuda_wheels=None, shadowing_libraries=(), gaps=gaps)


def _requires_triton(pinned: str | None, build: str, facts: Facts) -> str | None:
    if build != "cuda" or facts.system.os in ("windows", "macos"):
        return ""
    return pinned


def _build(
    local: str, row: Mapping[str, Any] | None, facts: Facts
) -> tuple[TorchBuild, str | None]:
    """What it is built for, and its CUDA: by its local part, else as PyPI has it."""
    tag = re.match(r"cu(\d+)(\d)", local)
    if tag:
        return "cuda", f"{tag[1]}.{tag[2]}"
    builds: tuple[TorchBuild, ...] = ("rocm", "xpu", "cpu")
    for build in builds:
        if local.startswith(build):
            return build, None
    if facts.system.os == "macos":
        return "mps", None
    if facts.system.os == "windows" or facts.system.arch not in ("x86_64", None):
        return "cpu", None
    return "cuda", str(row["pypi"]) if row else None


def triton(facts: Facts, value: str, tables: Tables, told: list[str]) -> Facts:
    """A release of Triton, or its absence."""
    gaps = without_gaps(facts, "triton")
    if value in ABSENT:
        told.append("no Triton")
        return replace(facts, triton=Triton(installed=False, providers=()), gaps=gaps)
    version = checked("triton", value)
    told.append(f"Triton {version}")
    return replace(facts, triton=_sound_triton(facts, version, tables), gaps=gaps)


def _sound_triton(facts: Facts, version: str, tables: Tables) -> Triton:
    name = "triton-windows" if facts.system.os == "windows" else "triton"
    parsed = Version(version)
    minor = f"{parsed.major}.{parsed.minor}"
    rows: list[Mapping[str, Any]] = tables["triton"]["release"]
    blackwell = any(one["minor"] == minor and "blackwell" in one for one in rows)
    # Paths stand for files that a sound installation has.
    return Triton(
        installed=True,
        version=version,
        distribution=name,
        providers=(name,),
        backends=("nvidia", "amd"),
        ptxas="ptxas",
        ptxas_blackwell="ptxas-blackwell" if blackwell else "",
    )


def with_triton(facts: Facts, tables: Tables, told: list[str]) -> Facts:
    """PyTorch for Linux brings its Triton along; elsewhere the one that is here stays."""
    wanted = facts.torch.requires_triton
    if not facts.torch.installed or facts.torch.build != "cuda" or not wanted:
        return facts
    version = re.sub(r"[^0-9.].*", "", wanted.lstrip("=~")).rstrip(".")
    told.append(f"Triton {version} (comes with it)")
    return replace(
        facts,
        triton=_sound_triton(facts, version, tables),
        gaps=without_gaps(facts, "triton"),
    )
