"""Says what to install if no toolkit fits, and how without root.

Release numbers and file names come from `rules/tables/cuda-toolkits.toml`. NVIDIA's wheels hold a
compiler from CUDA 13 on; those for CUDA 11 and 12 hold only ptxas and libraries, on Linux and on
Windows, so for these conda's packages and NVIDIA's own installer remain.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from attn_doctor.derived.releases import major, parts, series
from attn_doctor.facts import Facts
from attn_doctor.probes.toolchain.toolkits import own_folder
from attn_doctor.shell import commands
from attn_doctor.shell.commands import attn_doctor


class Way(Struct, frozen=True, kw_only=True):
    """One way to get the toolkit."""

    title: str
    commands: tuple[str, ...]


class Advice(Struct, frozen=True, kw_only=True):
    """Which toolkit to install, and the ways to do it, the best first."""

    release: str
    """Major and minor version, such as `12.8`."""
    ways: tuple[Way, ...]
    note: str = ""
    """Why an expected way is missing."""


def advice(facts: Facts, tables: Mapping[str, Any], environ: Mapping[str, str]) -> Advice | None:
    """Return the advice for torch's own CUDA, or for the next one that knows the GPUs.

    None without a CUDA build of torch.
    """
    if facts.torch.build != "cuda" or not facts.torch.cuda:
        return None
    own = series(facts.torch.cuda) or facts.torch.cuda
    rows = tables["cuda-toolkits"]["release"]
    release = _for_the_gpus(own, facts, rows)
    row = next((one for one in rows if one["cuda"] == release), {"newest": f"{release}.0"})
    root = own_root(release, environ)
    ways = []
    if wheels_hold_nvcc(release) and facts.system.os in ("linux", "windows"):
        ways.append(
            Way(
                title="from NVIDIA's wheels, into a folder of its own",
                commands=(attn_doctor("fix", "--cuda-home", "--install", facts=facts),),
            )
        )
    if root is not None:
        ways += _without_root(facts, row, commands.word(str(root)))
    notes = [f"nvcc of torch's CUDA {own} does not know this GPU"] if release != own else []
    if not wheels_hold_nvcc(release):
        notes.append(f"NVIDIA's wheels of CUDA {release} contain no compiler, despite their names")
    return Advice(release=release, ways=tuple(ways), note="; ".join(notes))


def _for_the_gpus(own: str, facts: Facts, rows: Sequence[Mapping[str, Any]]) -> str:
    """The release, or the first later one of its major version that knows every GPU."""
    oldest = [gpu.min_nvcc for gpu in facts.gpus or () if gpu.min_nvcc]
    needed = max((one for one in oldest if major(one) == major(own)), key=parts, default=own)
    if parts(needed) <= parts(own):
        return own
    later = (str(row["cuda"]) for row in rows if major(row["cuda"]) == major(own))
    return next((one for one in later if parts(one) >= parts(needed)), needed)


def _without_root(facts: Facts, row: Mapping[str, Any], folder: str) -> list[Way]:
    newest = row["newest"]
    conda = f"conda create -y -p {folder} -c nvidia/label/cuda-{newest} cuda-toolkit"
    ways = [Way(title="with conda", commands=(conda,))]
    driver = row.get("runfile")
    if driver and facts.system.os == "linux" and facts.system.arch == "x86_64":
        name = f"cuda_{newest}_{driver}_linux.run"
        place = "https://developer.download.nvidia.com/compute/cuda"
        ways.append(
            Way(
                title="with NVIDIA's installer, which needs no root without the driver",
                commands=(
                    f"curl -fLO {place}/{newest}/local_installers/{name}",
                    f"sh {name} --silent --toolkit --toolkitpath={folder} --override",
                ),
            )
        )
    return ways


def wheels_hold_nvcc(release: str) -> bool:
    """Whether NVIDIA's wheels of this CUDA release contain a compiler; those of 12.9 do not."""
    return (major(release) or 0) >= 13


def own_root(release: str, environ: Mapping[str, str]) -> Path | None:
    """Return the folder where attn-doctor finds a toolkit of that release; None without a home."""
    folder = own_folder(environ, windows=os.name == "nt")
    return Path(folder, f"cuda-{release}") if folder else None
