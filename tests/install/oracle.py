"""Tries every build of torch by the tables alone; shares no code with `attn_doctor.install`.

It answers for machines without a CUDA toolkit, so that nothing can be compiled.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from attn_doctor.rulebook import library

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Compute capability of each GPU of the test, times ten.
GPUS = {
    "rtx4090": 89, "rtx5090": 120, "h100": 90, "a100": 80, "gtx1080": 61, "t4": 75, "v100": 70,
    "b200": 100, "none": 0,
}  # fmt: skip
NEEDS = {
    "flex": ["triton"],
    "flash": ["flash-attn"],
    "flash3": ["flash-attn-3"],
    "xformers": ["xformers"],
    "sage": ["sageattention"],
    "comfyui": ["torchvision", "torchaudio"],
}
COMPILED = {"flash-attn", "flash-attn-3", "xformers", "sageattention"}


class Asked(NamedTuple):
    """A demand and a machine, in plain values."""

    words: tuple[str, ...]
    gpu: str
    driver: str
    python: str
    system: str
    arch: str
    community: bool

    @property
    def packages(self) -> list[str]:
        found = [name for word in self.words for name in NEEDS.get(word, ())]
        # torch for Windows brings no Triton.
        return [*found, *(["triton"] if self.system == "windows" and "sage" in self.words else [])]

    @property
    def minor(self) -> tuple[int, ...]:
        return numbers(self.python)[:2]


class Tried(NamedTuple):
    """One build: what is against it, and the versions of each package that can be had with it."""

    version: str
    cuda: str
    faults: set[str]
    versions: dict[str, set[str]]
    official: bool


@cache
def table(name: str) -> Any:
    path = Path(library.folder(), "tables", f"{name}.toml")
    return tomllib.loads(path.read_text("utf-8"))


@cache
def wheels(publisher: str) -> list[list[str]]:
    path = Path(library.folder(), "tables", "wheels", f"{publisher}.tsv")
    lines = path.read_text("utf-8").splitlines()
    return [line.split("\t") for line in lines if line and line[0] != "#"]


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in re.findall(r"\d+", text))


def every(asked: Asked) -> Iterator[Tried]:
    """Every build of the kind that is wanted: for the GPU, or for the processor."""
    wanted = asked.gpu != "none" or bool(COMPILED & {*asked.packages})
    for row in table("torch")["release"]:
        version = max(row["pins"], key=numbers, default=row["minor"] + ".0")
        for cuda in row["cuda"] if wanted else [""]:
            yield tried(asked, row, version, cuda)


def tried(asked: Asked, row: Any, version: str, cuda: str) -> Tried:
    faults = set()
    aarch64 = row.get("archs", {}).get("aarch64", {})
    on_arm = bool(cuda) and asked.arch == "aarch64"
    if on_arm and cuda not in aarch64 and cuda != row.get("pypi_aarch64"):
        faults.add("system")
    if not numbers(row["python"][0]) <= asked.minor <= numbers(row["python"][1]):
        faults.add("python")
    if asked.gpu != "none" and cuda:
        faults |= {"driver"} & {driver_fault(asked, cuda)}
        if not has_code(asked, row, cuda):
            faults.add("gpu")
    if no_kernels(asked):
        faults.add("gpu")
    if "hub" in asked.words and asked.system == "linux" and asked.minor < (3, 9):
        faults.add("python")
    versions: dict[str, set[str]] = {}
    official = True
    for package in asked.packages:
        found, own = HAVE[package](asked, row, version, cuda)
        official &= own
        versions[package] = found
        if not found:
            faults.add(package)
    if versions.get("xformers") and versions.get("flash-attn") and not pairs(versions):
        faults.add("xformers with flash-attn")
    return Tried(version, cuda, faults, versions, official)


def pairs(versions: dict[str, set[str]]) -> bool:
    """Whether one of the releases of xformers uses one of flash-attn."""
    rows = {one["version"]: one["flash"] for one in table("xformers")["release"]}
    ranges = [SpecifierSet(rows[one]) for one in versions["xformers"]]
    flash = versions["flash-attn"]
    return any(one.contains(other, prereleases=True) for one in ranges for other in flash)


def driver_fault(asked: Asked, cuda: str) -> str:
    tables = table("drivers")
    least = {one["cuda"]: str(one[asked.system]) for one in tables["major"]}
    branch = int(asked.driver)
    known = next(one["cuda"] for one in tables["branch"] if one["branch"] <= branch)
    # `driver=580` is the first driver of that branch which runs its CUDA.
    first = next((one for one in least.values() if numbers(one)[0] == branch), asked.driver)
    major = numbers(cuda)[0]
    bad = major > numbers(known)[0] or numbers(first) < numbers(least[major])
    return "driver" if bad else ""


def has_code(asked: Asked, row: Any, cuda: str) -> bool:
    sm = GPUS[asked.gpu]
    listed = row.get("archs", {}).get(asked.arch, {}).get(cuda, [])
    if asked.system == "windows" and not row.get("windows"):
        listed = []
    if listed:
        return any(code // 10 == sm // 10 and code <= sm for code in listed)
    rows = [one for one in table("drivers")["compiler"] if numbers(one["cuda"]) <= numbers(cuda)]
    return bool(rows[-1]["oldest"] <= sm and sm // 10 <= rows[-1]["newest"] // 10)


def no_kernels(asked: Asked) -> bool:
    """Whether the GPU has no kernels of what is asked for, by the projects' READMEs."""
    sm = GPUS[asked.gpu]
    port = asked.community and asked.system == "windows"
    return bool(sm) and (
        ("flash" in asked.words and sm < 80)
        or ("flex" in asked.words and sm < 70)
        or ("flash3" in asked.words and not 80 <= sm < 100)
        or ("sage" in asked.words and not port and sm not in (80, 86, 89, 90, 120, 121))
    )


def named(asked: Asked, package: str, version: str, cuda: str, later: bool) -> Iterator[Any]:
    """The files of releases for this torch, CUDA, Python and system, and whose they are."""
    torch = numbers(version)[:2]
    for publisher in ("Dao-AILab", "PyTorch", "mjun0812", "woct0rdho", "windreamer", "unsloth"):
        own = publisher in ("Dao-AILab", "PyTorch")
        for name, release, _, built, for_cuda, platform, pythons in wheels(publisher):
            if name != package or not (own or asked.community):
                continue
            first = numbers(built)[:2]
            if torch != first and not (later and "andhigher" in built and torch > first):
                continue
            new_abi = abi(asked, torch, cuda)
            if "cxx11abi" in built and new_abi is not None and f"{new_abi}".upper() not in built:
                continue
            windows = platform.startswith("win")
            ends = ("x86_64", "amd64") if asked.arch == "x86_64" else ("aarch64",)
            fits = windows == (asked.system == "windows") and platform.endswith(ends)
            python = any(for_python(one, asked.minor) for one in pythons.split(","))
            if fits and python and for_cuda[:2] == cuda[:2]:
                yield release.partition("+")[0], own


def for_python(tags: str, minor: tuple[int, ...]) -> bool:
    built = (3, int(tags.split("-")[0].removeprefix("cp3")))
    return minor >= built if tags.endswith("abi3") else minor == built


def abi(asked: Asked, torch: tuple[int, ...], cuda: str) -> bool | None:
    """Whether PyTorch's build has the new C++ ABI, by the announcement of 2.6; None if unknown."""
    if torch != (2, 6):
        return torch > (2, 6) or (False if asked.arch == "x86_64" else None)
    return asked.system == "linux" and (asked.arch == "aarch64" or cuda == "12.6")


def flash(asked: Asked, row: Any, version: str, cuda: str) -> tuple[set[str], bool]:
    ready = [*named(asked, "flash-attn", version, cuda, later=False)]
    found = {release for release, _ in ready}
    new_abi = abi(asked, numbers(version)[:2], cuda)
    fetched = set()
    if asked.system == "linux":
        for one in table("flash-attn")["release"]:
            python = ".".join(map(str, asked.minor))
            listed = (
                asked.arch in one.get("machine", ())
                and row["minor"] in one["torch"]
                and numbers(cuda)[0] in one["cuda"]
                and new_abi in one["abi"]
                and python in one["python"]
                and [row["minor"], python] not in one["without"]
            )
            added = any(
                (asked.arch, row["minor"], numbers(cuda)[0], python, True)
                == (two["machine"], two["torch"], two["cuda"], two["python"], new_abi)
                for two in one.get("later", ())
            )
            fetched |= {one["version"]} if listed or added else set()
    return found | fetched, bool(fetched) or any(own for _, own in ready)


def flash_3(asked: Asked, row: Any, version: str, cuda: str) -> tuple[set[str], bool]:
    del row
    return {one for one, _ in named(asked, "flash-attn-3", version, cuda, later=True)}, True


def sage(asked: Asked, row: Any, version: str, cuda: str) -> tuple[set[str], bool]:
    del row
    if GPUS[asked.gpu] == 75 and numbers(version)[:2] >= (2, 7):
        return set(), False  # Triton 3.3 comes with torch 2.7: rules/sage/gpu-too-old.toml
    found = [*named(asked, "sageattention", version, cuda, later=True)]
    return {one for one, _ in found}, any(own for _, own in found)


def xformers(asked: Asked, row: Any, version: str, cuda: str) -> tuple[set[str], bool]:
    del row
    found = set()
    for one in table("xformers")["release"]:
        oldest, *newest = map(numbers, one["python"])
        if asked.system == "windows" and "windows" in one:
            built = cuda in one["windows"]
        else:
            built = any(numbers(two)[0] == numbers(cuda)[0] for two in one["cuda"])
        if (
            built
            and asked.arch == "x86_64"
            and SpecifierSet(one["torch"]).contains(version)
            and oldest <= asked.minor
            and all(asked.minor <= two for two in newest)
            and not 0 < GPUS[asked.gpu] < one.get("oldest", 0)
            # facebookresearch/xformers, issue 1323: its kernel for Hopper is taken on Blackwell.
            and not (
                GPUS[asked.gpu] > 90 and (0, 0, 30) <= numbers(one["version"])[:3] <= (0, 0, 32)
            )
        ):
            found.add(one["version"])
    return found, True


def triton(asked: Asked, row: Any, version: str, cuda: str) -> tuple[set[str], bool]:
    del cuda
    fits = numbers(version) >= (2, 5) and asked.minor <= numbers(row["compile"])
    newest = table("triton")["newest_windows"]["minor"]
    if asked.system == "windows" and asked.gpu != "none":
        fits &= numbers(row["triton"]) <= numbers(newest)
    return {"with torch"} if fits else set(), True


def torchvision(asked: Asked, row: Any, version: str, cuda: str) -> tuple[set[str], bool]:
    del asked, row, version, cuda
    return {"the one of torch"}, True


def torchaudio(asked: Asked, row: Any, version: str, cuda: str) -> tuple[set[str], bool]:
    del row
    last = table("companions")["torchaudio"]["last"]
    own = next(one for one in table("torch")["release"] if last.startswith(one["minor"] + "."))
    fits = asked.minor <= numbers(own["python"][1])
    if cuda and Version(version).release[:2] > numbers(last)[:2]:
        fits &= cuda in own["cuda"]
    return {"the one of torch"} if fits else set(), True


HAVE = {
    "flash-attn": flash,
    "flash-attn-3": flash_3,
    "sageattention": sage,
    "xformers": xformers,
    "triton": triton,
    "torchvision": torchvision,
    "torchaudio": torchaudio,
}
